//! What must be true of a shard, kept outside of everything that can fail.
//!
//! Owns: every put and the answer to its caller; the log of the shard as any reader ever saw it.
//! Does not own: which actor looks, or when.
//!
//! A shard is one sequence of puts. Every reader of storage sees a prefix of it, and a later look
//! sees no less: that is P1, P2 and P5 of the guarantees. A put stands in it whole (P3), once,
//! behind all that its writer had acknowledged when it was called. Puts with the same transaction id
//! are attempts of one write: at most one of them stands in it.
//!
//! The row of a key is the fold of its events in this sequence, by the rule of the life.

use std::collections::{BTreeMap, VecDeque};

use crate::rows::{self, PutId, Row, Table, empty};
use crate::rules::Rule;

/// The text of a rule that was broken.
pub type Verdict = Result<(), String>;

/// A transaction id: the number of an application and its version.
pub type Version = (usize, i64);

#[derive(Debug)]
struct Put {
    process: u32,
    epoch: u64,
    rows: Vec<Row>,
    /// The first attempt of the same write; the put itself where it is the first.
    first: PutId,
    /// How many attempts there are. Kept in the first one.
    attempts: usize,
    /// Puts of its process that were acknowledged when it was called.
    acked_before: usize,
    refused: bool,
    durable: bool,
    /// The place in the log of the attempt that stands there, once a reader has seen it. Kept in the
    /// first attempt.
    at: Option<usize>,
}

/// Puts that must be somewhere from now on, in the order in which that became so.
#[derive(Debug)]
struct Owed {
    puts: VecDeque<(u64, PutId)>,
    total: u64,
}

impl Owed {
    const fn new() -> Self {
        Self { puts: VecDeque::new(), total: 0 }
    }

    fn add(&mut self, id: PutId) {
        self.total += 1;
        self.puts.push_back((self.total, id));
    }
}

/// What a look that starts now must at least see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Floor {
    log: usize,
    durable: u64,
    flushed: u64,
    flushed_puts: usize,
}

/// What a reader saw: all puts in their order, and how many of them in flushed SSTables.
#[derive(Debug)]
pub struct Seen {
    /// The puts.
    pub puts: Vec<PutId>,
    /// How many of them are flushed.
    pub flushed: usize,
}

/// The model of one shard.
#[derive(Debug)]
pub struct Oracle {
    rule: Rule,
    puts: Vec<Put>,
    /// The first attempt of each write with a transaction id.
    versions: BTreeMap<Version, PutId>,
    log: Vec<PutId>,
    acked: BTreeMap<u32, Vec<PutId>>,
    /// How many of these, from the first on, are known to be in the log.
    acked_in_log: BTreeMap<u32, usize>,
    /// Puts that the writer of an epoch found when it opened.
    opened: BTreeMap<u64, usize>,
    durable: Owed,
    flushed: Owed,
    flushed_puts: usize,
    lives: BTreeMap<u32, Vec<PutId>>,
}

impl Oracle {
    /// The model of a shard without puts, in a table with this rule.
    pub const fn new(rule: Rule) -> Self {
        Self {
            rule,
            puts: Vec::new(),
            versions: BTreeMap::new(),
            log: Vec::new(),
            acked: BTreeMap::new(),
            acked_in_log: BTreeMap::new(),
            opened: BTreeMap::new(),
            durable: Owed::new(),
            flushed: Owed::new(),
            flushed_puts: 0,
            lives: BTreeMap::new(),
        }
    }

    /// A put is about to be called; `rows` makes its rows from its number.
    pub fn call(
        &mut self,
        process: u32,
        epoch: u64,
        version: Option<Version>,
        rows: impl FnOnce(PutId) -> Vec<Row>,
    ) -> PutId {
        let id = PutId::try_from(self.puts.len()).unwrap_or(PutId::MAX);
        let acked_before = self.acked_of(process);
        let rows = rows(id);
        let first = version.map_or(id, |version| *self.versions.entry(version).or_insert(id));
        self.puts.push(Put {
            process,
            epoch,
            rows,
            first,
            attempts: 0,
            acked_before,
            refused: false,
            durable: false,
            at: None,
        });
        self.puts[first as usize].attempts += 1;
        id
    }

    /// Whether a put of this number was ever called.
    pub fn knows(&self, id: PutId) -> bool {
        (id as usize) < self.puts.len()
    }

    /// How many puts so far were attempts of the write of this put.
    pub fn attempts(&self, id: PutId) -> usize {
        self.puts[self.puts[id as usize].first as usize].attempts
    }

    /// The place in the log of this put, or of another attempt of the same write.
    fn at(&self, id: PutId) -> Option<usize> {
        self.puts[self.puts[id as usize].first as usize].at
    }

    /// The rows of a put.
    pub fn rows(&self, id: PutId) -> &[Row] {
        &self.puts[id as usize].rows
    }

    /// How many puts of a process were acknowledged so far.
    pub fn acked_of(&self, process: u32) -> usize {
        self.acked.get(&process).map_or(0, Vec::len)
    }

    /// A put was answered with success.
    ///
    /// # Errors
    /// P4: it was durable, a successor had opened before, and did not find it.
    pub fn acknowledged(&mut self, id: PutId, durable: bool) -> Verdict {
        let (process, epoch) = (self.puts[id as usize].process, self.puts[id as usize].epoch);
        self.acked.entry(process).or_default().push(id);
        if !durable {
            return Ok(());
        }
        self.owe(id);
        let successor = self.opened.range(epoch + 1..).next();
        let at = self.at(id);
        match successor {
            Some((newer, found)) if at.is_none_or(|at| at >= *found) => Err(format!(
                "P4: put {id} of epoch {epoch} is acknowledged, but epoch {newer} opened without it"
            )),
            _ => Ok(()),
        }
    }

    fn owe(&mut self, id: PutId) {
        let put = &mut self.puts[id as usize];
        if !put.durable {
            put.durable = true;
            self.durable.add(id);
        }
    }

    /// A put was refused before anything was written.
    pub fn refused(&mut self, id: PutId) {
        self.puts[id as usize].refused = true;
    }

    /// The first `acked` puts that a process acknowledged are durable, and `flushed` if so.
    pub fn settled(&mut self, process: u32, acked: usize, flushed: bool) {
        let ids = self.acked.get(&process).map_or(Vec::new(), |ids| ids[..acked].to_vec());
        for id in ids {
            self.owe(id);
            if flushed && self.at(id).is_none_or(|at| at >= self.flushed_puts) {
                self.flushed.add(id);
            }
        }
    }

    /// What a look that starts now must see.
    pub fn floor(&self) -> Floor {
        Floor {
            log: self.log.len(),
            durable: self.durable.total,
            flushed: self.flushed.total,
            flushed_puts: self.flushed_puts,
        }
    }

    /// A reader saw the stored shard.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn stored(&mut self, seen: &Seen, floor: &Floor) -> Verdict {
        self.extend(&seen.puts)?;
        if seen.puts.len() < floor.log {
            let missing = self.log[seen.puts.len()];
            return Err(format!("P5: put {missing} was seen before and is not there any more"));
        }
        let length = seen.puts.len();
        let check = |owed: &Owed, until: u64, end: usize| {
            let mut due = owed.puts.iter().take_while(|(number, _)| *number <= until);
            let is_lost = |id: PutId| self.at(id).is_none_or(|at| at >= end);
            due.find(|(_, id)| is_lost(*id)).map(|(_, id)| *id)
        };
        if let Some(id) = check(&self.durable, floor.durable, length) {
            return Err(format!("P1: put {id} was acknowledged as durable and is not there"));
        }
        if let Some(id) = check(&self.flushed, floor.flushed, seen.flushed) {
            return Err(format!("P6: put {id} was flushed and is in no SSTable"));
        }
        if seen.flushed < floor.flushed_puts {
            return Err("P6: runs hold less than before".to_owned());
        }
        self.flushed_puts = self.flushed_puts.max(seen.flushed);
        self.forget_paid();
        Ok(())
    }

    fn forget_paid(&mut self) {
        let (puts, flushed) = (&self.puts, self.flushed_puts);
        let at = |id: PutId| puts[puts[id as usize].first as usize].at;
        self.durable.puts.retain(|(_, id)| at(*id).is_none());
        self.flushed.puts.retain(|(_, id)| at(*id).is_none_or(|at| at >= flushed));
    }

    /// The writer of `epoch` opened and found `seen`.
    ///
    /// # Errors
    /// As [`Self::stored`]; and where an earlier epoch's acknowledged put is not there.
    pub fn opened(&mut self, epoch: u64, seen: &Seen, floor: &Floor) -> Verdict {
        self.stored(seen, floor)?;
        let length = seen.puts.len();
        let earlier = |id: PutId| self.puts[id as usize].epoch < epoch;
        if let Some(late) = seen.puts.iter().find(|id| !earlier(**id)) {
            return Err(format!("epoch {epoch} opened with put {late} of a later epoch"));
        }
        if self.log.partition_point(|id| earlier(*id)) > length {
            return Err(format!("P4: epoch {epoch} opened without put {}", self.log[length]));
        }
        let mut owed = self.durable.puts.iter().map(|(_, id)| *id);
        if let Some(id) = owed.find(|id| earlier(*id)) {
            return Err(format!("P1: epoch {epoch} opened without the acknowledged put {id}"));
        }
        self.opened.insert(epoch, length);
        Ok(())
    }

    /// A running job shows `seen` to readers of its process, which had `acked` answers before.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn live(&mut self, process: u32, epoch: u64, seen: &[PutId], acked: usize) -> Verdict {
        let opened = self.opened.get(&epoch).copied().unwrap_or_default();
        if seen.len() < opened {
            return Err(format!("P5: epoch {epoch} shows less than it found when it opened"));
        }
        let own = |id: &PutId| self.puts[*id as usize].process == process;
        if let Some(foreign) = seen[opened..].iter().find(|id| !own(id)) {
            return Err(format!("epoch {epoch} shows put {foreign} of another process"));
        }
        let known = self.log.partition_point(|id| self.puts[*id as usize].epoch <= epoch);
        agree(&self.log[..known], seen)?;
        let before = self.lives.entry(process).or_default();
        if before.len() > seen.len() {
            return Err(format!("P5: a job showed put {} and does no more", before[seen.len()]));
        }
        agree(before, seen)?;
        *before = seen.to_vec();
        let mut there = vec![false; self.puts.len()];
        let first = |id: PutId| self.puts[id as usize].first as usize;
        for id in seen {
            if std::mem::replace(&mut there[first(*id)], true) {
                return Err(format!("P2: a job shows put {id}, and another put of the same write"));
            }
        }
        let acked = self.acked.get(&process).map_or(&[][..], |ids| &ids[..acked]);
        match acked.iter().find(|id| !there[first(**id)]) {
            Some(id) => Err(format!("put {id} is acknowledged and its own job does not show it")),
            None => Ok(()),
        }
    }

    /// The table after the puts of `seen`.
    pub fn table(&self, seen: &[PutId]) -> Table {
        let mut table = empty();
        for (key, event) in seen.iter().flat_map(|id| self.rows(*id)) {
            if let Some(place) = rows::place(*key) {
                table[place] = self.rule.next(table[place], event);
            }
        }
        table
    }

    fn extend(&mut self, seen: &[PutId]) -> Verdict {
        agree(&self.log, seen)?;
        for id in seen.iter().skip(self.log.len()) {
            self.place(*id)?;
        }
        Ok(())
    }

    fn place(&mut self, id: PutId) -> Verdict {
        let newest = self.log.last().map_or(0, |id| self.puts[*id as usize].epoch);
        let put = &self.puts[id as usize];
        if let Some(at) = self.at(id) {
            let (first, here) = (self.log[at], self.log.len());
            return Err(format!(
                "P2: put {id} is in the log at {here}, and at {at} put {first} of the same write"
            ));
        }
        if put.refused {
            return Err(format!("put {id} was refused and is in the log all the same"));
        }
        if put.epoch < newest {
            return Err(format!("put {id} of epoch {} stands behind epoch {newest}", put.epoch));
        }
        let checked = self.acked_in_log.entry(put.process).or_default();
        let acked = self.acked.get(&put.process).map_or(&[][..], Vec::as_slice);
        while *checked < put.acked_before {
            let before = acked[*checked];
            if self.puts[self.puts[before as usize].first as usize].at.is_none() {
                return Err(format!("P2: put {id} is in the log without put {before} before it"));
            }
            *checked += 1;
        }
        let first = self.puts[id as usize].first;
        self.puts[first as usize].at = Some(self.log.len());
        self.log.push(id);
        Ok(())
    }
}

/// One of two logs must begin with the other.
fn agree(left: &[PutId], right: &[PutId]) -> Verdict {
    match left.iter().zip(right).position(|(left, right)| left != right) {
        None => Ok(()),
        Some(at) => Err(format!("P2: put {} stands where put {} stood", right[at], left[at])),
    }
}
