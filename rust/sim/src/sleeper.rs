//! A process that is stopped, loses its shard meanwhile, and goes on after more than a week.
//!
//! Owns: the sleep, and that all other processes end during it.
//! Does not own: what the process does before and after; it never notices its sleep.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::actors::pause;
use crate::collector::SENTINEL_AGE;
use crate::world::World;

/// Longer than a sentinel stays.
const NAP: Duration = SENTINEL_AGE.saturating_add(Duration::from_hours(24));

/// Once in a life, at any moment.
pub async fn sleep(world: Arc<World>) {
    if !world.climate.sleeps {
        return;
    }
    let puts = left(&world);
    until_left(&world, puts / 4 + world.chance.index(puts / 2 + 1)).await;
    let sleeper = loop {
        let count = world.processes.lock().len();
        if count > 0 {
            break world.processes.lock().remove(world.chance.index(count));
        }
        pause(Duration::from_millis(50)).await;
    };
    world.event("falls asleep", sleeper.client.id, "");
    sleeper.client.sleep(true);
    // Other processes take the shard, by chance more than one.
    until_left(&world, left(&world).saturating_sub(world.chance.index(60))).await;
    for client in world.clients.lock().iter().filter(|client| client.id != sleeper.client.id) {
        client.kill();
    }
    for process in std::mem::take(&mut *world.processes.lock()) {
        process.cancel_callers();
    }
    tokio::time::advance(NAP).await;
    until_left(&world, left(&world).saturating_sub(world.chance.index(60))).await;
    world.event("fault: woke after a week", sleeper.client.id, "");
    sleeper.client.sleep(false);
    pause(world.chance.pause(5_000)).await;
    world.processes.lock().push(sleeper);
}

fn left(world: &World) -> usize {
    world.puts_left.load(Ordering::Relaxed)
}

/// Until only `puts` puts are left, or a while has passed.
async fn until_left(world: &World, puts: usize) {
    for _ in 0..400 {
        pause(Duration::from_millis(50)).await;
        if left(world) <= puts {
            return;
        }
    }
}
