//! One life of a shard, from its creation to the last check.
//!
//! Owns: the runtime, the cast, and what must be true when the storage is whole again.
//! Does not own: any rule in between.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lancemem_core::shard::verify_wal;
use lancemem_core::store::ManifestStore;

use crate::actors::{self, Reader};
use crate::process::Process;
use crate::storage::Client;
use crate::world::{Counts, Weather, World};
use crate::{collector, damage, process, sleeper};

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Longer than a life takes on its own clock.
const LIFETIME: Duration = Duration::from_hours(800);

/// After this number a life ends, although not all puts were tried.
const MAX_OPENS: u64 = 300;
/// Long enough that no request is in flight any more: clients give up after half a minute.
const SETTLES: Duration = Duration::from_mins(2);

/// How a life went.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its seed.
    pub seed: u64,
    /// A hash of everything that happened, in order.
    pub trace: u64,
    /// How often each thing happened.
    pub counts: Counts,
    /// The rule that was broken.
    pub failure: Option<String>,
}

/// Remembers a panic of any task of this thread, wherever it is caught.
pub fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with(|panic| {
            panic.borrow_mut().get_or_insert_with(|| info.to_string());
        });
    }));
}

/// Lives the life of `seed` with `puts` puts.
///
/// # Panics
/// Where the runtime cannot be made.
#[must_use]
pub fn live(seed: u64, puts: usize, verbose: bool) -> Life {
    PANIC.with(|panic| panic.borrow_mut().take());
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    // Of two tasks that wait for the same event tokio picks the first at random.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    let built = builder.build();
    let runtime = built.unwrap_or_else(|error| unreachable!("no runtime: {error}"));
    let (mut life, world) = runtime.block_on(async {
        let world = World::new(seed, puts, verbose);
        let story = tokio::time::timeout(LIFETIME, tell(&world));
        let ended = tokio::select! {
            biased;
            () = world.failed() => Ok(()),
            ended = story => ended,
        };
        if ended.is_err() {
            world.fail("the life does not come to an end");
        }
        let failure = world.failure();
        (Life { seed, trace: world.trace(), counts: world.counts(), failure }, world)
    });
    drop(runtime);
    world.forget();
    let panicked = PANIC.with(|panic| panic.borrow_mut().take());
    if let Some(panic) = panicked {
        life.failure.get_or_insert(format!("panic: {panic}"));
    }
    life
}

/// Forgets a panic of arrow's decoder, which reads what is damaged and whose caller catches it.
pub fn forgive_decoder() {
    PANIC.with(|panic| {
        let mut panic = panic.borrow_mut();
        if panic.as_ref().is_some_and(|panic| panic.contains("/arrow-")) {
            *panic = None;
        }
    });
}

async fn tell(world: &Arc<World>) {
    if let Some(name) = world.rule.name() {
        world.event(name, 0, "");
    }
    let god = Client::new(world);
    *world.weather.lock() = Weather::Calm;
    let manifests = ManifestStore::new(god.store(), world.shard_id, 2);
    if let Err(error) = manifests.initialize(1, BTreeMap::new()).await {
        return world.fail(format!("the shard cannot be created: {error}"));
    }
    god.close();
    *world.weather.lock() = Weather::Usual;
    let mut cast = tokio::task::JoinSet::new();
    cast.spawn(actors::claim(world.clone()));
    cast.spawn(actors::end(world.clone()));
    cast.spawn(actors::turn_weather(world.clone()));
    cast.spawn(actors::jump(world.clone()));
    cast.spawn(actors::read(world.clone()));
    cast.spawn(actors::read(world.clone()));
    cast.spawn(actors::compact(world.clone()));
    cast.spawn(collector::collect(world.clone()));
    cast.spawn(sleeper::sleep(world.clone()));
    // In the worst climates nearly every open fails, and a life would consist of those.
    let goes_on = || world.puts_left.load(Ordering::Relaxed) > 0 && world.count("open") < MAX_OPENS;
    while goes_on() {
        actors::pause(Duration::from_millis(50)).await;
    }
    cast.abort_all();
    if world.chance.odds(500) {
        // So that the log keeps what a settling owner would flush.
        for process in take_processes(world) {
            process.kill();
        }
    }
    *world.weather.lock() = Weather::Calm;
    actors::pause(SETTLES).await;
    reckon(world).await;
}

fn take_processes(world: &World) -> Vec<Arc<Process>> {
    std::mem::take(&mut *world.processes.lock())
}

/// The storage is whole again and nothing is on its way.
async fn reckon(world: &Arc<World>) {
    if !Reader::new(world).look().await {
        return world.fail("a shard on healthy storage cannot be read");
    }
    for process in take_processes(world) {
        if world.chance.odds(500) {
            process.kill();
        } else {
            process.close(world.clone(), world.chance.odds(500)).await;
        }
    }
    // What a process that was just killed had sent may still arrive: a flush would cover what is
    // damaged.
    actors::pause(SETTLES).await;
    damage::strike(world).await;
    process::open(world.clone()).await;
    let last = world.processes.lock().pop();
    let Some(last) = last else {
        return world.fail("a shard on healthy storage cannot be opened");
    };
    last.cancel_callers();
    Reader::new(world).look().await;
    let client = last.client.clone();
    last.close(world.clone(), true).await;
    let store = Client::new(world).store();
    let manifests = ManifestStore::new(store.clone(), world.shard_id, 2);
    match verify_wal(&store, &manifests).await {
        Ok(report) if report.findings.is_empty() => {}
        Ok(report) => world.fail(format!("P7: the log is damaged: {:?}", report.findings)),
        Err(error) => world.fail(format!("P7: the log cannot be checked: {error}")),
    }
    Reader::new(world).look().await;
    world.event("reckoned", client.id, "");
}
