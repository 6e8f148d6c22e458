//! The steps from an open to a writer: read, claim, fence, replay, prove.
//!
//! Owns: their order, as the core's `shard::claim` and `WalAppender::fence` have it.
//! Does not own: what the writer does with the shard.

use super::log::{Recovered, Slot};
use super::state::{Claim, Open, Promise, State, Writer};
use super::{Protocol, Step};

impl State {
    pub(super) fn claim_steps(&self, it: usize, protocol: Protocol, steps: &mut Vec<Step>) {
        let mutant = protocol.mutant;
        let mut step = |does, next: Self| steps.push(Step { who: it, does, next: Box::new(next) });
        match self.writers[it] {
            // The next writer to begin is the first that has not begun.
            Writer::Idle if it > 0 && self.writers[it - 1] == Writer::Idle => {}
            Writer::Idle if protocol.reads_first => {
                let (covered, generation) = (self.covered, self.generation);
                step("looks", self.with(it, Writer::Looked { covered, generation }));
            }
            Writer::Idle => step("claims", self.claimed(it, Recovered::default())),
            Writer::Looked { covered, generation } => {
                match self.read(Recovered::behind(covered), self.highest() + 1, generation) {
                    Ok(found) => step("reads the log", self.with(it, Writer::Read(found))),
                    // The missing entries were flushed meanwhile, as a newer manifest records.
                    Err(_) if self.covered > covered => {
                        step("looks again", self.with(it, Writer::Idle));
                    }
                    Err(promise) => step("finds damage", self.clone().breaking(promise)),
                }
            }
            Writer::Read(found) => step("claims", self.claimed(it, found)),
            Writer::Claimed(claim) => {
                let floor = if mutant == "B2" { 0 } else { claim.covered };
                let next = self.highest().max(floor) + 1;
                step("lists", self.with(it, Writer::Listed { claim, next }));
            }
            Writer::Listed { .. } if self.epoch > self.epochs[it] => {
                step("is fenced before its sentinel", self.ended(it));
            }
            Writer::Listed { claim, next } => {
                step("checks its epoch", self.with(it, Writer::Checked { claim, next }));
            }
            Writer::Checked { claim, next } => self.fence_steps(it, claim, next, mutant, steps),
            Writer::Fenced { claim, sentinel } => {
                if mutant != "B7" && self.at(sentinel) != Slot::Sentinel(self.epochs[it]) {
                    // Its answer was lost. A sentinel that still stands there would be recognised.
                    let again = Writer::Checked { claim, next: sentinel };
                    step("puts its sentinel again", self.with(it, again));
                }
                match self.replayed(claim, sentinel, mutant) {
                    Ok(found) => {
                        step("replays", self.with(it, Writer::Replayed { sentinel, found }));
                    }
                    // A later claim explains any state of the log.
                    Err(_) if self.epoch > self.epochs[it] => {
                        step("is fenced while it replays", self.ended(it));
                    }
                    Err(promise) => step("finds damage", self.clone().breaking(promise)),
                }
            }
            Writer::Replayed { .. } if self.epoch > self.epochs[it] && mutant != "H1" => {
                step("is fenced behind its sentinel", self.ended(it));
            }
            Writer::Replayed { sentinel, found } => {
                step("opens", self.opened(it, sentinel, found, mutant));
            }
            Writer::Open(_) | Writer::Dead => {}
        }
    }

    fn claimed(&self, it: usize, read: Recovered) -> Self {
        let claim = Claim { covered: self.covered, generation: self.generation, read };
        let mut claimed = self.with(it, Writer::Claimed(claim));
        claimed.epoch += 1;
        claimed.epochs[it] = claimed.epoch;
        claimed
    }

    /// Puts the sentinel into the first free slot from `at` on.
    fn fence_steps(
        &self,
        it: usize,
        claim: Claim,
        at: u8,
        mutant: &'static str,
        steps: &mut Vec<Step>,
    ) {
        let own = self.epochs[it];
        let mut step = |does, next: Self| steps.push(Step { who: it, does, next: Box::new(next) });
        let fenced = self.with(it, Writer::Fenced { claim, sentinel: at });
        let moved = || self.with(it, Writer::Checked { claim, next: at + 1 });
        match self.at(at) {
            _ if mutant == "B7" => step("goes on", fenced),
            Slot::Free => {
                let mut fenced = fenced;
                fenced.put(at, Slot::Sentinel(own));
                step("puts its sentinel", fenced);
                if mutant == "L1" {
                    step("meets a conflict and goes on", moved());
                }
            }
            Slot::Sentinel(epoch) | Slot::Data { epoch, .. } if epoch > own => {
                step("meets a successor", self.ended(it));
            }
            _ => step("meets an entry", moved()),
        }
    }

    /// What the open has read, brought to the manifest of its claim and up to its own sentinel.
    fn replayed(&self, claim: Claim, sentinel: u8, mutant: &str) -> Result<Recovered, Promise> {
        if mutant == "B12" {
            return self.read(Recovered::default(), sentinel, 0);
        }
        let found = claim.read.without_flushed(claim.generation, claim.covered);
        match mutant {
            // The end that was found before the claim is not where the log ends behind it.
            "B4" => Ok(found),
            "B4-behind" => self.read(found, self.highest() + 1, claim.generation),
            _ => self.read(found, sentinel, claim.generation),
        }
    }

    fn opened(&self, it: usize, sentinel: u8, found: Recovered, mutant: &str) -> Self {
        let next = if mutant == "B7" { sentinel } else { sentinel + 1 };
        let generation = if found.newest.writes == 0 { self.generation } else { found.generation };
        let (frozen, active) = (found.older, found.newest);
        let open = Open { next, generation, frozen, active, ..Open::default() };
        let mut opened = self.with(it, Writer::Open(open));
        let tables = self.base | self.flushed;
        opened.found[it] = Some(tables | found.writes());
        if found.writes() & tables != 0 { opened.breaking(Promise::P6) } else { opened }
    }
}
