//! Log lines of the engine, queued for the language that called it.
//!
//! Owns: the queue. A thread of the engine puts a line into it, and the next call of a binding
//! passes it on. Threads of the engine never request the lock of a language.
//! Does not own: the logger of the language, with its levels and handlers.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use lancemem::PerProcess;
use parking_lot::Mutex;
pub use tracing::Level;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The largest number of queued lines. The oldest are dropped if the program makes no call.
const MAX_LINES: usize = 256;

/// An event of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `INFO`, `WARN` or `ERROR`.
    pub level: Level,
    /// Its message, then its fields, without secrets.
    pub text: String,
}

static LINES: Queue = Queue::new();

/// Starts collecting. A process has one subscriber; one that is set already stays.
pub fn collect() {
    let _ = tracing::subscriber::set_global_default(Collector(&LINES));
}

/// Takes the queued lines, the oldest first; `None` if there are none. A call without lines costs
/// one atomic access.
#[inline]
pub fn take() -> Option<VecDeque<Line>> {
    LINES.take()
}

struct Queue {
    lines: PerProcess<Mutex<VecDeque<Line>>>,
    /// Whether lines are queued.
    any: AtomicBool,
}

impl Queue {
    const fn new() -> Self {
        Self { lines: PerProcess::new(Mutex::default), any: AtomicBool::new(false) }
    }

    fn push(&self, line: Line) {
        let mut lines = self.lines.get().lock();
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
        self.any.store(true, Ordering::Release);
    }

    #[inline]
    fn take(&self) -> Option<VecDeque<Line>> {
        if !self.any.swap(false, Ordering::AcqRel) {
            return None;
        }
        Some(std::mem::take(&mut *self.lines.get().lock()))
    }
}

/// Takes lancemem's own events from `info` on, and no spans.
struct Collector(&'static Queue);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with("lancemem")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let text = lancemem::scrub(&text.0).into_owned();
        self.0.push(Line { level: *event.metadata().level(), text });
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// An event as one line: its message, then its fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = if field.name() == "message" {
            let rest = std::mem::take(&mut self.0);
            write!(self.0, "{value:?}{rest}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::with_default;

    use super::*;

    #[test]
    fn a_full_queue_drops_its_oldest_lines() {
        let queue = Queue::new();
        assert_eq!(queue.take(), None);
        for number in 0..MAX_LINES + 2 {
            queue.push(Line { level: Level::INFO, text: number.to_string() });
        }
        let lines = queue.take().expect("lines");
        assert_eq!(lines.len(), MAX_LINES);
        assert_eq!(lines.front().map(|line| line.text.as_str()), Some("2"));
        assert_eq!(lines.back().map(|line| line.text.clone()), Some((MAX_LINES + 1).to_string()));
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn an_event_is_a_line_with_its_message_before_its_fields() {
        static QUEUE: Queue = Queue::new();
        with_default(Collector(&QUEUE), || {
            tracing::warn!(shard = 7, path = "a/b", "the flush of a shard failed");
            tracing::debug!("a line that no program asked for");
            tracing::error!(target: "another_crate", "an event of another crate");
            let _span = tracing::info_span!("a span").entered();
        });
        let text = "the flush of a shard failed shard=7 path=\"a/b\"".to_owned();
        assert_eq!(QUEUE.take(), Some(VecDeque::from([Line { level: Level::WARN, text }])));
    }
}
