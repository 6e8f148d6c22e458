//! The changes of one flush: which rows its folder has, and how many of each kind.
//!
//! Owns: the message (the field numbers are the format) and its Rust value.
//! Does not own: the rows, which are a Lance dataset in that folder, or when anything is removed.

use prost::Message;

use super::framed_file::{self, Framed};
use super::paths;
use crate::types::{Error, Generation, Result};

/// The changes of one generation of a shard. The first process that creates the file publishes
/// them, and the file never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedFlush {
    /// The generation.
    pub generation: Generation,
    /// The version of the base table that was looked at.
    pub base_version: u64,
    /// The random part of the name of the folder; empty where the generation changes no row.
    pub name: String,
    /// CRC-32 (IEEE) of the manifest of the rows. The manifest records those of the other files.
    pub manifest_crc32: u32,
    /// Inserted rows.
    pub inserted: u64,
    /// Updated rows: the images after an update.
    pub updated: u64,
    /// Deleted rows.
    pub deleted: u64,
    /// Rows of the folder, in which an update is two rows.
    pub rows: u64,
}

impl PublishedFlush {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        framed_file::encode(&FlushMessage {
            format: FlushMessage::FORMAT,
            generation: self.generation.get(),
            base_version: self.base_version,
            name: self.name.clone(),
            manifest_crc32: self.manifest_crc32,
            inserted: self.inserted,
            updated: self.updated,
            deleted: self.deleted,
            rows: self.rows,
        })
    }

    /// Reads the bytes of the file at `path`, which is of the generation `expected`.
    ///
    /// # Errors
    /// Damage, a file of another generation, or a format of a later version.
    pub fn decode(bytes: &[u8], path: &str, expected: Generation) -> Result<Self> {
        let message: FlushMessage = framed_file::decode(bytes, path)?;
        if message.generation != expected.get() {
            let detail = format!("it publishes the changes of generation {}", message.generation);
            return Err(Error::corrupt(path, "misplaced", detail));
        }
        if !message.name.is_empty() && !paths::is_record_index_name(&message.name) {
            let detail = format!("'{}' is not the name of stored changes", message.name);
            return Err(Error::corrupt(path, "undecodable", detail));
        }
        Ok(Self {
            generation: expected,
            base_version: message.base_version,
            name: message.name,
            manifest_crc32: message.manifest_crc32,
            inserted: message.inserted,
            updated: message.updated,
            deleted: message.deleted,
            rows: message.rows,
        })
    }

    /// The name of the folder of its rows in the folder of the shard; `None` where the generation
    /// changes no row.
    #[must_use]
    pub fn folder(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| paths::flushed_rows_name(self.generation, &self.name))
    }
}

#[derive(Clone, PartialEq, Message)]
struct FlushMessage {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    generation: u64,
    #[prost(uint64, tag = "3")]
    base_version: u64,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(fixed32, tag = "5")]
    manifest_crc32: u32,
    #[prost(uint64, tag = "6")]
    inserted: u64,
    #[prost(uint64, tag = "7")]
    updated: u64,
    #[prost(uint64, tag = "8")]
    deleted: u64,
    #[prost(uint64, tag = "9")]
    rows: u64,
}

impl Framed for FlushMessage {
    const MAGIC: &'static [u8; 8] = b"lmemchgf";
    const FORMAT: u32 = 1;
    const WHAT: &'static str = "a publication of the changes of a flush";

    fn format(&self) -> u32 {
        self.format
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::framed_file::tests::{assert_damage_is_found, assert_format_2_is_refused};

    fn published() -> PublishedFlush {
        PublishedFlush {
            generation: Generation(7),
            base_version: 41,
            name: "0123456789abcdef".to_owned(),
            manifest_crc32: 0x0102_0304,
            inserted: 300,
            updated: 2,
            deleted: 1,
            rows: 305,
        }
    }

    fn decode(bytes: &[u8]) -> Result<PublishedFlush> {
        PublishedFlush::decode(bytes, "abc", Generation(7))
    }

    #[test]
    fn the_bytes_are_those_of_the_golden_file() {
        let golden: &[u8] = include_bytes!("golden/published_flush.binpb");
        assert_eq!(published().encode(), golden);
        assert_eq!(decode(golden).unwrap(), published());
        assert_eq!(published().folder().unwrap(), "0000000000000007.0123456789abcdef");
    }

    #[test]
    fn a_generation_without_a_changed_row_has_no_folder() {
        let nothing =
            PublishedFlush { generation: Generation(7), base_version: 3, ..Default::default() };
        let read = decode(&nothing.encode()).unwrap();
        assert_eq!((read.folder(), read), (None, nothing));
    }

    #[test]
    fn a_file_of_another_generation_or_with_a_name_that_leads_away_is_damage() {
        let bytes = published().encode();
        let error = PublishedFlush::decode(&bytes, "abc", Generation(8)).unwrap_err().to_string();
        assert!(error.contains("generation 7"), "{error}");
        let away = PublishedFlush { name: "../../data".to_owned(), ..published() };
        assert!(decode(&away.encode()).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_damage_and_a_later_format_is_refused() {
        assert_damage_is_found(&published().encode(), decode);
        let message = FlushMessage { format: 2, generation: 7, ..FlushMessage::default() };
        assert_format_2_is_refused(&message, decode);
    }
}
