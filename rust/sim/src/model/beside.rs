//! The actors beside the owner: two collectors and a compactor.
//!
//! Owns: which entries a collector removes and when, and the two halves of a compaction.
//! Does not own: clocks. What a collector does with sentinels is the rule of
//! `rust/engine/src/garbage/rules.rs` without them: a sentinel goes only after a week, so the
//! writers that it fences have not proven for more than a day that they own the shard.

use super::log::Slot;
use super::state::{MAX_WRITERS, State, Writer};
use super::{Protocol, Step};

const COLLECTOR: usize = MAX_WRITERS;
const SLOW_COLLECTOR: usize = COLLECTOR + 1;
const COMPACTOR: usize = COLLECTOR + 2;

impl State {
    /// One collector removes at once what it finds. The second one decides now and removes later,
    /// whatever stands there then. Neither remembers a manifest: with an older one it would only
    /// remove less.
    pub(super) fn collector_steps(&self, protocol: Protocol, steps: &mut Vec<Step>) {
        let mut step = |who, does, next| steps.push(Step { who, does, next: Box::new(next) });
        let removing = self.removing;
        if removing != 0 {
            let mut state = self.clone();
            state.put(removing, Slot::Free);
            state.removing = 0;
            step(SLOW_COLLECTOR, "removes it", state);
        }
        for position in (1..=self.covered).filter(|at| self.is_garbage(*at, protocol.mutant)) {
            let mut decided = self.clone();
            decided.forget_proofs(position);
            if protocol.slow_collector && removing == 0 {
                let mut state = decided.clone();
                state.removing = position;
                step(SLOW_COLLECTOR, "decides to remove an entry", state);
            }
            decided.put(position, Slot::Free);
            step(COLLECTOR, "removes an entry", decided);
        }
    }

    /// Covered entries are, and so are sentinels that a week has passed since, but for the newest.
    /// The highest entry stays, whatever it is.
    fn is_garbage(&self, position: u8, mutant: &str) -> bool {
        let is_sentinel = |at: u8| matches!(self.at(at), Slot::Sentinel(_));
        let newest = (1..=self.covered).rev().find(|at| is_sentinel(*at));
        let stays = position == self.highest() || Some(position) == newest;
        self.at(position) != Slot::Free && (!stays || mutant == "B2")
    }

    /// Where a sentinel stands there, it is a week old.
    fn forget_proofs(&mut self, position: u8) {
        let Slot::Sentinel(fence) = self.at(position) else { return };
        for writer in 0..MAX_WRITERS {
            let is_alive = self.writers[writer] != Writer::Dead;
            let is_fenced = self.epochs[writer] > 0 && self.epochs[writer] < fence;
            self.stale[writer] |= is_alive && is_fenced;
        }
    }

    pub(super) fn compactor_steps(&self, protocol: Protocol, steps: &mut Vec<Step>) {
        let who = COMPACTOR;
        let mut step = |does, next: Self| steps.push(Step { who, does, next: Box::new(next) });
        match self.compacting {
            None if self.flushed != 0 => {
                let mut state = self.clone();
                state.compacting = Some(self.flushed);
                state.base |= self.flushed;
                step("commits to the base", state);
            }
            Some(runs) => {
                let mut state = self.clone();
                state.compacting = None;
                state.flushed &= !runs;
                if protocol.mutant == "B23" {
                    state.epoch += 1;
                }
                step("drains the manifest", state);
            }
            None => {}
        }
    }
}
