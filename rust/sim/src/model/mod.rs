//! The protocol of one shard as a small machine, of which every reachable state is visited.
//!
//! Owns: how large the machine is, which bug is in it, and the walk over its states.
//! Does not own: its steps (`claim`, `owner`, `beside`), what a state holds and which states break
//! a promise (`state`, `log`), or the code that takes those steps. `life` runs that code, on a
//! sample of its orders.
//!
//! A step is what storage makes atomic: one put-if-absent, one listing, one swap of the manifest. A
//! put may land at any later time, and an actor that takes no further step has crashed, so neither
//! needs a step of its own. Nor does an attempt that changed nothing, whatever its answer: the
//! writer's state is unchanged, and it tries again. So any number of lost answers and of conflicts
//! is in every walk. Writes are bits of a set. Writers that have not begun are alike (symmetry
//! reduction): of states that differ only in the numbers of writers, one is visited.

mod beside;
mod claim;
mod log;
mod owner;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

pub use state::State;
use state::{MAX_WRITERS, Promise};

/// One step, of one actor.
#[derive(Clone, PartialEq)]
pub struct Step {
    who: usize,
    does: &'static str,
    next: Box<State>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.who, self.does)
    }
}

/// The machine: how large it is, and which bug is in it.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Writers, at most 4.
    pub writers: usize,
    /// Writes of each writer, at most 3.
    pub writes: u8,
    /// Writes of each writer that stand in its MemTables and not yet in the log. With 0 a write
    /// gets there as it is appended, and nothing is frozen between the two.
    pub queued: u8,
    /// Whether an open reads the log before it claims too, as the core does.
    pub reads_first: bool,
    /// Whether there is a second collector, beside the one that removes at once what it finds. The
    /// second removes later what it has decided on, whatever stands there then.
    pub slow_collector: bool,
    /// A bug of the catalogue; empty for a machine without a bug.
    pub mutant: &'static str,
}

impl Protocol {
    /// The smallest machine with this number of writers and this number of writes of each.
    #[must_use]
    pub const fn new(writers: usize, writes: u8) -> Self {
        Self { writers, writes, queued: 0, reads_first: false, slow_collector: false, mutant: "" }
    }

    fn writers(&self) -> usize {
        self.writers.min(MAX_WRITERS)
    }
}

/// What a walk over all states has found.
#[derive(Debug)]
pub struct Walk {
    /// States that were visited.
    pub states: usize,
    /// Steps of the longest path without a loop.
    pub depth: usize,
    /// The promise that a state breaks, with the steps that lead there.
    pub broken: Option<String>,
    /// Whether every reachable state was visited.
    pub complete: bool,
}

/// Visits every state, until one breaks a promise or the time is over.
#[must_use]
pub fn walk(protocol: Protocol, longest: Duration) -> Walk {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let started = Instant::now();
    let checker = protocol
        .checker()
        .threads(threads)
        .timeout(longest)
        .finish_when(HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let broken = found.values().next().map(|path| {
        let promise = path.last_state().breaks().map_or("", Promise::text);
        let steps: Vec<String> =
            path.clone().into_actions().iter().map(|step| format!("{step:?}")).collect();
        format!("{promise}\n{}\n{:#?}", steps.join("\n"), path.last_state())
    });
    Walk {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: broken.is_none() && checker.is_done() && started.elapsed() < longest,
        broken,
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for writer in 0..self.writers() {
            state.writer_steps(writer, *self, steps);
        }
        state.collector_steps(*self, steps);
        state.compactor_steps(*self, steps);
    }

    fn next_state(&self, _: &State, step: Step) -> Option<State> {
        Some(*step.next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        // One property for all promises, so that the log of a state is read once.
        vec![Property::always("no promise is broken", |_, state: &State| state.breaks().is_none())]
    }
}
