//! The log lines of a shard: one for each claim, flush and fence, and none for a put or a read.
//!
//! Owns: the fields of these lines, and that each action has one.
//! Does not own: which levels a program shows (`lancemem_face::log_lines`).

use std::fmt::{self, Write as _};
use std::sync::Arc;

use lancemem_core::shard::ShardIdentity;
use lancemem_core::types::ErrorKind;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::fixture::{Fixture, quick, within};

/// Collects the lines of the core's events at level INFO.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// The lines since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::INFO && metadata.target().starts_with("lancemem_core")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The message of an event, then its fields without times.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => {
                let fields = std::mem::take(&mut self.0);
                write!(self.0, "{value:?}{fields}")
            }
            "seconds" => write!(self.0, " seconds"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[tokio::test]
async fn a_claim_a_flush_and_a_fence_are_one_line_each_and_puts_are_none() {
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    within(async {
        let fixture = Fixture::new().await;
        let shard = fixture.shard_id;
        let identity = ShardIdentity::new(shard).with_table("t.lance".to_owned());
        let first = fixture.try_open_as(identity, quick()).await.unwrap();
        let claimed = format!("claimed table=\"t.lance\" shard={shard} epoch=1 rows=0 bytes=0 seconds");
        assert_eq!(lines.take(), [claimed]);

        fixture.put(&first, &[(1, 10), (2, 20)]).await.unwrap();
        fixture.put(&first, &[(3, 30)]).await.unwrap();
        let (bytes, wal_bytes) = (first.stats().memtable_bytes, first.stats().wal_bytes);
        assert_eq!(fixture.seen(&first).len(), 3);
        assert!(lines.take().is_empty());

        first.flush().await.unwrap();
        let flushed = format!(
            "flushed table=\"t.lance\" shard={shard} generation=1 rows=3 bytes={bytes} seconds"
        );
        assert_eq!(lines.take(), [flushed]);

        let second = fixture.open().await;
        assert_eq!(lines.take(), [format!("claimed shard={shard} epoch=2 rows=0 bytes=0 seconds")]);
        for _ in 0..2 {
            let error = fixture.put(&first, &[(4, 40)]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fenced);
        }
        first.check_owned().await.unwrap_err();
        let fenced = format!(
            "fenced table=\"t.lance\" shard={shard} epoch=1 by_epoch=2 rows=3 bytes={wal_bytes} seconds"
        );
        assert_eq!(lines.take(), [fenced]);
        second.close(false).await.unwrap();
        assert!(lines.take().is_empty());
    })
    .await;
}
