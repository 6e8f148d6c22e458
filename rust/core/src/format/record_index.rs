//! What one sorted run of the record index covers: a small file that publishes the run.
//!
//! Owns: the message (the field numbers are the format) and its Rust value.
//! Does not own: the pages of a run, which are a Lance B-tree, or whether the run is still valid
//! for a version of the base table.

use prost::Message;

use super::framed_file::{self, Framed};
use super::paths;
use crate::types::Result;

/// Bytes of a file of pages that have a checksum of their own; the last block of a file may be
/// shorter.
pub const PAGE_BLOCK_BYTES: usize = 65_536;

/// A sorted run of the record index. Never changes once it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordIndexRun {
    /// The version of the base table that it was made of. For information only: the fragments
    /// decide what is valid.
    pub base_version: u64,
    /// Field ids of the key columns in primary-key order.
    pub key_fields: Vec<i32>,
    /// Entries in its pages, one for each row of each fragment, deleted ones included.
    pub entries: u64,
    /// What it covers; empty in a run that only records that the table has a record index.
    pub fragments: Vec<IndexedFragment>,
    /// Its files of pages; empty in a run of an earlier version, whose pages are read unverified.
    pub page_files: Vec<PageFile>,
}

/// A file of the pages of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageFile {
    /// Its name in the folder of the pages.
    pub name: String,
    /// CRC-32 (IEEE) of its bytes.
    pub crc32: u32,
    /// Its size; 0 where `blocks` is empty.
    pub bytes: u64,
    /// CRC-32 (IEEE) of each of its blocks of [`PAGE_BLOCK_BYTES`]; empty in a run of an earlier
    /// version, and where nothing read the file before the run was published.
    pub blocks: Vec<u32>,
}

impl PageFile {
    /// Whether every block has a checksum, so that a reader compares what it reads and no more.
    #[must_use]
    pub const fn has_blocks(&self) -> bool {
        let blocks = self.blocks.len() as u64;
        blocks > 0 && blocks == self.bytes.div_ceil(PAGE_BLOCK_BYTES as u64)
    }
}

/// A fragment of the base table whose rows a run has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexedFragment {
    /// The upper half of its rows' addresses in the pages: 0 in pages that were an SSTable's.
    pub in_sstable: u32,
    /// Its id in the base table.
    pub id: u64,
    /// Rows of its data files.
    pub physical_rows: u64,
    /// Its data files with key columns. Another fragment of the same id has others.
    pub key_files: Vec<String>,
}

impl RecordIndexRun {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let fragments = self.fragments.iter().map(|fragment| FragmentMessage {
            in_sstable: fragment.in_sstable,
            id: fragment.id,
            physical_rows: fragment.physical_rows,
            key_files: fragment.key_files.clone(),
        });
        let page_files = self.page_files.iter().cloned();
        let page_files = page_files.map(|PageFile { name, crc32, bytes, blocks }| {
            PageFileMessage { name, crc32, bytes, blocks }
        });
        let message = RunMessage {
            format: RunMessage::FORMAT,
            base_version: self.base_version,
            key_fields: self.key_fields.clone(),
            entries: self.entries,
            fragments: fragments.collect(),
            page_files: page_files.collect(),
        };
        framed_file::encode(&message)
    }

    /// Reads the bytes of the file `name`.
    ///
    /// # Errors
    /// Damage, or a format of a later version.
    pub fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let message: RunMessage = framed_file::decode(bytes, &paths::record_index_run(name))?;
        let fragments = message.fragments.into_iter().map(|fragment| IndexedFragment {
            in_sstable: fragment.in_sstable,
            id: fragment.id,
            physical_rows: fragment.physical_rows,
            key_files: fragment.key_files,
        });
        let page_files = message.page_files.into_iter();
        let page_files = page_files.map(|PageFileMessage { name, crc32, bytes, blocks }| {
            PageFile { name, crc32, bytes, blocks }
        });
        Ok(Self {
            base_version: message.base_version,
            key_fields: message.key_fields,
            entries: message.entries,
            fragments: fragments.collect(),
            page_files: page_files.collect(),
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct RunMessage {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    base_version: u64,
    #[prost(int32, repeated, tag = "3")]
    key_fields: Vec<i32>,
    #[prost(uint64, tag = "4")]
    entries: u64,
    #[prost(message, repeated, tag = "5")]
    fragments: Vec<FragmentMessage>,
    #[prost(message, repeated, tag = "6")]
    page_files: Vec<PageFileMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct PageFileMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(fixed32, tag = "2")]
    crc32: u32,
    #[prost(uint64, tag = "3")]
    bytes: u64,
    #[prost(fixed32, repeated, tag = "4")]
    blocks: Vec<u32>,
}

impl Framed for RunMessage {
    const MAGIC: &'static [u8; 8] = b"lmemridx";
    const FORMAT: u32 = 1;
    const WHAT: &'static str = "a sorted run of the record index";

    fn format(&self) -> u32 {
        self.format
    }
}

#[derive(Clone, PartialEq, Message)]
struct FragmentMessage {
    #[prost(uint32, tag = "1")]
    in_sstable: u32,
    #[prost(uint64, tag = "2")]
    id: u64,
    #[prost(uint64, tag = "3")]
    physical_rows: u64,
    #[prost(string, repeated, tag = "4")]
    key_files: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::framed_file::tests::{assert_damage_is_found, assert_format_2_is_refused};

    fn run() -> RecordIndexRun {
        RecordIndexRun {
            base_version: 7,
            key_fields: vec![0, 2],
            entries: 300,
            fragments: vec![
                IndexedFragment {
                    in_sstable: 0,
                    id: 5,
                    physical_rows: 100,
                    key_files: vec!["a.lance".to_owned()],
                },
                IndexedFragment {
                    in_sstable: 6,
                    id: 6,
                    physical_rows: 200,
                    key_files: vec!["b.lance".to_owned(), "c.lance".to_owned()],
                },
            ],
            page_files: vec![
                file("page_data.lance", 0x0102_0304, 131_073, &[0x1112_1314, 0, 0xf1f2_f3f4]),
                file("page_lookup.lance", 0xfffe_fdfc, 700, &[0xfffe_fdfc]),
            ],
        }
    }

    fn file(name: &str, crc32: u32, bytes: u64, blocks: &[u32]) -> PageFile {
        PageFile { name: name.to_owned(), crc32, bytes, blocks: blocks.to_vec() }
    }

    #[test]
    fn the_bytes_of_a_run_are_those_of_the_golden_file() {
        let golden: &[u8] = include_bytes!("golden/record_index_run_blocks.binpb");
        assert_eq!(run().encode(), golden);
        assert_eq!(RecordIndexRun::decode(golden, "x").unwrap(), run());
        assert!(run().page_files.iter().all(PageFile::has_blocks));
    }

    #[test]
    fn a_run_with_checksums_of_whole_files_alone_reads_as_it_was_written() {
        let golden: &[u8] = include_bytes!("golden/record_index_run.binpb");
        let files = [("page_data.lance", 0x0102_0304), ("page_lookup.lance", 0xfffe_fdfc)];
        let page_files = files.map(|(name, crc32)| file(name, crc32, 0, &[])).to_vec();
        let before = RecordIndexRun { page_files, ..run() };
        assert_eq!(RecordIndexRun::decode(golden, "x").unwrap(), before);
        assert_eq!(before.encode(), golden);
        assert!(!before.page_files.iter().any(PageFile::has_blocks));
    }

    #[test]
    fn a_file_has_blocks_where_there_is_a_checksum_for_each() {
        for (bytes, blocks, whole) in
            [(0, 0, false), (1, 1, true), (65_536, 1, true), (65_537, 1, false), (65_537, 2, true)]
        {
            assert_eq!(file("a", 0, bytes, &vec![7; blocks]).has_blocks(), whole, "{bytes}");
        }
    }

    #[test]
    fn a_run_without_checksums_of_its_pages_reads_as_it_was_written() {
        let golden: &[u8] = include_bytes!("golden/record_index_run_unsummed.binpb");
        let before = RecordIndexRun { page_files: Vec::new(), ..run() };
        assert_eq!(RecordIndexRun::decode(golden, "x").unwrap(), before);
        assert_eq!(before.encode(), golden);
    }

    #[test]
    fn a_run_that_only_records_that_there_is_an_index_reads_back() {
        let empty = RecordIndexRun::default();
        assert_eq!(RecordIndexRun::decode(&empty.encode(), "x").unwrap(), empty);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_damage() {
        assert_damage_is_found(&run().encode(), |bytes| RecordIndexRun::decode(bytes, "x"));
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let message = RunMessage { format: 2, ..RunMessage::default() };
        assert_format_2_is_refused(&message, |bytes| RecordIndexRun::decode(bytes, "abc"));
    }
}
