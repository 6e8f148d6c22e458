//! A checksum around a protobuf message, in fields that other readers skip.
//!
//! Owns: one field in front of the message and one behind it, each with the message's CRC-32. Two,
//! because a message with a single, damaged field would look like one without a checksum.
//! Does not own: the message, which upstream writes and reads without any of this.

use crate::types::{Error, Result};

/// The keys of fields 29,000,001 and 29,000,002, of four bytes each, as protobuf writes them.
const FRONT: [u8; 4] = [0x8d, 0x94, 0xd0, 0x6e];
const BACK: [u8; 4] = [0x95, 0x94, 0xd0, 0x6e];
/// A key and its value.
const FIELD: usize = 8;

/// The message with its checksum.
#[must_use]
pub fn seal(message: &[u8]) -> Vec<u8> {
    let checksum = crc32fast::hash(message).to_le_bytes();
    [&FRONT[..], &checksum, message, &BACK, &checksum].concat()
}

/// The message in `bytes`, verified where they have a checksum; `what` names the file in errors.
///
/// # Errors
/// Damage.
pub fn unseal<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [u8]> {
    let front = bytes.strip_prefix(&FRONT).and_then(|rest| rest.split_first_chunk::<4>());
    let back = bytes.split_last_chunk::<4>().filter(|(rest, _)| rest.ends_with(&BACK));
    if front.is_none() && back.is_none() {
        return Ok(bytes);
    }
    let message = bytes.get(FIELD..bytes.len().saturating_sub(FIELD)).unwrap_or_default();
    let computed = crc32fast::hash(message).to_le_bytes();
    let is_whole = front.is_some_and(|(stored, _)| *stored == computed)
        && back.is_some_and(|(_, stored)| *stored == computed);
    if is_whole || mutant!("B19-manifest") {
        return Ok(message);
    }
    let hex = |stored: Option<&[u8; 4]>| {
        stored.map_or_else(|| "none".to_owned(), |it| format!("{:08x}", u32::from_le_bytes(*it)))
    };
    let (front, back) = (front.map(|(stored, _)| stored), back.map(|(_, stored)| stored));
    let detail = format!(
        "expected {} (front) and {} (back), found {:08x}",
        hex(front),
        hex(back),
        u32::from_le_bytes(computed)
    );
    Err(Error::corrupt(what, "checksum", detail))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Eq, Message)]
    struct Sealed {
        #[prost(fixed32, tag = "29000001")]
        front: u32,
        #[prost(string, tag = "1")]
        text: String,
        #[prost(fixed32, tag = "29000002")]
        back: u32,
    }

    #[derive(Clone, PartialEq, Eq, Message)]
    struct Plain {
        #[prost(string, tag = "1")]
        text: String,
    }

    #[test]
    fn a_reader_that_knows_no_checksum_reads_the_message() {
        let message = Plain { text: "a shard".to_owned() };
        let sealed = seal(&message.encode_to_vec());
        assert_eq!(Plain::decode(&sealed[..]).unwrap(), message);
        let checksum = crc32fast::hash(&message.encode_to_vec());
        let fields = Sealed::decode(&sealed[..]).unwrap();
        assert_eq!((fields.front, fields.back), (checksum, checksum));
        assert_eq!(unseal(&sealed, "x").unwrap(), message.encode_to_vec());
    }

    #[test]
    fn a_message_without_a_checksum_is_accepted() {
        for message in [&b""[..], b"\x0a\x01x"] {
            assert_eq!(unseal(message, "x").unwrap(), message);
        }
    }

    #[test]
    fn an_empty_message_has_a_checksum_too() {
        assert_eq!(unseal(&seal(b""), "x").unwrap(), b"");
        assert!(unseal(&seal(b"")[..FIELD], "x").is_err());
    }
}
