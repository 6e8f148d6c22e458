//! The log of the machine, and the one way in which it is read.
//!
//! Owns: slots, and MemTables rebuilt from them: nothing missing, nothing out of its order.
//! Does not own: which actor reads, from where to where, or what becomes of an error.

use super::state::{MemTable, Promise, State, bit};

/// A position of the log. An entry names its writer's epoch and the generation of its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    #[default]
    Free,
    Sentinel(u8),
    Data {
        epoch: u8,
        generation: u8,
        write: u8,
    },
}

/// The MemTables that a part of the log gives: at most two, as at most one is frozen at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Recovered {
    /// The last position that was read, and its epoch.
    pub last: u8,
    pub epoch: u8,
    pub older: MemTable,
    pub newest: MemTable,
    /// Of the newest, where there is one.
    pub generation: u8,
}

impl Recovered {
    /// Nothing is read yet, and the entries that `covered` covers will be skipped.
    pub fn behind(covered: u8) -> Self {
        Self { last: covered, ..Self::default() }
    }

    pub const fn writes(&self) -> u16 {
        self.older.writes | self.newest.writes
    }

    /// Forgets generations below `current`, and skips the other entries that `covered` covers:
    /// their rows are in SSTables.
    pub fn without_flushed(mut self, current: u8, covered: u8) -> Self {
        if self.generation <= current {
            self.older = MemTable::default();
        }
        if self.generation < current {
            self.newest = MemTable::default();
            self.generation = 0;
        }
        self.last = self.last.max(covered);
        self
    }

    fn add(&mut self, position: u8, generation: u8, write: u8) -> Result<(), Promise> {
        if self.writes() & bit(write) != 0 {
            return Err(Promise::P6);
        }
        if self.newest.writes != 0 && generation != self.generation {
            // There is no third generation: the oldest is flushed before another is frozen.
            if generation < self.generation || self.older.writes != 0 {
                return Err(Promise::P2);
            }
            self.older = std::mem::take(&mut self.newest);
        }
        self.generation = generation;
        self.newest.writes |= bit(write);
        self.newest.last = position;
        Ok(())
    }
}

impl State {
    pub(super) fn at(&self, position: u8) -> Slot {
        self.log.get(position as usize - 1).copied().unwrap_or_default()
    }

    pub(super) fn put(&mut self, position: u8, slot: Slot) {
        if let Some(free) = self.log.get_mut(position as usize - 1) {
            *free = slot;
        }
    }

    pub(super) fn highest(&self) -> u8 {
        let last = self.log.iter().rposition(|slot| *slot != Slot::Free);
        last.map_or(0, |last| u8::try_from(last + 1).unwrap_or(u8::MAX))
    }

    /// Adds what stands behind `found` and before `end`; generations below `current` are flushed.
    ///
    /// # Errors
    /// What the reader would report: something is missing, twice there or out of its order.
    pub(super) fn read(
        &self,
        mut found: Recovered,
        end: u8,
        current: u8,
    ) -> Result<Recovered, Promise> {
        for position in found.last + 1..end {
            let epoch = match self.at(position) {
                Slot::Free => return Err(Promise::P7),
                Slot::Sentinel(epoch) => epoch,
                Slot::Data { epoch, generation, write } => {
                    if generation >= current {
                        found.add(position, generation, write)?;
                    }
                    epoch
                }
            };
            if epoch < found.epoch {
                return Err(Promise::P2);
            }
            (found.epoch, found.last) = (epoch, position);
        }
        Ok(found)
    }
}
