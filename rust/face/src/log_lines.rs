//! Log lines of the engine, queued for the language that called it.
//!
//! Owns: the queue. A thread of the engine puts a line into it, and the next call of a binding
//! passes it on. Threads of the engine never request the lock of a language. Whether lines of level
//! INFO are collected.
//! Does not own: the logger of the language, with its levels and handlers.
//!
//! A call of a binding has the lock of its language anyway, so it asks the logger for its level and
//! passes the answer to [`show_info`]. While the program shows no line of level INFO, an event of
//! that level costs one atomic load: `tracing` compares it with its global maximum level.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use lancemem::PerProcess;
use parking_lot::Mutex;
pub use tracing::Level;
use tracing::callsite::rebuild_interest_cache;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
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

/// Sets whether lines of level INFO are collected, as they are at first. A call that changes nothing
/// costs one atomic load.
#[inline]
pub fn show_info(is_shown: bool) {
    if LINES.show_info(is_shown) {
        rebuild_interest_cache();
    }
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
    /// Whether lines of level INFO are dropped.
    hides_info: AtomicBool,
}

impl Queue {
    const fn new() -> Self {
        Self {
            lines: PerProcess::new(Mutex::default),
            any: AtomicBool::new(false),
            hides_info: AtomicBool::new(false),
        }
    }

    /// Sets whether lines of level INFO are collected. Returns whether that is a change.
    #[inline]
    fn show_info(&self, is_shown: bool) -> bool {
        let hides = !is_shown;
        self.hides_info.load(Ordering::Relaxed) != hides
            && self.hides_info.swap(hides, Ordering::AcqRel) != hides
    }

    /// The lowest level that is collected.
    fn level(&self) -> Level {
        if self.hides_info.load(Ordering::Acquire) { Level::WARN } else { Level::INFO }
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

/// Takes lancemem's own events from [`Queue::level`] on, and no spans.
struct Collector(&'static Queue);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= self.0.level()
            && metadata.target().starts_with("lancemem")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.level().into())
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

    #[test]
    fn a_line_of_level_info_is_collected_while_the_program_shows_such_lines() {
        static QUEUE: Queue = Queue::new();
        with_default(Collector(&QUEUE), || {
            for (is_shown, is_change) in
                [(true, false), (false, true), (false, false), (true, true)]
            {
                assert_eq!(QUEUE.show_info(is_shown), is_change);
                rebuild_interest_cache();
                tracing::info!("flushed");
                tracing::warn!("a flush failed");
                let lines = QUEUE.take().expect("lines");
                let levels: Vec<Level> = lines.iter().map(|line| line.level).collect();
                let expected = [Level::INFO, Level::WARN];
                assert_eq!(levels, expected[usize::from(!is_shown)..]);
            }
        });
    }
}
