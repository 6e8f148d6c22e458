//! The state that the steps read and change, and the states that break a promise.
//!
//! Owns: the state of storage and of every actor, in its smallest form.
//! Does not own: how the log is read (`log`), or the steps.

use super::log::{Recovered, Slot};
use super::{Protocol, Step};

/// Most writers, each with one claim; later ones get higher epochs in the order of their claims.
pub(super) const MAX_WRITERS: usize = 4;
/// Most writes of each of them.
pub(super) const MAX_WRITES: usize = 3;
/// Room for every sentinel and every write of all writers.
pub(super) const SLOTS: usize = MAX_WRITERS + MAX_WRITERS * MAX_WRITES;

pub(super) type Writes = u16;

pub(super) const fn bit(write: u8) -> Writes {
    1 << write
}

/// The write that a writer makes after so many others.
pub(super) fn write_of(writer: usize, count: u8) -> u8 {
    u8::try_from(writer * MAX_WRITES).unwrap_or(u8::MAX) + count
}

/// Whether a writer's writes among those are all up to one of them.
fn is_prefix(writer: usize, writes: Writes) -> bool {
    let all = bit(write_of(1, 0)) - 1;
    let those = writes >> write_of(writer, 0) & all;
    those & (those + 1) == 0
}

/// A MemTable: its writes and the position of its newest entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct MemTable {
    pub writes: Writes,
    pub last: u8,
}

/// What a claim is based on: the manifest that it made, and what the open has read before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub covered: u8,
    pub generation: u8,
    pub read: Recovered,
}

/// A writer that has opened the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub next: u8,
    /// Writes in a MemTable, and the subset that the writer knows to be in the log.
    pub placed: u8,
    pub done: u8,
    /// The next write stands in the log, and its answer has not arrived.
    pub sent: bool,
    /// Asked for the manifest before the append (only with the bug B1-early).
    pub asked: bool,
    /// Of the active MemTable; the frozen one has the generation before.
    pub generation: u8,
    pub frozen: MemTable,
    pub active: MemTable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    #[default]
    Idle,
    /// It has the manifest from which its first read of the log starts.
    Looked {
        covered: u8,
        generation: u8,
    },
    Read(Recovered),
    Claimed(Claim),
    Listed {
        claim: Claim,
        next: u8,
    },
    Checked {
        claim: Claim,
        next: u8,
    },
    Fenced {
        claim: Claim,
        sentinel: u8,
    },
    Replayed {
        sentinel: u8,
        found: Recovered,
    },
    Open(Open),
    Dead,
}

/// Everything that the steps read and change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) log: [Slot; SLOTS],
    /// The manifest: its owner, the generation that is flushed next, the last entry of the
    /// generations before it.
    pub(super) epoch: u8,
    pub(super) generation: u8,
    pub(super) covered: u8,
    pub(super) flushed: Writes,
    pub(super) base: Writes,
    pub(super) writers: [Writer; MAX_WRITERS],
    pub(super) epochs: [u8; MAX_WRITERS],
    /// What each writer found when it opened, with the tables below it.
    pub(super) found: [Option<Writes>; MAX_WRITERS],
    /// The position that the slow collector is about to remove; 0 where there is no such position.
    pub(super) removing: u8,
    pub(super) compacting: Option<Writes>,
    pub(super) acked: Writes,
    /// Writers that slept longer than the sentinel that fenced them stood.
    pub(super) stale: [bool; MAX_WRITERS],
    /// A promise that a step broke without a trace in the state.
    pub(super) broken: Option<Promise>,
}

/// The promises of docs/guarantees.md that the machine can break, and one more: no writer ends
/// unless another claimed the shard after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Promise {
    P1,
    P2,
    P4,
    P6,
    P7,
    Cause,
}

impl Promise {
    pub const fn text(self) -> &'static str {
        match self {
            Self::P1 => "P1: what was acknowledged is there",
            Self::P2 => "P2: the first writes of each writer, in the order of epochs",
            Self::P4 => "P4: no answer after a successor opened",
            Self::P6 => "P6: nothing is there twice",
            Self::P7 => "P7: the log has no hole",
            Self::Cause => "no writer ends unless another one claimed",
        }
    }
}

impl State {
    /// What a reader of storage, or of the job that has the shard, finds at any moment.
    pub(super) fn breaks(&self) -> Option<Promise> {
        if self.broken.is_some() {
            return self.broken;
        }
        let behind = Recovered::behind(self.covered);
        let tail = match self.read(behind, self.highest() + 1, self.generation) {
            Ok(tail) => tail.writes(),
            Err(promise) => return Some(promise),
        };
        let tables = self.base | self.flushed;
        if self.acked & !(tables | tail) != 0 {
            return Some(Promise::P1);
        }
        if tail & tables != 0 {
            return Some(Promise::P6);
        }
        if !(0..MAX_WRITERS).all(|writer| is_prefix(writer, tables | tail)) {
            return Some(Promise::P2);
        }
        let shown = self.shown_by_owner()?;
        (self.acked & !(tables | shown) != 0).then_some(Promise::P1)
    }

    /// What stands in the MemTables of the job that has the shard.
    fn shown_by_owner(&self) -> Option<Writes> {
        let newest = self.epochs.iter().max();
        let owner = self.epochs.iter().position(|epoch| Some(epoch) == newest)?;
        match self.writers[owner] {
            Writer::Open(open) => Some(open.frozen.writes | open.active.writes),
            _ => None,
        }
    }

    pub(super) fn breaking(mut self, promise: Promise) -> Self {
        self.broken.get_or_insert(promise);
        self
    }

    pub(super) fn with(&self, writer: usize, state: Writer) -> Self {
        let mut next = self.clone();
        next.writers[writer] = state;
        next
    }

    /// The same, where that writer stops for good. A claim that came after its own is the only
    /// cause.
    pub(super) fn ended(&self, writer: usize) -> Self {
        let mut next = self.with(writer, Writer::Dead);
        next.stale[writer] = false;
        if self.is_succeeded(writer) { next } else { next.breaking(Promise::Cause) }
    }

    /// Whether another writer claimed after that writer.
    pub(super) fn is_succeeded(&self, writer: usize) -> bool {
        self.epochs.iter().any(|epoch| *epoch > self.epochs[writer])
    }

    pub(super) fn writer_steps(&self, it: usize, protocol: Protocol, steps: &mut Vec<Step>) {
        match self.writers[it] {
            Writer::Dead => {}
            Writer::Open(open) => self.owner_steps(it, open, protocol, steps),
            _ => self.claim_steps(it, protocol, steps),
        }
    }
}
