//! The steps of a writer that owns the shard, or has not noticed its loss: place, append,
//! acknowledge, freeze, flush.
//!
//! Owns: what becomes of an answer that is lost, and which rows an acknowledgement waits for.
//! Does not own: how the writer got the shard, or which writer takes it.

use super::log::Slot;
use super::state::{MAX_WRITERS, MemTable, Open, Promise, SLOTS, State, Writer, bit, write_of};
use super::{Protocol, Step};

impl State {
    pub(super) fn owner_steps(
        &self,
        it: usize,
        open: Open,
        protocol: Protocol,
        steps: &mut Vec<Step>,
    ) {
        if open.sent {
            self.sent_steps(it, open, protocol.mutant, steps);
        } else {
            self.append_steps(it, open, protocol, steps);
        }
        self.memory_steps(it, open, protocol, steps);
    }

    fn append_steps(&self, it: usize, open: Open, protocol: Protocol, steps: &mut Vec<Step>) {
        let mutant = protocol.mutant;
        let mut step = |does, next: Self| steps.push(Step { who: it, does, next: Box::new(next) });
        let mut open = open;
        if protocol.queued == 0 && open.placed < protocol.writes {
            place(it, &mut open);
        }
        if open.placed == open.done {
            return;
        }
        if mutant == "B1-early" && !open.asked {
            let asked = Writer::Open(Open { asked: true, ..open });
            step("asks", if self.stale[it] { self.ended(it) } else { self.with(it, asked) });
            return;
        }
        if self.at(open.next) != Slot::Free || usize::from(open.next) > SLOTS {
            step("meets a foreign entry", self.ended(it));
            return;
        }
        step("appends", self.sent(it, Open { asked: false, ..open }));
        if mutant == "B6" {
            // 409, and no entry stands there: a retry starts from the same state.
            step("takes a conflict for a foreign entry", self.ended(it));
        }
    }

    /// The entry stands in the log. What the writer learns of it is the next step.
    fn sent(&self, it: usize, open: Open) -> Self {
        let mut state = self.with(it, Writer::Open(Open { sent: true, ..open }));
        state.put(open.next, self.entry(it, open));
        state
    }

    fn sent_steps(&self, it: usize, open: Open, mutant: &'static str, steps: &mut Vec<Step>) {
        let mut step = |does, next: Self| steps.push(Step { who: it, does, next: Box::new(next) });
        if self.stale[it] && !mutant.starts_with("B1") {
            // It asks for the manifest before it answers.
            step("learns that it is fenced", self.ended(it));
        } else {
            step("acknowledges", self.acknowledged(it, open));
        }
        // The answer is lost, or is a conflict although the entry landed: it is put again.
        match self.at(open.next) {
            Slot::Free => step("appends again", self.sent(it, open)),
            entry if entry != self.entry(it, open) => {
                step("meets a foreign entry", self.ended(it));
            }
            _ if mutant == "B5" => step("takes its entry for a foreign one", self.ended(it)),
            _ if mutant == "B5-twice" => {
                let moved = Open { next: open.next + 1, sent: false, ..open };
                step("goes on behind its entry", self.with(it, Writer::Open(moved)));
            }
            // It recognises its entry, and its state is unchanged.
            _ => {}
        }
    }

    /// The entry of the oldest write that the writer does not know to be in the log.
    fn entry(&self, it: usize, open: Open) -> Slot {
        let write = write_of(it, open.done);
        let is_active = open.active.writes & bit(write) != 0;
        let generation = if is_active { open.generation } else { open.generation - 1 };
        Slot::Data { epoch: self.epochs[it], generation, write }
    }

    fn acknowledged(&self, it: usize, mut open: Open) -> Self {
        let write = write_of(it, open.done);
        let is_frozen = open.frozen.writes & bit(write) != 0;
        let memtable = if is_frozen { &mut open.frozen } else { &mut open.active };
        memtable.last = open.next;
        open.sent = false;
        open.done += 1;
        open.next += 1;
        let mut state = self.with(it, Writer::Open(open));
        state.acked |= bit(write);
        if self.is_late(it, write) { state.breaking(Promise::P4) } else { state }
    }

    /// An acknowledgement that comes after a successor opened, of a write it did not find.
    fn is_late(&self, it: usize, write: u8) -> bool {
        (0..MAX_WRITERS).any(|other| {
            self.epochs[other] > self.epochs[it]
                && self.found[other].is_some_and(|found| found & bit(write) == 0)
        })
    }

    fn memory_steps(&self, it: usize, open: Open, protocol: Protocol, steps: &mut Vec<Step>) {
        let mut step = |does, next: Self| steps.push(Step { who: it, does, next: Box::new(next) });
        if open.placed < protocol.writes && open.placed < open.done + protocol.queued {
            let mut placed = open;
            place(it, &mut placed);
            step("places a write", self.with(it, Writer::Open(placed)));
        }
        if protocol.mutant == "B8" && open.placed > open.done {
            // It counts the batches of one MemTable and waits for as many of all of them.
            let newest = bit(write_of(it, open.placed - 1));
            let is_enough = open.active.writes.count_ones() <= u32::from(open.done);
            if open.active.writes & newest != 0 && is_enough {
                let mut state = self.clone();
                state.acked |= newest;
                step("acknowledges by an older generation", state);
            }
        }
        // Without a queue nothing is frozen between a put and its answer.
        let may_freeze = !open.sent || protocol.queued > 0;
        if may_freeze && open.frozen.writes == 0 && open.active.writes != 0 {
            let generation = open.generation + 1;
            let (frozen, active) = (open.active, MemTable::default());
            let frozen = Open { generation, frozen, active, ..open };
            step("freezes", self.with(it, Writer::Open(frozen)));
        }
        // Rows that are not durable are not flushed.
        let mut waiting = (open.done..open.placed).map(|count| bit(write_of(it, count)));
        if open.frozen.writes == 0 || waiting.any(|write| open.frozen.writes & write != 0) {
            return;
        }
        if self.epoch > self.epochs[it] {
            step("cannot flush", self.ended(it));
        } else {
            step("flushes", self.with_flush(it, open, protocol.mutant));
        }
    }

    fn with_flush(&self, it: usize, open: Open, mutant: &str) -> Self {
        let flushed = Open { frozen: MemTable::default(), ..open };
        let mut state = self.with(it, Writer::Open(flushed));
        let last = open.frozen.last;
        state.covered = if mutant == "B3" { last.max(open.active.last) } else { last };
        state.flushed |= open.frozen.writes;
        state.generation = open.generation;
        state
    }
}

fn place(it: usize, open: &mut Open) {
    open.active.writes |= bit(write_of(it, open.placed));
    open.placed += 1;
}
