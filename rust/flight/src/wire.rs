//! The wire format: tickets, and the header of an answer with a snapshot.
//!
//! Owns: the text of tickets, and the header from which a reader rebuilds a snapshot out of
//! batches.
//! Does not own: batches, which travel as Flight's own messages.
//!
//! Tickets: `rows`, or `snapshot`, or `snapshot EPOCH ID:ROWS,ID:ROWS` from a reader that already
//! has so many rows of those MemTables. The answer to `snapshot` carries the header in the metadata
//! of its first message. The batches of the MemTables follow in the order of the header.

use lancemem::{Job, VersionStamp};
use lancemem_core::format::ShardManifest;
use lancemem_core::shard::ShardSnapshot;
use lancemem_core::types::{Error, Generation, Result, ShardId, WriterEpoch};

/// The ticket of the newest rows as a plain table, for any Flight client.
pub(crate) const ROWS: &str = "rows";
/// The ticket of a snapshot, which a reader of lancemem rebuilds.
pub(crate) const SNAPSHOT: &str = "snapshot";
/// The first line of a header; the number is the version of its layout.
const MAGIC: &str = "lancemem-snapshot 2";
/// A bound on the MemTables that are read from a header. No job has so many.
const MAX_MEMTABLES: usize = 100_000;

/// The request of one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The newest rows in the job's memory, as a table.
    Rows,
    /// The job's snapshot, without the rows that the reader has.
    Snapshot(Held),
}

/// The rows of a job that a reader already has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// The job's epoch. Rows of a job with another epoch do not count.
    pub epoch: WriterEpoch,
    /// Rows by MemTable.
    pub rows: Vec<(u64, usize)>,
}

impl Held {
    /// Rows that the reader has of the MemTable `id` of the job with `epoch`.
    pub fn rows_of(&self, epoch: WriterEpoch, id: u64) -> usize {
        if self.epoch != epoch {
            return 0;
        }
        self.rows.iter().find(|(held, _)| *held == id).map_or(0, |(_, rows)| *rows)
    }
}

impl Ask {
    /// The ticket's bytes.
    pub fn encode(&self) -> String {
        match self {
            Self::Rows => ROWS.to_owned(),
            Self::Snapshot(held) if held.rows.is_empty() => SNAPSHOT.to_owned(),
            Self::Snapshot(held) => {
                let rows: Vec<String> =
                    held.rows.iter().map(|(id, rows)| format!("{id}:{rows}")).collect();
                format!("{SNAPSHOT} {} {}", held.epoch, rows.join(","))
            }
        }
    }

    /// Parses a ticket, which is untrusted input.
    pub fn parse(ticket: &[u8]) -> Result<Self> {
        let refused = || Error::input("unknown ticket; this endpoint serves 'rows' and 'snapshot'");
        let text = std::str::from_utf8(ticket).map_err(|_| refused())?;
        let mut words = text.split(' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(ROWS), None, ..) => Ok(Self::Rows),
            (Some(SNAPSHOT), None, ..) => Ok(Self::Snapshot(Held::default())),
            (Some(SNAPSHOT), Some(epoch), Some(rows), None) => {
                let epoch = epoch.parse().map(WriterEpoch).map_err(|_| refused())?;
                let rows = rows.split(',').map(|pair| {
                    let (id, rows) = pair.split_once(':')?;
                    Some((id.parse().ok()?, rows.parse().ok()?))
                });
                let rows = rows.collect::<Option<Vec<_>>>().ok_or_else(refused)?;
                Ok(Self::Snapshot(Held { epoch, rows }))
            }
            _ => Err(refused()),
        }
    }
}

/// Rows of one MemTable in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The id of the MemTable, unique in the job's process.
    pub id: u64,
    /// Its generation.
    pub generation: Generation,
    /// Rows that the reader has; the answer begins behind them.
    pub from_row: usize,
    /// Rows in the snapshot.
    pub rows: usize,
}

/// The header from which a reader rebuilds a snapshot out of the batches of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The job's shard.
    pub shard_id: ShardId,
    /// The job's epoch.
    pub epoch: WriterEpoch,
    /// The name of its table.
    pub table: String,
    /// A version of its table, which tells apart two tables of the same name at different
    /// locations.
    pub base: VersionStamp,
    /// Its MemTables, oldest first.
    pub parts: Vec<Part>,
    /// The shard manifest of the snapshot; `None` in a description of the job alone.
    pub manifest: Option<ShardManifest>,
}

impl Header {
    /// The description of `job`, without a snapshot.
    pub fn of_job(job: &Job) -> Self {
        Self {
            shard_id: job.shard_id(),
            epoch: job.epoch(),
            table: job.table_name().to_owned(),
            base: job.base_stamp(),
            parts: Vec::new(),
            manifest: None,
        }
    }

    /// The header of `snapshot` for a reader that has `held`.
    pub fn of_snapshot(job: &Job, snapshot: &ShardSnapshot, held: &Held) -> Self {
        let of_job = Self::of_job(job);
        let parts = snapshot.memtables.iter().map(|view| {
            let (id, rows) = (view.memtable_id(), view.rows());
            // A reader with more rows than the snapshot has rows of another snapshot: it starts
            // again.
            let from_row = Some(held.rows_of(of_job.epoch, id)).filter(|from| *from <= rows);
            Part { id, generation: view.generation(), from_row: from_row.unwrap_or(0), rows }
        });
        let manifest = Some(ShardManifest::clone(&snapshot.manifest));
        Self { parts: parts.collect(), manifest, ..of_job }
    }

    /// Lines of text, an empty line, then the bytes of the manifest.
    pub fn encode(&self) -> Vec<u8> {
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| format!("{}:{}:{}:{}", part.id, part.generation, part.from_row, part.rows))
            .collect();
        let text = format!(
            "{MAGIC}\nshard={}\nepoch={}\ntable={}\nbase={}:{}\nmemtables={}\n\n",
            self.shard_id,
            self.epoch,
            self.table.replace('\n', " "),
            self.base.number,
            self.base.nanos,
            parts.join(",")
        );
        let mut bytes = text.into_bytes();
        if let Some(manifest) = &self.manifest {
            bytes.extend(manifest.encode());
        }
        bytes
    }

    /// Parses the header that an endpoint sent.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let broken = || {
            let why = format!("the answer has no header of the format '{MAGIC}'");
            Error::storage("reading a job", why)
        };
        let end = bytes.windows(2).position(|pair| pair == b"\n\n").ok_or_else(broken)?;
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| broken())?;
        let mut lines = text.lines();
        if lines.next() != Some(MAGIC) {
            return Err(broken());
        }
        let mut value = |name: &str| {
            let (found, value) = lines.next()?.split_once('=')?;
            (found == name).then(|| value.to_owned())
        };
        let shard_id = value("shard").and_then(|id| ShardId::parse_str(&id).ok());
        let epoch = value("epoch").and_then(|epoch| epoch.parse().ok()).map(WriterEpoch);
        let table = value("table");
        let base = value("base").and_then(|base| parse_stamp(&base));
        let parts = value("memtables").and_then(|parts| parse_parts(&parts));
        let (Some(shard_id), Some(epoch), Some(table), Some(base), Some(parts)) =
            (shard_id, epoch, table, base, parts)
        else {
            return Err(broken());
        };
        let manifest = match &bytes[end + 2..] {
            [] => None,
            bytes => Some(ShardManifest::decode(bytes, "the shard manifest that a job sent")?),
        };
        Ok(Self { shard_id, epoch, table, base, parts, manifest })
    }
}

fn parse_stamp(text: &str) -> Option<VersionStamp> {
    let (number, nanos) = text.split_once(':')?;
    Some(VersionStamp { number: number.parse().ok()?, nanos: nanos.parse().ok()? })
}

fn parse_parts(text: &str) -> Option<Vec<Part>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let parts = text.split(',').take(MAX_MEMTABLES).map(|part| {
        let mut numbers = part.split(':').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let (id, generation, from_row, rows) = (next()?, next()?, next()?, next()?);
        let from_row = usize::try_from(from_row).ok()?;
        let rows = usize::try_from(rows).ok()?;
        let part = Part { id, generation: Generation(generation), from_row, rows };
        (from_row <= rows && next().is_none()).then_some(part)
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_ticket_reads_back_and_a_bad_one_is_refused() {
        let held = Held { epoch: WriterEpoch(7), rows: vec![(3, 100), (4, 0)] };
        for ask in [Ask::Rows, Ask::Snapshot(Held::default()), Ask::Snapshot(held)] {
            assert_eq!(Ask::parse(ask.encode().as_bytes()).unwrap(), ask);
        }
        let bad: &[&[u8]] = &[
            b"",
            b"row",
            b"rows ",
            b"snapshot 1",
            b"snapshot x 1:1",
            b"snapshot 1 1",
            b"snapshot 1 1:-1",
            b"snapshot 1 1:1,",
            b"snapshot 99999999999999999999 1:1",
            b"snapshot 1 1:1 more",
            b"\xff\xfe",
        ];
        for ticket in bad {
            assert!(Ask::parse(ticket).is_err(), "{}", String::from_utf8_lossy(ticket));
        }
    }

    #[test]
    fn a_header_reads_back_and_a_truncated_one_is_refused() {
        let shard_id = ShardId::from_u128(5);
        let part = |id, from_row| Part { id, generation: Generation(id), from_row, rows: 9 };
        let header = Header {
            shard_id,
            epoch: WriterEpoch(2),
            table: "board=1".to_owned(),
            base: VersionStamp { number: 3, nanos: u128::from(u64::MAX) * 3 },
            parts: vec![part(1, 0), part(2, 9)],
            manifest: Some(ShardManifest::initial(shard_id, 1, BTreeMap::new())),
        };
        let bytes = header.encode();
        assert_eq!(Header::parse(&bytes).unwrap(), header);
        let text = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap();
        for end in 0..text {
            assert!(Header::parse(&bytes[..end]).is_err());
        }
        let backwards =
            b"lancemem-snapshot 2\nshard=00000000-0000-0000-0000-000000000005\nepoch=1\n\
            table=t\nbase=1:1\nmemtables=1:1:5:4\n\n";
        assert!(Header::parse(backwards).is_err());
    }

    #[test]
    fn rows_of_another_epoch_are_not_held() {
        let held = Held { epoch: WriterEpoch(2), rows: vec![(1, 10)] };
        assert_eq!(held.rows_of(WriterEpoch(2), 1), 10);
        assert_eq!(held.rows_of(WriterEpoch(3), 1), 0);
        assert_eq!(held.rows_of(WriterEpoch(2), 2), 0);
    }
}
