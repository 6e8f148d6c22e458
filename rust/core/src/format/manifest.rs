//! The shard manifest: the versioned protobuf that is the source of truth of a shard.
//!
//! Owns: the message (the field numbers are the format) and its Rust value.
//! Does not own: its checksum (`checksummed`), which version is the newest, or who may write one.

use std::collections::BTreeMap;

use prost::Message;

use super::{checksummed, paths};
use crate::types::{
    Error, Generation, ManifestVersion, Result, ShardId, Txns, WalPosition, WriterEpoch,
};

/// Prefix of the shard field entries that record transaction ids; the application follows. They are
/// no values of a sharding field, and lance preserves them like any other entry.
const TXN: &str = "lancemem:mark:";
/// A shard field entry of the same kind, whose value is [`ShardManifest::sharding`].
const SHARDING: &str = "lancemem:sharding";
/// A shard field entry of the same kind, whose value is [`ShardManifest::released`].
const RELEASED: &str = "lancemem:released";

/// One immutable version of a shard's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardManifest {
    /// The shard.
    pub shard_id: ShardId,
    /// This version; equal to the number in the file name.
    pub version: ManifestVersion,
    /// The sharding specification under which the shard was made; 0 for a manual shard.
    pub shard_spec_id: u32,
    /// Sharding field id to the raw little-endian Arrow value of this shard.
    pub shard_field_values: BTreeMap<String, Vec<u8>>,
    /// The sharding under which its rows were put, as [`Sharding::record`](super::Sharding::record)
    /// writes it. `None` for shards of lance, manual shards, and shards of versions that did not
    /// record it.
    pub sharding: Option<String>,
    /// Transaction ids of all writes whose rows are in SSTables of this version or of an earlier
    /// one.
    pub txns: Txns,
    /// Fencing token of the present owner.
    pub writer_epoch: WriterEpoch,
    /// The epoch of a claim that no running job holds: the claim of one call, or of a job that was
    /// closed. Other writers keep the entry when they claim, so it counts for its own epoch alone.
    pub released: Option<WriterEpoch>,
    /// Replay starts after this WAL entry.
    pub replay_after_wal_entry_position: WalPosition,
    /// The highest WAL entry seen when this version was written. A hint.
    pub wal_entry_position_last_seen: WalPosition,
    /// Generation of the next flush.
    pub current_generation: Generation,
    /// Flushed SSTables that are not drained by compaction, oldest first.
    pub sstables: Vec<SsTable>,
    /// Whether the shard takes claims.
    pub status: ShardStatus,
}

/// A flushed SSTable as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsTable {
    /// Its age in the shard.
    pub generation: Generation,
    /// Folder name inside the shard's folder.
    pub path: String,
    /// Payload bytes of the rows in memory, where measured.
    pub in_memory_bytes: Option<u64>,
    /// Rows in the data file, those that are superseded inside the SSTable included.
    pub physical_rows: Option<u64>,
    /// Payload bytes of the key columns, where measured.
    pub primary_key_bytes: Option<u64>,
}

/// Whether a shard takes claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardStatus {
    /// The shard takes claims.
    #[default]
    Active,
    /// A drop is under way: claims are refused.
    Sealed,
}

impl ShardManifest {
    /// Whether the SSTable in the folder `path` is one of the shard's.
    #[must_use]
    pub fn lists(&self, path: &str) -> bool {
        self.sstables.iter().any(|sstable| sstable.path == path)
    }

    /// Whether the present claim is released, so that a later claim stops no running job. `false`
    /// means that a job may run.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.released == Some(self.writer_epoch)
    }

    /// Refuses to take over the present claim where a job of another process may hold it.
    /// `claimed_here` is the newest claim of this process.
    ///
    /// # Errors
    /// Held, which names the shard and the epoch.
    pub fn check_released(&self, claimed_here: Option<WriterEpoch>) -> Result<()> {
        let epoch = self.writer_epoch;
        if epoch == WriterEpoch(0) || claimed_here == Some(epoch) || self.is_released() {
            return Ok(());
        }
        Err(Error::Held { shard: self.shard_id, epoch })
    }

    /// The first version of a shard, before any claim.
    #[must_use]
    pub fn initial(
        shard_id: ShardId,
        shard_spec_id: u32,
        shard_field_values: BTreeMap<String, Vec<u8>>,
    ) -> Self {
        Self {
            shard_id,
            version: ManifestVersion(1),
            shard_spec_id,
            shard_field_values,
            sharding: None,
            txns: Txns::default(),
            writer_epoch: WriterEpoch(0),
            released: None,
            replay_after_wal_entry_position: WalPosition(0),
            wal_entry_position_last_seen: WalPosition(0),
            current_generation: Generation(1),
            sstables: Vec::new(),
            status: ShardStatus::Active,
        }
    }

    /// The shard's value of the sharding field `field_id`, where it is an int32 such as a bucket.
    #[must_use]
    pub fn bucket(&self, field_id: &str) -> Option<i32> {
        let bytes = self.shard_field_values.get(field_id)?;
        bytes.as_slice().try_into().ok().map(i32::from_le_bytes)
    }

    /// The bytes of this version, with a checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let message = ShardManifestMessage {
            version: self.version.get(),
            writer_epoch: self.writer_epoch.get(),
            replay_after_wal_entry_position: self.replay_after_wal_entry_position.get(),
            wal_entry_position_last_seen: self.wal_entry_position_last_seen.get(),
            current_generation: self.current_generation.get(),
            sstables: self.sstables.iter().map(SsTableMessage::from).collect(),
            shard_spec_id: self.shard_spec_id,
            shard_id: Some(UuidMessage { uuid: self.shard_id.as_bytes().to_vec() }),
            shard_field_entries: self
                .shard_field_values
                .iter()
                .map(|(field_id, value)| ShardFieldEntryMessage {
                    field_id: field_id.clone(),
                    value: value.clone(),
                })
                .chain(self.sharding.iter().map(|sharding| ShardFieldEntryMessage {
                    field_id: SHARDING.to_owned(),
                    value: sharding.as_bytes().to_vec(),
                }))
                .chain(self.txns.iter().map(|(app_id, version)| ShardFieldEntryMessage {
                    field_id: format!("{TXN}{app_id}"),
                    value: version.to_le_bytes().to_vec(),
                }))
                .chain(self.released.iter().map(|epoch| ShardFieldEntryMessage {
                    field_id: RELEASED.to_owned(),
                    value: epoch.get().to_le_bytes().to_vec(),
                }))
                .collect(),
            status: i32::from(self.status == ShardStatus::Sealed),
        };
        checksummed::seal(&message.encode_to_vec())
    }

    /// Reads the bytes of one version; `what` names the file in errors.
    ///
    /// # Errors
    /// Damage: a checksum mismatch, undecodable bytes, no shard id, a counter at its end, or an
    /// SSTable path that leaves the shard's folder.
    pub fn decode(bytes: &[u8], what: &str) -> Result<Self> {
        let message =
            ShardManifestMessage::decode(checksummed::unseal(bytes, what)?).map_err(|error| {
                Error::corrupt(what, "not a shard manifest", &error).with_source(error)
            })?;
        message.check_counters(what)?;
        let uuid = message.shard_id.map(|id| id.uuid).unwrap_or_default();
        let shard_id = ShardId::from_slice(&uuid).map_err(|_| {
            let detail = format!("expected 16 bytes, found {}", uuid.len());
            Error::corrupt(what, "no shard id", detail)
        })?;
        let sstables = message
            .sstables
            .into_iter()
            .map(|sstable| sstable.check(what))
            .collect::<Result<Vec<_>>>()?;
        let mut shard_field_values = BTreeMap::new();
        let (mut sharding, mut released, mut txns) = (None, None, Txns::default());
        for entry in message.shard_field_entries {
            if let Some(app_id) = entry.field_id.strip_prefix(TXN) {
                txns.record(app_id, entry.txn_version(what)?);
            } else if entry.field_id == SHARDING {
                sharding = Some(entry.sharding(what)?);
            } else if entry.field_id == RELEASED {
                released = Some(entry.epoch(what)?);
            } else {
                shard_field_values.insert(entry.field_id, entry.value);
            }
        }
        Ok(Self {
            shard_id,
            version: ManifestVersion(message.version),
            shard_spec_id: message.shard_spec_id,
            shard_field_values,
            sharding,
            txns,
            writer_epoch: WriterEpoch(message.writer_epoch),
            released,
            replay_after_wal_entry_position: WalPosition(message.replay_after_wal_entry_position),
            wal_entry_position_last_seen: WalPosition(message.wal_entry_position_last_seen),
            current_generation: Generation(message.current_generation),
            sstables,
            status: if message.status == 1 { ShardStatus::Sealed } else { ShardStatus::Active },
        })
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
struct UuidMessage {
    #[prost(bytes = "vec", tag = "1")]
    uuid: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ShardFieldEntryMessage {
    #[prost(string, tag = "1")]
    field_id: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct SsTableMessage {
    #[prost(uint64, tag = "1")]
    generation: u64,
    #[prost(string, tag = "2")]
    path: String,
    #[prost(uint64, optional, tag = "3")]
    in_memory_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    physical_rows: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    primary_key_bytes: Option<u64>,
}

impl ShardFieldEntryMessage {
    fn txn_version(&self, what: &str) -> Result<i64> {
        let bytes = self.value.as_slice().try_into().map_err(|_| {
            let detail = format!("{} has {} bytes, expected 8", self.field_id, self.value.len());
            Error::corrupt(what, "undecodable transaction id", detail)
        })?;
        Ok(i64::from_le_bytes(bytes))
    }

    fn epoch(&self, what: &str) -> Result<WriterEpoch> {
        let bytes = self.value.as_slice().try_into().map_err(|_| {
            let detail = format!("expected 8 bytes, found {}", self.value.len());
            Error::corrupt(what, "undecodable epoch of a released claim", detail)
        })?;
        Ok(WriterEpoch(u64::from_le_bytes(bytes)))
    }

    fn sharding(self, what: &str) -> Result<String> {
        String::from_utf8(self.value)
            .map_err(|error| Error::corrupt(what, "undecodable sharding", error.utf8_error()))
    }
}

impl From<&SsTable> for SsTableMessage {
    fn from(sstable: &SsTable) -> Self {
        Self {
            generation: sstable.generation.get(),
            path: sstable.path.clone(),
            in_memory_bytes: sstable.in_memory_bytes,
            physical_rows: sstable.physical_rows,
            primary_key_bytes: sstable.primary_key_bytes,
        }
    }
}

impl SsTableMessage {
    fn check(self, what: &str) -> Result<SsTable> {
        if !paths::is_plain_component(&self.path) {
            return Err(Error::corrupt(
                what,
                "path outside the shard",
                format!("generation {} has the path '{}'", self.generation, self.path),
            ));
        }
        Ok(SsTable {
            generation: Generation(self.generation),
            path: self.path,
            in_memory_bytes: self.in_memory_bytes,
            physical_rows: self.physical_rows,
            primary_key_bytes: self.primary_key_bytes,
        })
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ShardManifestMessage {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(uint64, tag = "2")]
    writer_epoch: u64,
    #[prost(uint64, tag = "3")]
    replay_after_wal_entry_position: u64,
    #[prost(uint64, tag = "4")]
    wal_entry_position_last_seen: u64,
    #[prost(uint64, tag = "6")]
    current_generation: u64,
    #[prost(message, repeated, tag = "8")]
    sstables: Vec<SsTableMessage>,
    #[prost(uint32, tag = "10")]
    shard_spec_id: u32,
    #[prost(message, optional, tag = "11")]
    shard_id: Option<UuidMessage>,
    #[prost(message, repeated, tag = "14")]
    shard_field_entries: Vec<ShardFieldEntryMessage>,
    #[prost(int32, tag = "15")]
    status: i32,
}

impl ShardManifestMessage {
    /// Refuses a counter at `u64::MAX`, which no counting reaches: the next value would overflow.
    fn check_counters(&self, what: &str) -> Result<()> {
        let counters = [
            ("version", self.version),
            ("writer_epoch", self.writer_epoch),
            ("replay_after_wal_entry_position", self.replay_after_wal_entry_position),
            ("current_generation", self.current_generation),
        ];
        match counters.iter().find(|(_, value)| *value == u64::MAX) {
            Some((name, value)) => {
                Err(Error::corrupt(what, "counter at its end", format!("{name} is {value}")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::format::Sharding;
    use crate::format::framed_file::tests::assert_damage_is_found;

    const MESSAGE: &str = "08071003180c200f30044216080312\
        0e63633835633339375f67656e5f331864200a50015a120a10\
        00000000000000000000000000001234720e0a066275636b6574120402000000";
    const CRC: &str = "6c8b725a";
    /// What follows where the manifest records the sharding of its rows, and the checksum then.
    const SHARDING_ENTRY: &str = "72360a116c616e63656d656d3a7368617264696e6712216275636b6574286669\
        656c645f69643d312c206e756d5f6275636b6574733d3429";
    const RECORDED_CRC: &str = "4798ab17";

    /// What follows where the manifest records a released claim, and the checksum then.
    const RELEASED_ENTRY: &str = "721d0a116c616e63656d656d3a72656c65617365641208\
        0300000000000000";
    const RELEASED_CRC: &str = "761f84ce";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    fn manifest() -> ShardManifest {
        ShardManifest {
            version: ManifestVersion(7),
            writer_epoch: WriterEpoch(3),
            replay_after_wal_entry_position: WalPosition(12),
            wal_entry_position_last_seen: WalPosition(15),
            current_generation: Generation(4),
            sstables: vec![SsTable {
                generation: Generation(3),
                path: "cc85c397_gen_3".to_owned(),
                in_memory_bytes: Some(100),
                physical_rows: Some(10),
                primary_key_bytes: None,
            }],
            ..ShardManifest::initial(
                ShardId::from_u128(0x1234),
                1,
                [("bucket".to_owned(), 2_i32.to_le_bytes().to_vec())].into(),
            )
        }
    }

    fn recorded() -> ShardManifest {
        let sharding = Sharding::Bucket { column: "id".to_owned(), buckets: 4 };
        ShardManifest { sharding: Some(sharding.record(Some(1))), ..manifest() }
    }

    fn released() -> ShardManifest {
        ShardManifest { released: Some(WriterEpoch(3)), ..manifest() }
    }

    #[test]
    fn a_manifest_reads_back_as_it_was_written() {
        let manifest = manifest();
        let read = ShardManifest::decode(&manifest.encode(), "m").unwrap();
        assert_eq!(read, manifest);
        assert_eq!(read.bucket("bucket"), Some(2));
    }

    #[test]
    fn the_bytes_of_a_manifest_do_not_change() {
        assert_eq!(hex(&manifest().encode()), format!("8d94d06e{CRC}{MESSAGE}9594d06e{CRC}"));
        let (message, crc) = (format!("{MESSAGE}{SHARDING_ENTRY}"), RECORDED_CRC);
        assert_eq!(hex(&recorded().encode()), format!("8d94d06e{crc}{message}9594d06e{crc}"));
    }

    #[test]
    fn the_bytes_of_a_released_claim_do_not_change() {
        let released = released();
        let bytes = released.encode();
        let (message, crc) = (format!("{MESSAGE}{RELEASED_ENTRY}"), RELEASED_CRC);
        assert_eq!(hex(&bytes), format!("8d94d06e{crc}{message}9594d06e{crc}"));
        let read = ShardManifest::decode(&bytes, "m").unwrap();
        assert_eq!(read, released);
        assert_eq!(read.shard_field_values, manifest().shard_field_values);
        assert_damage_is_found(&bytes, |bytes| ShardManifest::decode(bytes, "m"));
    }

    #[test]
    fn a_release_counts_for_its_own_claim_and_for_no_later_one() {
        assert!(released().is_released());
        // A writer that does not know the entry claims the shard and keeps it.
        let later = ShardManifest { writer_epoch: WriterEpoch(4), ..released() };
        assert!(!later.is_released());
        assert!(!manifest().is_released());
    }

    #[test]
    fn a_claim_is_held_unless_it_is_released_or_of_this_process() {
        assert!(released().check_released(None).is_ok());
        let held = manifest().check_released(None).unwrap_err();
        assert!(matches!(held, Error::Held { epoch: WriterEpoch(3), .. }), "{held}");
        assert!(manifest().check_released(Some(WriterEpoch(3))).is_ok());
        assert!(manifest().check_released(Some(WriterEpoch(2))).is_err());
        let unclaimed = ShardManifest { writer_epoch: WriterEpoch(0), ..manifest() };
        assert!(unclaimed.check_released(None).is_ok());
    }

    #[test]
    fn a_release_that_is_no_epoch_is_damage() {
        let values = [(RELEASED.to_owned(), vec![3, 0])].into();
        let odd = ShardManifest { shard_field_values: values, ..manifest() };
        let error = ShardManifest::decode(&odd.encode(), "m").unwrap_err().to_string();
        assert!(error.contains("undecodable epoch of a released claim"), "{error}");
    }

    #[test]
    fn a_manifest_keeps_the_sharding_of_its_rows() {
        let read = ShardManifest::decode(&recorded().encode(), "m").unwrap();
        assert_eq!(read, recorded());
        assert_eq!(read.shard_field_values, manifest().shard_field_values);
        assert_damage_is_found(&recorded().encode(), |bytes| ShardManifest::decode(bytes, "m"));
    }

    #[test]
    fn a_sharding_that_is_no_text_is_damage() {
        let values = [(SHARDING.to_owned(), vec![0xff])].into();
        let odd = ShardManifest { shard_field_values: values, ..manifest() };
        let error = ShardManifest::decode(&odd.encode(), "m").unwrap_err().to_string();
        assert!(error.contains("undecodable sharding"), "{error}");
    }

    #[test]
    fn a_manifest_without_a_checksum_is_read_because_lance_writes_none() {
        let sealed = manifest().encode();
        let bare = &sealed[8..sealed.len() - 8];
        assert_eq!(hex(bare), MESSAGE);
        assert_eq!(ShardManifest::decode(bare, "m").unwrap(), manifest());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_manifest_is_damage() {
        assert_damage_is_found(&manifest().encode(), |bytes| ShardManifest::decode(bytes, "m"));
    }

    #[test]
    fn a_counter_that_nothing_can_follow_is_refused() {
        let changes: [fn(&mut ShardManifest); 4] = [
            |manifest| manifest.version = ManifestVersion(u64::MAX),
            |manifest| manifest.writer_epoch = WriterEpoch(u64::MAX),
            |manifest| manifest.replay_after_wal_entry_position = WalPosition(u64::MAX),
            |manifest| manifest.current_generation = Generation(u64::MAX),
        ];
        for change in changes {
            let mut manifest = manifest();
            change(&mut manifest);
            let error = ShardManifest::decode(&manifest.encode(), "x").unwrap_err().to_string();
            assert!(error.contains("counter at its end"), "{error}");
        }
    }

    #[test]
    fn a_manifest_that_points_outside_its_shard_is_refused() {
        let mut manifest = manifest();
        manifest.sstables[0].path = "../../other".to_owned();
        let error = ShardManifest::decode(&manifest.encode(), "m").unwrap_err();
        assert!(error.to_string().contains("path outside the shard"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_manifest_are_damage_and_not_an_empty_shard() {
        assert!(ShardManifest::decode(&[], "m").is_err());
        assert!(ShardManifest::decode(&[0xff; 20], "m").is_err());
    }
}
