//! The protocol of one shard as a small machine, of which every reachable state is visited.
//!
//! Owns: claim, sentinel, replay, append, freeze, flush, collect and compact as atomic steps.
//! Does not own: the code that takes those steps; `life` runs it, on a sample of its orders.
//!
//! A step is what storage makes atomic: one put-if-absent, one listing, one swap of the manifest.
//! A put may land at any later time, and whoever takes no further step has crashed, so neither
//! needs a step of its own. Writes are bits of a set.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Writers, each with one claim; later ones get higher epochs in the order of their claims.
pub const WRITERS: usize = 3;
/// Collectors, which remove what is covered.
pub const COLLECTORS: usize = 2;
/// Room for every sentinel and every write of three writers.
const SLOTS: usize = WRITERS + WRITERS * MOST_WRITES;
const MOST_WRITES: usize = 3;

type Writes = u16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Slot {
    #[default]
    Free,
    Sentinel(u8),
    Data {
        epoch: u8,
        write: u8,
    },
}

/// A MemTable: its writes and the position of its newest entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct MemTable {
    writes: Writes,
    last: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Open {
    next: u8,
    done: u8,
    /// A write that stands in the log and whose answer has not arrived.
    sent: bool,
    frozen: MemTable,
    active: MemTable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Writer {
    #[default]
    Idle,
    Claimed {
        covered: u8,
    },
    Listed {
        covered: u8,
        next: u8,
    },
    Checked {
        covered: u8,
        next: u8,
    },
    Fenced {
        covered: u8,
        sentinel: u8,
    },
    Replayed {
        sentinel: u8,
        found: MemTable,
    },
    Open(Open),
    Dead,
}

/// Everything that the steps read and change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    log: [Slot; SLOTS],
    epoch: u8,
    covered: u8,
    flushed: Writes,
    base: Writes,
    writers: [Writer; WRITERS],
    epochs: [u8; WRITERS],
    /// What each writer found when it opened, with the tables below it.
    found: [Option<Writes>; WRITERS],
    collectors: [u8; COLLECTORS],
    compacting: Option<Writes>,
    acked: Writes,
}

/// How large the machine is, and which bug is in it.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Writes of each writer, at most 3.
    pub writes: u8,
    /// A bug of the catalogue, or nothing.
    pub mutant: &'static str,
    /// Give up after so many states.
    pub states: usize,
}

/// What a walk over all states has found.
#[derive(Debug)]
pub struct Walk {
    /// States that were visited.
    pub states: usize,
    /// The rule that a state broke, with that state.
    pub broken: Option<String>,
    /// Whether every reachable state was visited.
    pub complete: bool,
}

/// Visits every state.
#[must_use]
pub fn walk(bounds: Bounds) -> Walk {
    let mut visited: HashSet<u64> = HashSet::new();
    let mut stack = vec![State::default()];
    let fingerprint = |state: &State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    visited.insert(fingerprint(&stack[0]));
    let mut next = Vec::new();
    while let Some(state) = stack.pop() {
        next.clear();
        if let Err(reason) = state.steps(bounds, &mut next) {
            let broken = Some(format!("{reason}\n{state:#?}"));
            return Walk { states: visited.len(), broken, complete: false };
        }
        for state in next.drain(..) {
            if let Err(reason) = state.check() {
                let broken = Some(format!("{reason}\n{state:#?}"));
                return Walk { states: visited.len(), broken, complete: false };
            }
            if visited.insert(fingerprint(&state)) {
                stack.push(state);
            }
        }
        if visited.len() > bounds.states {
            return Walk { states: visited.len(), broken: None, complete: false };
        }
    }
    Walk { states: visited.len(), broken: None, complete: true }
}

const fn bit(write: u8) -> Writes {
    1 << write
}

impl State {
    fn at(&self, position: u8) -> Slot {
        self.log.get(position as usize - 1).copied().unwrap_or_default()
    }

    fn highest(&self) -> u8 {
        let last = self.log.iter().rposition(|slot| *slot != Slot::Free);
        last.map_or(0, |last| u8::try_from(last + 1).unwrap_or(u8::MAX))
    }

    /// Writes that stand behind `covered` and before `end`; nothing where one is missing.
    fn read(&self, covered: u8, end: u8) -> Option<MemTable> {
        let mut found = MemTable::default();
        for position in covered + 1..end {
            match self.at(position) {
                Slot::Free => return None,
                Slot::Sentinel(_) => {}
                Slot::Data { write, .. } => {
                    found.writes |= bit(write);
                    found.last = position;
                }
            }
        }
        Some(found)
    }

    /// What a reader of storage finds at any moment.
    fn check(&self) -> Result<(), String> {
        let Some(tail) = self.read(self.covered, self.highest() + 1) else {
            return Err("P7: there is a hole in the log".to_owned());
        };
        let lost = self.acked & !(self.base | self.flushed | tail.writes);
        if lost != 0 {
            return Err(format!("P1: acknowledged writes {lost:b} are not there"));
        }
        if tail.writes & (self.base | self.flushed) != 0 {
            return Err("P6: a write is in a run and in the log behind it".to_owned());
        }
        let mut newest = 0;
        for position in self.covered + 1..=self.highest() {
            if let Slot::Sentinel(epoch) | Slot::Data { epoch, .. } = self.at(position) {
                if epoch < newest {
                    return Err(format!("P2: epoch {epoch} stands behind epoch {newest}"));
                }
                newest = epoch;
            }
        }
        Ok(())
    }

    fn steps(&self, bounds: Bounds, next: &mut Vec<Self>) -> Result<(), String> {
        for writer in 0..WRITERS {
            self.writer_steps(writer, bounds, next)?;
        }
        for collector in 0..COLLECTORS {
            self.collector_steps(collector, bounds, next);
        }
        self.compactor_steps(bounds, next);
        Ok(())
    }

    fn with(&self, writer: usize, state: Writer) -> Self {
        let mut next = self.clone();
        next.writers[writer] = state;
        next
    }

    fn writer_steps(&self, it: usize, bounds: Bounds, next: &mut Vec<Self>) -> Result<(), String> {
        let (own, mutant) = (self.epochs[it], bounds.mutant);
        let alive =
            |state: Writer| self.with(it, if self.epoch > own { Writer::Dead } else { state });
        match self.writers[it] {
            Writer::Dead => {}
            Writer::Idle => {
                let mut claimed = self.with(it, Writer::Claimed { covered: self.covered });
                claimed.epoch += 1;
                claimed.epochs[it] = claimed.epoch;
                next.push(claimed);
            }
            Writer::Claimed { covered } => {
                let floor = if mutant == "B2" { 0 } else { covered };
                let last = self.highest().max(floor);
                next.push(self.with(it, Writer::Listed { covered, next: last + 1 }));
            }
            Writer::Listed { covered, next: at } => {
                next.push(alive(Writer::Checked { covered, next: at }));
            }
            Writer::Checked { covered, next: at } if mutant == "B7" => {
                next.push(self.with(it, Writer::Fenced { covered, sentinel: at }));
            }
            Writer::Checked { covered, next: at } => match self.at(at) {
                Slot::Free => {
                    let mut fenced = self.with(it, Writer::Fenced { covered, sentinel: at });
                    fenced.log[at as usize - 1] = Slot::Sentinel(own);
                    next.push(fenced);
                    if mutant == "L1" {
                        next.push(self.with(it, Writer::Checked { covered, next: at + 1 }));
                    }
                }
                Slot::Sentinel(epoch) | Slot::Data { epoch, .. } if epoch > own => {
                    next.push(self.with(it, Writer::Dead));
                }
                _ => next.push(self.with(it, Writer::Checked { covered, next: at + 1 })),
            },
            Writer::Fenced { covered, sentinel } => {
                let from = if mutant == "B12" { 0 } else { covered };
                match self.read(from, sentinel) {
                    Some(found) => next.push(self.with(it, Writer::Replayed { sentinel, found })),
                    // Covered entries that a later owner's collection took explain a hole.
                    None if self.epoch > own || mutant == "B12" => {
                        next.push(self.with(it, Writer::Dead));
                    }
                    None => return Err("P7: a replay meets a hole".to_owned()),
                }
            }
            Writer::Replayed { sentinel, found } => {
                let at = if mutant == "B7" { sentinel } else { sentinel + 1 };
                let open = Open { next: at, active: found, ..Open::default() };
                let mut opened = alive(Writer::Open(open));
                if mutant == "H1" {
                    opened = self.with(it, Writer::Open(open));
                }
                if matches!(opened.writers[it], Writer::Open(_)) {
                    let all = self.base | self.flushed;
                    if found.writes & all != 0 {
                        return Err("P6: a replay brings back what is flushed".to_owned());
                    }
                    opened.found[it] = Some(all | found.writes);
                }
                next.push(opened);
            }
            Writer::Open(open) => return self.open_steps(it, open, bounds, next),
        }
        Ok(())
    }

    fn open_steps(
        &self,
        it: usize,
        open: Open,
        bounds: Bounds,
        next: &mut Vec<Self>,
    ) -> Result<(), String> {
        let own = self.epochs[it];
        let write = u8::try_from(it * MOST_WRITES).unwrap_or(0) + open.done;
        if open.sent {
            self.refuse_late_ack(it, write)?;
            let mut acked = open;
            acked.sent = false;
            acked.done += 1;
            acked.active.writes |= bit(write);
            acked.active.last = open.next;
            acked.next += 1;
            let mut state = self.with(it, Writer::Open(acked));
            state.acked |= bit(write);
            next.push(state);
        } else if open.done < bounds.writes {
            let slot = self.at(open.next);
            if slot == Slot::Free && (open.next as usize) <= SLOTS {
                let mut state = self.with(it, Writer::Open(Open { sent: true, ..open }));
                state.log[open.next as usize - 1] = Slot::Data { epoch: own, write };
                next.push(state);
            } else {
                next.push(self.with(it, Writer::Dead));
            }
        }
        if !open.sent && open.frozen.writes == 0 && open.active.writes != 0 {
            let frozen = Open { frozen: open.active, active: MemTable::default(), ..open };
            next.push(self.with(it, Writer::Open(frozen)));
        }
        if open.frozen.writes != 0 {
            if self.epoch > own {
                next.push(self.with(it, Writer::Dead));
            } else {
                let flushed = Open { frozen: MemTable::default(), ..open };
                let mut state = self.with(it, Writer::Open(flushed));
                state.flushed |= open.frozen.writes;
                let active = open.active.last;
                let last = open.frozen.last;
                let covered = if bounds.mutant == "B3" { last.max(active) } else { last };
                state.covered = state.covered.max(covered);
                next.push(state);
            }
        }
        Ok(())
    }

    /// P4: an acknowledgement that comes after a successor opened, of a write it did not find.
    fn refuse_late_ack(&self, it: usize, write: u8) -> Result<(), String> {
        let own = self.epochs[it];
        for other in 0..WRITERS {
            if self.epochs[other] > own
                && self.found[other].is_some_and(|found| found & bit(write) == 0)
            {
                return Err(format!(
                    "P4: epoch {own} acknowledges after epoch {} opened",
                    self.epochs[other]
                ));
            }
        }
        Ok(())
    }

    /// Sentinels stay: the next position of a writer that was fenced is always one of them.
    fn collector_steps(&self, it: usize, bounds: Bounds, next: &mut Vec<Self>) {
        if self.collectors[it] < self.covered {
            let mut state = self.clone();
            state.collectors[it] = self.covered;
            next.push(state);
        }
        for position in 1..=self.collectors[it] {
            let slot = self.at(position);
            let keeps =
                matches!(slot, Slot::Sentinel(_)) && bounds.mutant != "B1" && bounds.mutant != "B2";
            if slot != Slot::Free && !keeps {
                let mut state = self.clone();
                state.log[position as usize - 1] = Slot::Free;
                next.push(state);
            }
        }
    }

    fn compactor_steps(&self, bounds: Bounds, next: &mut Vec<Self>) {
        match self.compacting {
            None if self.flushed != 0 => {
                let mut state = self.clone();
                state.compacting = Some(self.flushed);
                state.base |= self.flushed;
                next.push(state);
            }
            Some(runs) => {
                let mut state = self.clone();
                state.compacting = None;
                state.flushed &= !runs;
                if bounds.mutant == "B23" {
                    state.epoch += 1;
                }
                next.push(state);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(writes: u8, mutant: &'static str) -> Walk {
        walk(Bounds { writes, mutant, states: 60_000_000 })
    }

    #[test]
    fn no_reachable_state_breaks_a_promise() {
        let walk = states(1, "");
        assert_eq!(walk.broken, None);
        assert!(walk.complete && walk.states > 10_000, "{}", walk.states);
    }

    #[test]
    fn the_model_finds_each_bug_that_is_put_into_it() {
        for mutant in ["B1", "B2", "B3", "B7", "B12", "H1", "L1"] {
            assert!(states(1, mutant).broken.is_some(), "{mutant}");
        }
    }
}
