//! Stored changes of a version of the base table: which rows a folder has, and which version they
//! belong to.
//!
//! Owns: the two messages (the field numbers are the format) with their Rust values, and the name
//! of stored rows in the properties of a transaction.
//! Does not own: the rows, which are a Lance dataset in that folder, or when anything is removed.

use std::fmt;
use std::str::FromStr;

use prost::Message;

use super::framed_file::{self, Framed};
use super::paths;
use crate::types::{Error, Result};

/// The key of a transaction's properties with the [`StoredRows`] of its version.
pub const CHANGES: &str = "lancemem.changelog";
/// The value of [`CHANGES`] where the version changes no row.
pub const NO_ROWS: &str = "none";

/// A folder of change rows, by its name and the checksum of the file that describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRows {
    /// 16 hex digits.
    pub name: String,
    /// CRC-32 (IEEE) of all bytes of the description.
    pub crc32: u32,
}

impl fmt::Display for StoredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:08x}", self.name, self.crc32)
    }
}

impl FromStr for StoredRows {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unreadable =
            || Error::corrupt("a transaction", "undecodable", format!("{CHANGES} is '{text}'"));
        let (name, crc32) = text.split_once('/').ok_or_else(unreadable)?;
        let digits = crc32.len() == 8 && crc32.bytes().all(|byte| byte.is_ascii_hexdigit());
        let crc32 = u32::from_str_radix(crc32, 16).ok().filter(|_| digits);
        match crc32 {
            Some(crc32) if paths::is_record_index_name(name) => {
                Ok(Self { name: name.to_owned(), crc32 })
            }
            _ => Err(unreadable()),
        }
    }
}

/// What a transaction records of the changes of its version.
///
/// # Errors
/// Damage for a text that is none.
pub fn parse_changes(text: &str) -> Result<Option<StoredRows>> {
    if text == NO_ROWS { Ok(None) } else { text.parse().map(Some) }
}

/// The description of the change rows in a folder. Never changes once it is written.
///
/// The rows are the images before, then the images after, each by fragment of the base table and
/// then by offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeRows {
    /// The version of the base table before the changes.
    pub base_version: u64,
    /// Fragments of that version that have images before, in the order of the rows.
    pub before: Vec<FragmentRows>,
    /// Fragments of the next version that have images after, in the order of the rows.
    pub after: Vec<FragmentRows>,
    /// Positions of the images of updates, a roaring bitmap in its portable form.
    pub updated: Vec<u8>,
    /// CRC-32 (IEEE) of the manifest of the rows. The manifest records those of the other files.
    pub manifest_crc32: u32,
}

/// The change rows of one fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentRows {
    /// Its id in the base table.
    pub id: u32,
    /// Its change rows.
    pub rows: u64,
}

impl ChangeRows {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let fragments = |of: &[FragmentRows]| {
            of.iter().map(|it| FragmentMessage { id: it.id, rows: it.rows }).collect()
        };
        framed_file::encode(&RowsMessage {
            format: RowsMessage::FORMAT,
            base_version: self.base_version,
            before: fragments(&self.before),
            after: fragments(&self.after),
            updated: self.updated.clone(),
            manifest_crc32: self.manifest_crc32,
        })
    }

    /// Reads the bytes of the file at `path`.
    ///
    /// # Errors
    /// Damage, or a format of a later version.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        let message: RowsMessage = framed_file::decode(bytes, path)?;
        let fragments = |of: Vec<FragmentMessage>| {
            of.into_iter().map(|it| FragmentRows { id: it.id, rows: it.rows }).collect()
        };
        Ok(Self {
            base_version: message.base_version,
            before: fragments(message.before),
            after: fragments(message.after),
            updated: message.updated,
            manifest_crc32: message.manifest_crc32,
        })
    }

    /// The number of rows; `None` for more than positions can count.
    #[must_use]
    pub fn rows(&self) -> Option<u32> {
        let mut rows = 0_u64;
        for fragment in self.before.iter().chain(&self.after) {
            rows = rows.checked_add(fragment.rows)?;
        }
        u32::try_from(rows).ok()
    }
}

/// The changes of a version, for readers after the version is gone. Never changes once it is
/// written, and every process writes the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedChanges {
    /// The version.
    pub version: u64,
    /// When it was committed, in nanoseconds since 1970.
    pub timestamp_nanos: u64,
    /// Lance's name of its operation.
    pub operation: String,
    /// Its change rows; `None` for a version that changes no row.
    pub rows: Option<StoredRows>,
}

impl PublishedChanges {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (name, crc32) = match &self.rows {
            Some(rows) => (rows.name.clone(), rows.crc32),
            None => (String::new(), 0),
        };
        framed_file::encode(&PublishedMessage {
            format: PublishedMessage::FORMAT,
            version: self.version,
            timestamp_nanos: self.timestamp_nanos,
            operation: self.operation.clone(),
            name,
            crc32,
        })
    }

    /// Reads the bytes of the file at `path`.
    ///
    /// # Errors
    /// Damage, or a format of a later version.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        let message: PublishedMessage = framed_file::decode(bytes, path)?;
        let rows = if message.name.is_empty() {
            None
        } else if paths::is_record_index_name(&message.name) {
            Some(StoredRows { name: message.name, crc32: message.crc32 })
        } else {
            let detail = format!("'{}' is not the name of stored changes", message.name);
            return Err(Error::corrupt(path, "undecodable", detail));
        };
        Ok(Self {
            version: message.version,
            timestamp_nanos: message.timestamp_nanos,
            operation: message.operation,
            rows,
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct RowsMessage {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    base_version: u64,
    #[prost(message, repeated, tag = "3")]
    before: Vec<FragmentMessage>,
    #[prost(message, repeated, tag = "4")]
    after: Vec<FragmentMessage>,
    #[prost(bytes = "vec", tag = "5")]
    updated: Vec<u8>,
    #[prost(fixed32, tag = "6")]
    manifest_crc32: u32,
}

impl Framed for RowsMessage {
    const MAGIC: &'static [u8; 8] = b"lmemchgs";
    const FORMAT: u32 = 1;
    const WHAT: &'static str = "a description of stored changes";

    fn format(&self) -> u32 {
        self.format
    }
}

#[derive(Clone, PartialEq, Message)]
struct FragmentMessage {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint64, tag = "2")]
    rows: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PublishedMessage {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    version: u64,
    #[prost(fixed64, tag = "3")]
    timestamp_nanos: u64,
    #[prost(string, tag = "4")]
    operation: String,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(fixed32, tag = "6")]
    crc32: u32,
}

impl Framed for PublishedMessage {
    const MAGIC: &'static [u8; 8] = b"lmemchgv";
    const FORMAT: u32 = 1;
    const WHAT: &'static str = "a publication of stored changes";

    fn format(&self) -> u32 {
        self.format
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::framed_file::tests::{assert_damage_is_found, assert_format_2_is_refused};

    fn stored() -> StoredRows {
        StoredRows { name: "0123456789abcdef".to_owned(), crc32: 0x0a0b_0c0d }
    }

    fn rows() -> ChangeRows {
        ChangeRows {
            base_version: 41,
            before: vec![FragmentRows { id: 0, rows: 3 }, FragmentRows { id: 7, rows: 200 }],
            after: vec![FragmentRows { id: 9, rows: 201 }],
            updated: vec![1, 2, 3],
            manifest_crc32: 0x0102_0304,
        }
    }

    fn published() -> PublishedChanges {
        PublishedChanges {
            version: 42,
            timestamp_nanos: 1_700_000_000_123_456_789,
            operation: "Update".to_owned(),
            rows: Some(stored()),
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_golden_files() {
        let golden: &[u8] = include_bytes!("golden/change_rows.binpb");
        assert_eq!(rows().encode(), golden);
        assert_eq!(ChangeRows::decode(golden, "x").unwrap(), rows());
        let golden: &[u8] = include_bytes!("golden/published_changes.binpb");
        assert_eq!(published().encode(), golden);
        assert_eq!(PublishedChanges::decode(golden, "x").unwrap(), published());
    }

    #[test]
    fn a_version_without_a_changed_row_names_no_folder() {
        let nothing = PublishedChanges { rows: None, ..published() };
        assert_eq!(PublishedChanges::decode(&nothing.encode(), "x").unwrap(), nothing);
    }

    #[test]
    fn a_published_name_cannot_lead_out_of_the_folder() {
        let rows = Some(StoredRows { name: "../../data".to_owned(), crc32: 1 });
        let bytes = PublishedChanges { rows, ..published() }.encode();
        assert!(PublishedChanges::decode(&bytes, "x").is_err());
    }

    #[test]
    fn the_property_of_a_transaction_reads_back() {
        assert_eq!(stored().to_string(), "0123456789abcdef/0a0b0c0d");
        assert_eq!(parse_changes(&stored().to_string()).unwrap(), Some(stored()));
        assert_eq!(parse_changes(NO_ROWS).unwrap(), None);
        for text in [
            "",
            "0123456789abcdef",
            "../x/0a0b0c0d",
            "0123456789abcdef/+a0b0c0",
            "0123456789abcdef/",
        ] {
            assert!(parse_changes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_rows_of_all_fragments_are_counted_up_to_the_last_position() {
        assert_eq!(rows().rows(), Some(404));
        let many = FragmentRows { id: 0, rows: u64::from(u32::MAX) };
        assert_eq!(
            ChangeRows { before: vec![many], ..ChangeRows::default() }.rows(),
            Some(u32::MAX)
        );
        assert_eq!(ChangeRows { before: vec![many], ..rows() }.rows(), None);
        let most = FragmentRows { id: 0, rows: u64::MAX };
        assert_eq!(ChangeRows { after: vec![most, most], ..rows() }.rows(), None);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_damage() {
        assert_damage_is_found(&rows().encode(), |bytes| ChangeRows::decode(bytes, "x"));
        assert_damage_is_found(&published().encode(), |bytes| PublishedChanges::decode(bytes, "x"));
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let message = RowsMessage { format: 2, ..RowsMessage::default() };
        assert_format_2_is_refused(&message, |bytes| ChangeRows::decode(bytes, "abc"));
        let message = PublishedMessage { format: 2, ..PublishedMessage::default() };
        assert_format_2_is_refused(&message, |bytes| PublishedChanges::decode(bytes, "abc"));
    }
}
