//! Callers of a job in a table with a rule: events of any keys, and versions of applications.
//!
//! Owns: when they call. Does not own: one call and its answer (`process`), or what is drawn
//! (`events`, `applications`).

use std::sync::Arc;

use crate::applications::Attempt;
use crate::events::Call;
use crate::process::{Next, Process, Write};
use crate::world::World;

impl Process {
    /// One call after the other, each once.
    pub async fn write_events(self: Arc<Self>, world: Arc<World>) {
        loop {
            self.think(&world).await;
            let call = Call::draw(&world.chance, world.rule);
            world.event(call.name(), self.client.id, "");
            let rule = world.rule;
            let write = Write::Ruled { call: &call, version: None };
            if self.call(&world, write, |id| call.events(id, rule)).await == Next::End {
                return;
            }
        }
    }

    /// Versions of applications. One that may or may not have happened is tried again, by this
    /// process or by another.
    pub async fn write_versions(self: Arc<Self>, world: Arc<World>) {
        loop {
            self.think(&world).await;
            let (chance, rule) = (&world.chance, world.rule);
            let Attempt { version, call } = world.applications.attempt(chance, rule);
            let write = Write::Ruled { call: &call, version: Some(version) };
            if self.call(&world, write, |id| call.events(id, rule)).await == Next::End {
                return;
            }
        }
    }
}
