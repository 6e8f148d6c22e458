//! The deletes that a table remembers after their compaction: which folders have them.
//!
//! Owns: the list of these folders, the text that the configuration of the base table stores.
//! Does not own: the deletes, which are a Lance dataset in each folder, or when one is forgotten.

use std::fmt;
use std::str::FromStr;

use super::paths;
use crate::types::{Error, Result};

/// The key of the base table's configuration with the [`GraveList`] of a version.
pub const GRAVES: &str = "lancemem.graves";

/// The format that this code reads and writes.
const FORMAT: &str = "1";

/// The folders of remembered deletes of one version of the base table. Of several records of a key
/// the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraveList {
    /// The checksum of the merge rule that compared the deletes, eight hex digits.
    pub rule: String,
    /// The folders, oldest first.
    pub folders: Vec<GraveFolder>,
}

/// A folder of remembered deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraveFolder {
    /// Its name, of the form of [`paths::grave_folder`].
    pub name: String,
    /// CRC-32 (IEEE) of the manifest of the dataset. The manifest records those of the other files.
    pub manifest_crc32: u32,
    /// When its newest delete was compacted, in milliseconds since 1970.
    pub newest_ms: u64,
}

impl fmt::Display for GraveList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORMAT} {}", self.rule)?;
        for GraveFolder { name, manifest_crc32, newest_ms } in &self.folders {
            write!(f, " {name}/{manifest_crc32:08x}/{newest_ms}")?;
        }
        Ok(())
    }
}

impl FromStr for GraveList {
    type Err = Error;

    /// # Errors
    /// Damage, or a format of a later version.
    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split(' ');
        let format = words.next().unwrap_or_default();
        if format != FORMAT && !format.is_empty() && format.bytes().all(|it| it.is_ascii_digit()) {
            let detail = format!("its format is {format}, this build reads format {FORMAT}");
            return Err(Error::corrupt(GRAVES, "format", detail));
        }
        let unreadable = || Error::corrupt(GRAVES, "undecodable", format!("it is '{text}'"));
        let rule = words.next().filter(|rule| format == FORMAT && crc32_of(rule).is_some());
        let rule = rule.ok_or_else(unreadable)?.to_owned();
        let folders = words.map(|word| folder_of(word).ok_or_else(unreadable));
        Ok(Self { rule, folders: folders.collect::<Result<_>>()? })
    }
}

fn folder_of(word: &str) -> Option<GraveFolder> {
    let (name, rest) = word.split_once('/')?;
    let (crc32, newest_ms) = rest.split_once('/')?;
    paths::parse_grave_folder(name)?;
    let is_number = newest_ms.bytes().all(|byte| byte.is_ascii_digit());
    let newest_ms = newest_ms.parse().ok().filter(|_| is_number)?;
    Some(GraveFolder { name: name.to_owned(), manifest_crc32: crc32_of(crc32)?, newest_ms })
}

fn crc32_of(text: &str) -> Option<u32> {
    let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(version: u64, newest_ms: u64) -> GraveFolder {
        let name = paths::grave_folder(version, "0123456789abcdef");
        GraveFolder { name, manifest_crc32: 0x0a0b_0c0d, newest_ms }
    }

    fn list() -> GraveList {
        let folders = vec![folder(7, 1_700_000_000_123), folder(42, 1_700_000_600_000)];
        GraveList { rule: "00c0ffee".to_owned(), folders }
    }

    #[test]
    fn the_text_is_that_of_the_golden_file() {
        let golden = include_str!("golden/graves.txt").trim_end();
        assert_eq!(list().to_string(), golden);
        assert_eq!(golden.parse::<GraveList>().unwrap(), list());
    }

    #[test]
    fn a_list_without_folders_reads_back() {
        let empty = GraveList { folders: Vec::new(), ..list() };
        assert_eq!(empty.to_string().parse::<GraveList>().unwrap(), empty);
    }

    #[test]
    fn a_text_that_is_no_list_is_damage_that_names_the_key() {
        let whole = list().to_string();
        for text in [
            "",
            "1",
            "1 ",
            "x 00c0ffee",
            "1 00c0ffe",
            "1 00c0ffee ",
            "1 00c0ffee 0000000000000007.0123456789abcdef/0a0b0c0d",
            "1 00c0ffee 0000000000000007.0123456789abcdef/0a0b0c0d/+5",
            "1 00c0ffee 0000000000000007.0123456789abcdef/0a0b0c0d/",
            "1 00c0ffee 0000000000000007.0123456789abcdef/0a0b0c/5",
            "1 00c0ffee ../../data/0a0b0c0d/5",
            "1 00c0ffee 7.0123456789abcdef/0a0b0c0d/5",
            &format!("{whole}x"),
            &whole.replace(' ', "  "),
        ] {
            let error = text.parse::<GraveList>().unwrap_err().to_string();
            assert!(error.contains(GRAVES), "{text}: {error}");
        }
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let error = "2 more".parse::<GraveList>().unwrap_err().to_string();
        assert!(error.contains(GRAVES) && error.contains("format is 2"), "{error}");
    }
}
