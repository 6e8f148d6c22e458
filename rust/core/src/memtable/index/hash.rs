//! A key index on a hash table whose entries chain to the row that they superseded.
//!
//! Owns: for every key its newest row, and for every row the previous one of its key.
//! Does not own: key order, which is made by one sort when a flush asks for it; keys that only
//! rise (`monotonic`), which are in order already and need no table.
//!
//! Open addressing, at most half full. A slot is one word, so a reader sees a whole one:
//!
//! ```text
//! | hash of the key, 32 bits | position + 1, 32 bits |     0: free
//! ```
//!
//! A key keeps its slot; a newer row of it replaces the position, after the link from the new
//! row to the old one was published. A reader that is bounded to fewer rows follows the links
//! back. A table that grows is rebuilt beside the old one, so a reader of the old one still finds
//! every row that it may see. Old tables stay until the index is dropped: together they are no
//! larger than the last one. So a reader takes no lock and counts no reference, and readers on
//! different cores do not contend for a cache line.
//!
//! Keys that rise from the first row on stay out of the table. The first one that does not brings
//! all of them into it.

use std::hash::{BuildHasher, Hasher};
#[cfg(not(lancemem_schedules))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

#[cfg(lancemem_schedules)]
use foldhash::fast::FixedState as RandomState;
#[cfg(not(lancemem_schedules))]
use foldhash::fast::RandomState;
#[cfg(lancemem_schedules)]
use shuttle::sync::atomic::AtomicU64;

use super::monotonic::Rising;
use super::{KeyIndex, position};
use crate::memtable::rows::{RowSlot, Rows};

// Small where schedules are tried, so that it grows there.
const FIRST_SLOTS: usize = if cfg!(lancemem_schedules) { 1 << 2 } else { 1 << 10 };
/// No earlier row has this key.
const NONE: u32 = u32::MAX;

/// The entry of one row in the chain of its key.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The row that this one superseded.
    previous: u32,
    /// The row's batch.
    batch: u32,
}

/// The newest row of every key.
#[derive(Debug)]
pub struct HashIndex {
    hasher: RandomState,
    /// Never empty; the last one counts.
    tables: boxcar::Vec<Slots>,
    links: boxcar::Vec<Link>,
    rising: Rising,
}

impl Default for HashIndex {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            tables: boxcar::vec![Slots::new(FIRST_SLOTS)],
            links: boxcar::Vec::new(),
            rising: Rising::default(),
        }
    }
}

/// One table of slots; its size is a power of two.
#[derive(Debug)]
struct Slots {
    slots: Box<[AtomicU64]>,
    /// Hash bits that do not choose the slot.
    shift: u32,
}

impl Slots {
    fn new(size: usize) -> Self {
        let slots = (0..size).map(|_| AtomicU64::new(0)).collect();
        Self { slots, shift: 32 - size.trailing_zeros() }
    }

    /// The slot where `found` accepts the position, or the free one where such a key belongs.
    fn find(&self, hash: u32, mut found: impl FnMut(u32) -> bool) -> (usize, Option<u32>) {
        // Linear probing. At most half of the slots are taken, so the loop meets a free one.
        // A table of one slot would need a shift by all 32 bits; the first table has more slots.
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = self.slots[at].load(Ordering::Acquire);
            if slot == 0 {
                return (at, None);
            }
            let position = low(slot) - 1;
            if high(slot) == hash && found(position) {
                return (at, Some(position));
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn set(&self, at: usize, hash: u32, position: u32) {
        let slot = (u64::from(hash) << 32) | u64::from(position + 1);
        self.slots[at].store(slot, Ordering::Release);
    }

    /// The same keys in twice the space or more.
    fn grown(&self, size: usize) -> Self {
        let larger = Self::new(size);
        for slot in &self.slots {
            let slot = slot.load(Ordering::Relaxed);
            if slot != 0 {
                let (at, _) = larger.find(high(slot), |_| false);
                larger.set(at, high(slot), low(slot) - 1);
            }
        }
        larger
    }
}

impl HashIndex {
    fn hash(&self, key: &[u8]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        high(hasher.finish())
    }

    fn link(&self, row: u32) -> Link {
        let link = self.links.get(row as usize);
        *link.unwrap_or_else(|| unreachable!("row {row} is in a slot, so it has its link"))
    }

    fn key<'a>(&self, rows: &'a Rows, row: u32) -> &'a [u8] {
        let batch = self.link(row).batch as usize;
        rows.key(RowSlot { batch, row: row as usize - rows.get(batch).first_row })
    }

    /// Length of the prefix that all keys share and that sorting may skip: 1 where every key begins
    /// with the tag of a value that is not null, else 0.
    fn shared_first_byte(&self, rows: &Rows, limit: usize) -> usize {
        let first = |row| self.key(rows, row).first().copied();
        let all_the_same = (0..position(limit)).all(|row| first(row) == Some(1));
        usize::from(all_the_same)
    }

    fn slots(&self) -> &Slots {
        let last = self.tables.count() - 1;
        self.tables.get(last).unwrap_or_else(|| unreachable!("table {last} was counted"))
    }

    /// A table in which all rows up to `rows` leave every second slot free.
    fn slots_for(&self, rows: usize) -> &Slots {
        let slots = self.slots();
        if rows * 2 <= slots.slots.len() {
            return slots;
        }
        self.tables.push(slots.grown((rows * 2).next_power_of_two()));
        self.slots()
    }

    fn insert_hashed(&self, rows: &Rows, batch: usize) {
        let placed = rows.get(batch);
        let Some(keys) = placed.keys.get() else { return };
        let slots = self.slots_for(placed.end());
        let batch = position(batch);
        for (offset, key) in keys.iter().enumerate() {
            let hash = self.hash(key);
            let row = position(placed.first_row + offset);
            let (at, previous) = slots.find(hash, |earlier| self.key(rows, earlier) == key);
            self.links.push(Link { previous: previous.unwrap_or(NONE), batch });
            if mutant!("B20") && previous.is_some() {
                slots.slots[at].store(0, Ordering::Release);
                std::thread::yield_now();
            }
            slots.set(at, hash, row);
        }
    }
}

impl KeyIndex for HashIndex {
    fn insert(&self, rows: &Rows, batch: usize) {
        if self.rising.goes_on(rows, batch) {
            return;
        }
        if self.rising.has_ended() {
            self.insert_hashed(rows, batch);
            return;
        }
        self.slots_for(rows.get(batch).end());
        (0..=batch).for_each(|batch| self.insert_hashed(rows, batch));
        self.rising.end();
    }

    fn newest(&self, rows: &Rows, key: &[u8], limit: usize) -> Option<u32> {
        if !self.rising.has_ended() {
            return self.rising.find(rows, key, limit);
        }
        let slots = self.slots();
        let (_, newest) = slots.find(self.hash(key), |row| self.key(rows, row) == key);
        let mut row = newest?;
        while row as usize >= limit {
            row = self.link(row).previous;
            if row == NONE {
                return None;
            }
        }
        Some(row)
    }

    fn versions(&self, rows: &Rows, key: &[u8], limit: usize, visit: &mut dyn FnMut(u32)) {
        let Some(mut row) = self.newest(rows, key, limit) else { return };
        visit(row);
        // Keys that rise have one row each, and no links.
        while self.rising.has_ended() {
            row = self.link(row).previous;
            if row == NONE {
                return;
            }
            visit(row);
        }
    }

    fn superseded(&self, _rows: &Rows, limit: usize, visit: &mut dyn FnMut(u32)) {
        if !self.rising.has_ended() {
            return;
        }
        for (_, link) in self.links.iter().take(limit) {
            if link.previous != NONE {
                visit(link.previous);
            }
        }
    }

    fn rows_by_key(&self, rows: &Rows, limit: usize) -> Vec<u32> {
        if !self.rising.has_ended() {
            return (0..position(limit)).collect();
        }
        let skip = self.shared_first_byte(rows, limit);
        // One number a row sorts without a branch: the start of the key, then the position.
        let word = |row| (u128::from(prefix(self.key(rows, row), skip)) << 32) | u128::from(row);
        let mut words: Vec<u128> = (0..position(limit)).map(word).collect();
        words.sort_unstable();
        let mut sorted: Vec<u32> = words.iter().map(|word| low_row(*word)).collect();
        let mut start = 0;
        for same in words.chunk_by(|left, right| left >> 32 == right >> 32) {
            let end = start + same.len();
            sorted[start..end]
                .sort_by(|left, right| self.key(rows, *left).cmp(self.key(rows, *right)));
            start = end;
        }
        sorted
    }
}

/// Eight bytes of a key behind the first `skip` as a number of the same order.
fn prefix(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; 8];
    let rest = &key[skip..];
    let length = rest.len().min(8);
    bytes[..length].copy_from_slice(&rest[..length]);
    u64::from_be_bytes(bytes)
}

const fn low_row(word: u128) -> u32 {
    (word & 0xffff_ffff) as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}
