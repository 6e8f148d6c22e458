//! `unsynced/{shard id}`: a job with `fsync` off may have left files to the system's caches.
//!
//! Owns: the text, which records through which epoch all files of the shard's writers have been
//! synced since. The file is never removed: a removal could hit the note of a job that began
//! meanwhile.
//! Does not own: when it is written, or what is synced.

use crate::types::{ShardId, WriterEpoch};

/// The text of the file: all files of writers up to `through` are on disk; 0 where that is unknown.
#[must_use]
pub fn encode(shard: ShardId, through: WriterEpoch) -> String {
    let text = format!("{}\nsynced through epoch {through}\n", shard.as_hyphenated());
    let checksum = crc32fast::hash(text.as_bytes());
    format!("{text}crc32 {checksum:08x}\n")
}

/// The epoch that the bytes of the file record; 0 where they are not exactly such a text.
#[must_use]
pub fn decode(bytes: &[u8], shard: ShardId) -> WriterEpoch {
    let line = std::str::from_utf8(bytes).ok().and_then(|text| text.lines().nth(1));
    let digits = line.and_then(|line| line.strip_prefix("synced through epoch "));
    let through = digits.and_then(|digits| digits.parse().ok()).map(WriterEpoch);
    through.filter(|through| encode(shard, *through).as_bytes() == bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_text_itself_records_that_files_are_on_disk() {
        let (shard, through) = (ShardId::from_u128(7), WriterEpoch(12));
        let text = encode(shard, through);
        assert_eq!(
            text,
            "00000000-0000-0000-0000-000000000007\nsynced through epoch 12\ncrc32 460dc201\n"
        );
        assert_eq!(decode(text.as_bytes(), shard), through);
        assert_eq!(decode(text.as_bytes(), ShardId::from_u128(8)), WriterEpoch(0));
        for position in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[position] ^= 1 << bit;
                assert_eq!(decode(&bytes, shard), WriterEpoch(0), "byte {position}, bit {bit}");
            }
            assert_eq!(decode(&text.as_bytes()[..position], shard), WriterEpoch(0));
        }
    }
}
