//! The deletion vectors that one SSTable gives to older rows: a small file beside the SSTable.
//!
//! Owns: the message (the field numbers are the format) and its Rust value.
//! Does not own: the bitmaps, which are bytes here, or whether they are still valid for a version
//! of the base table.

use prost::Message;

use super::framed_file::{self, Framed};
use crate::types::Result;

/// Rows that one SSTable supersedes or deletes, by position. Never changes once it is written.
///
/// A source that is listed is covered: *all* of its rows that have a key of the SSTable are in its
/// vector. A source that is not listed is not covered.
///
/// With a merge rule that chooses, an older row may beat a row of the SSTable. A source's vector then
/// has all of its rows that lose, and `beaten` the rows of the SSTable that lose to a row of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsTableVectors {
    /// The version of the base table that was looked at. For information only: the fragments decide
    /// what is valid.
    pub base_version: u64,
    /// Field ids of the columns that were compared: the key columns in primary-key order, then those of
    /// `sequence_by`.
    pub key_fields: Vec<i32>,
    /// Fragments of the base table.
    pub fragments: Vec<FragmentVector>,
    /// Older SSTables of the shard.
    pub sstables: Vec<OlderSsTableVector>,
    /// Tombstones of the SSTable itself; `None` where another file of the SSTable has them.
    pub tombstones: Option<Vec<u8>>,
    /// The merge rule by which rows were compared, as the table's index stores it; empty without one.
    pub rule: String,
}

/// Dead rows of a fragment of the base table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FragmentVector {
    /// Its id in the base table.
    pub id: u64,
    /// Rows of its data files.
    pub physical_rows: u64,
    /// Its data files with compared columns. Another fragment of the same id has others.
    pub key_files: Vec<String>,
    /// Offsets, a roaring bitmap in its portable form.
    pub dead: Vec<u8>,
    /// With a merge rule: the name of its deletion file, empty where it has none. A deleted row beats
    /// no other.
    pub deletion_file: String,
    /// With a merge rule: positions of rows of the SSTable that lose to a row of this fragment.
    pub beaten: Vec<u8>,
}

/// Dead rows of an older SSTable of the shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OlderSsTableVector {
    /// Its folder.
    pub path: String,
    /// Positions, a roaring bitmap in its portable form.
    pub dead: Vec<u8>,
    /// With a merge rule: positions of rows of the newer SSTable that lose to a row of this one.
    pub beaten: Vec<u8>,
}

impl SsTableVectors {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let fragments = self.fragments.iter().cloned().map(|fragment| FragmentMessage {
            id: fragment.id,
            physical_rows: fragment.physical_rows,
            key_files: fragment.key_files,
            dead: fragment.dead,
            deletion_file: fragment.deletion_file,
            beaten: fragment.beaten,
        });
        let sstables = self.sstables.iter().cloned().map(|sstable| RunMessage {
            path: sstable.path,
            dead: sstable.dead,
            beaten: sstable.beaten,
        });
        let message = VectorsMessage {
            format: VectorsMessage::FORMAT,
            base_version: self.base_version,
            key_fields: self.key_fields.clone(),
            fragments: fragments.collect(),
            sstables: sstables.collect(),
            tombstones: self.tombstones.clone(),
            rule: self.rule.clone(),
        };
        framed_file::encode(&message)
    }

    /// Reads the bytes of the file at `path`.
    ///
    /// # Errors
    /// Damage, or a format of a later version.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        let message: VectorsMessage = framed_file::decode(bytes, path)?;
        let fragments = message.fragments.into_iter().map(|fragment| FragmentVector {
            id: fragment.id,
            physical_rows: fragment.physical_rows,
            key_files: fragment.key_files,
            dead: fragment.dead,
            deletion_file: fragment.deletion_file,
            beaten: fragment.beaten,
        });
        let sstables = message.sstables.into_iter().map(|sstable| OlderSsTableVector {
            path: sstable.path,
            dead: sstable.dead,
            beaten: sstable.beaten,
        });
        Ok(Self {
            base_version: message.base_version,
            key_fields: message.key_fields,
            fragments: fragments.collect(),
            sstables: sstables.collect(),
            tombstones: message.tombstones,
            rule: message.rule,
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct VectorsMessage {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    base_version: u64,
    #[prost(int32, repeated, tag = "3")]
    key_fields: Vec<i32>,
    #[prost(message, repeated, tag = "4")]
    fragments: Vec<FragmentMessage>,
    #[prost(message, repeated, tag = "5")]
    sstables: Vec<RunMessage>,
    #[prost(bytes = "vec", optional, tag = "6")]
    tombstones: Option<Vec<u8>>,
    #[prost(string, tag = "7")]
    rule: String,
}

impl Framed for VectorsMessage {
    const MAGIC: &'static [u8; 8] = b"lmemdelv";
    const FORMAT: u32 = 1;
    const WHAT: &'static str = "a file of deletion vectors";

    fn format(&self) -> u32 {
        self.format
    }
}

#[derive(Clone, PartialEq, Message)]
struct FragmentMessage {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    physical_rows: u64,
    #[prost(string, repeated, tag = "3")]
    key_files: Vec<String>,
    #[prost(bytes = "vec", tag = "4")]
    dead: Vec<u8>,
    #[prost(string, tag = "5")]
    deletion_file: String,
    #[prost(bytes = "vec", tag = "6")]
    beaten: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RunMessage {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(bytes = "vec", tag = "2")]
    dead: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    beaten: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::framed_file::tests::{assert_damage_is_found, assert_format_2_is_refused};

    fn vectors() -> SsTableVectors {
        SsTableVectors {
            base_version: 7,
            key_fields: vec![0, 2],
            fragments: vec![FragmentVector {
                id: 5,
                physical_rows: 100,
                key_files: vec!["a.lance".to_owned(), "b.lance".to_owned()],
                dead: vec![1, 2, 3],
                ..FragmentVector::default()
            }],
            sstables: vec![OlderSsTableVector {
                path: "cc85c397_gen_1".to_owned(),
                dead: vec![4],
                beaten: Vec::new(),
            }],
            tombstones: Some(vec![5, 6]),
            rule: String::new(),
        }
    }

    fn ruled_vectors() -> SsTableVectors {
        let mut vectors = vectors();
        vectors.rule = r#"{"format":1,"engine":"deduplicate","sequence":[3]}"#.to_owned();
        vectors.key_fields.push(3);
        vectors.fragments[0].deletion_file = "7-5.arrow".to_owned();
        vectors.fragments[0].beaten = vec![7];
        vectors.sstables[0].beaten = vec![8, 9];
        vectors
    }

    #[test]
    fn the_bytes_are_those_of_the_golden_file() {
        let golden: &[u8] = include_bytes!("golden/run_vectors.binpb");
        assert_eq!(vectors().encode(), golden);
        assert_eq!(SsTableVectors::decode(golden, "x").unwrap(), vectors());
        let golden: &[u8] = include_bytes!("golden/ruled_run_vectors.binpb");
        assert_eq!(ruled_vectors().encode(), golden);
        assert_eq!(SsTableVectors::decode(golden, "x").unwrap(), ruled_vectors());
    }

    #[test]
    fn no_tombstones_and_unknown_tombstones_are_not_the_same() {
        for tombstones in [None, Some(Vec::new())] {
            let vectors = SsTableVectors { tombstones, ..SsTableVectors::default() };
            assert_eq!(SsTableVectors::decode(&vectors.encode(), "x").unwrap(), vectors);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_damage() {
        assert_damage_is_found(&vectors().encode(), |bytes| SsTableVectors::decode(bytes, "x"));
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let message = VectorsMessage { format: 2, ..VectorsMessage::default() };
        assert_format_2_is_refused(&message, |bytes| SsTableVectors::decode(bytes, "abc"));
    }
}
