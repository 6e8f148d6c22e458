//! The frame of a small file that never changes: a magic of eight bytes, a message, a checksum.
//!
//! Owns: the frame, its checks, and the refusal of a format of another version.
//! Does not own: the messages, or where the files lie.

use prost::Message;

use crate::types::{Error, Result};

const CHECKSUM_BYTES: usize = 4;

/// The message of such a file.
pub(super) trait Framed: Message + Default {
    /// The file's first bytes.
    const MAGIC: &'static [u8; 8];
    /// The format that this code writes. A file of another format is not read.
    const FORMAT: u32;
    /// What the file is called in errors, with its article.
    const WHAT: &'static str;

    /// The format of this message.
    fn format(&self) -> u32;
}

/// The bytes of a file.
pub(super) fn encode<M: Framed>(message: &M) -> Vec<u8> {
    let mut bytes = M::MAGIC.to_vec();
    bytes.extend(message.encode_to_vec());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// The message in the bytes of the file at `path`.
///
/// # Errors
/// Damage, or a format of a later version.
pub(super) fn decode<M: Framed>(bytes: &[u8], path: &str) -> Result<M> {
    let damaged = |kind, detail: String| Error::corrupt(path, kind, detail);
    let (body, checksum) = bytes
        .split_last_chunk::<CHECKSUM_BYTES>()
        .filter(|(body, _)| body.starts_with(M::MAGIC))
        .ok_or_else(|| {
            damaged("magic", format!("it does not start with the magic of {}", M::WHAT))
        })?;
    let (expected, found) = (u32::from_le_bytes(*checksum), crc32fast::hash(body));
    if found != expected {
        return Err(damaged("checksum", format!("expected {expected:08x}, found {found:08x}")));
    }
    let message = M::decode(&body[M::MAGIC.len()..])
        .map_err(|error| damaged("undecodable", error.to_string()))?;
    if message.format() != M::FORMAT {
        let (found, known) = (message.format(), M::FORMAT);
        return Err(damaged(
            "format",
            format!("its format is {found}, this build reads format {known}"),
        ));
    }
    Ok(message)
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Framed, encode};
    use crate::types::Result;

    /// Every flipped bit and every cut of a file is damage.
    pub fn assert_damage_is_found<T>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T>) {
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.to_vec();
                damaged[place] ^= 1 << bit;
                assert!(decode(&damaged).is_err(), "byte {place} bit {bit}");
            }
            assert!(decode(&bytes[..place]).is_err(), "{place} bytes");
        }
    }

    /// A message of format 2 is refused by name, a file `abc`.
    pub fn assert_format_2_is_refused<M: Framed, T: std::fmt::Debug>(
        message: &M,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) {
        let error = decode(&encode(message)).unwrap_err().to_string();
        assert!(error.contains("abc") && error.contains("format is 2"), "{error}");
    }
}
