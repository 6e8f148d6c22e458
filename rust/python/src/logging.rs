//! Forwards the engine's log lines to Python's `logging`, to the logger `lancemem`.
//!
//! Owns: the queue of log lines. A thread of the engine puts a line into it, and the next call into
//! this module, which holds the GIL anyway, passes it on. Threads of the engine never request the
//! GIL.
//! Does not own: levels and handlers, which are the program's.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use lancemem::PerProcess;
use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The largest number of queued lines. The oldest are dropped if the program makes no call.
const WAITING: usize = 256;

struct Line {
    level: Level,
    text: String,
}

static LINES: PerProcess<Mutex<VecDeque<Line>>> = PerProcess::new(Mutex::default);
/// Whether lines are queued. A call without lines costs one atomic access.
static ANY: AtomicBool = AtomicBool::new(false);

/// Takes lancemem's own events from `info` on, and no spans.
struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with("lancemem")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let line =
            Line { level: *event.metadata().level(), text: lancemem::scrub(&text.0).into_owned() };
        let mut lines = LINES.get().lock();
        if lines.len() == WAITING {
            lines.pop_front();
        }
        lines.push_back(line);
        ANY.store(true, Ordering::Release);
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

/// Starts collecting. A process has one subscriber; one that is set already stays.
pub fn start() {
    let _ = tracing::subscriber::set_global_default(Collector);
}

/// Passes the queued lines to Python's `logging`. An exception of a handler or filter is reported
/// as unraisable, as in a destructor: the present call may have succeeded.
///
/// # Errors
/// An exception that ends a program, such as Ctrl-C.
pub fn hand_over(py: Python<'_>) -> PyResult<()> {
    if !ANY.swap(false, Ordering::AcqRel) {
        return Ok(());
    }
    let lines = std::mem::take(&mut *LINES.get().lock());
    let logger = py.import("logging")?.call_method1("getLogger", ("lancemem",))?;
    for line in lines {
        let level = match line.level {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        match logger.call_method1("log", (level, line.text)) {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, None);
            }
            logged => drop(logged?),
        }
    }
    Ok(())
}
