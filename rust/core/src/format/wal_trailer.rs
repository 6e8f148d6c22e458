//! The trailer behind the stream of a WAL entry: transaction ids of its rows, its place, a
//! checksum.
//!
//! Owns: these bytes and their checks.
//! Does not own: the stream, or what becomes of an entry that stands in another's place.
//!
//! Layout, numbers little-endian: the transaction ids if there are some; the shard's 16 bytes, the
//! position and the magic `lmempos1`; the magic `lmemcrc1`, CRC-32 (IEEE) of all bytes before it
//! and the stream's length modulo 2^32. Entries of earlier versions have no place: behind the
//! transaction ids comes the magic `lmemcrc1`.

use std::fmt;

use bytes::Bytes;

use crate::types::{Error, Result, ShardId, Txns, WalPosition};

/// Bytes of a trailer without transaction ids.
pub const TRAILER_BYTES: usize = PLACE_BYTES + CHECKSUM_BYTES;

const CHECKSUM_MAGIC: &[u8; 8] = b"lmemcrc1";
pub(super) const CHECKSUM_BYTES: usize = 16;
const PLACE_MAGIC: &[u8; 8] = b"lmempos1";
const PLACE_BYTES: usize = 32;
const TXNS_MAGIC: &[u8; 8] = b"lmemmrk1";

/// Where an entry stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogAddress {
    /// The shard in whose log it is.
    pub shard_id: ShardId,
    /// Its position there.
    pub position: WalPosition,
}

impl fmt::Display for LogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WAL entry {} of shard {}", self.position, self.shard_id)
    }
}

/// The parts of an entry.
#[derive(Debug)]
pub(super) struct Split {
    /// Everything before the trailer.
    pub stream: Bytes,
    pub txns: Txns,
    pub place: Option<LogAddress>,
}

/// Puts the trailer behind the stream in `bytes`.
///
/// In the metadata of the stream's schema the same fields would keep lance from replaying the
/// entry, because lance compares schemas. No Arrow reader looks behind the stream.
pub(super) fn append(bytes: &mut Vec<u8>, txns: &Txns, place: LogAddress) {
    let length = low_word(bytes.len());
    append_txns(bytes, txns);
    bytes.extend_from_slice(place.shard_id.as_bytes());
    bytes.extend_from_slice(&place.position.get().to_le_bytes());
    bytes.extend_from_slice(PLACE_MAGIC);
    let checksum = crc32fast::hash(bytes);
    bytes.extend_from_slice(CHECKSUM_MAGIC);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
}

fn append_txns(bytes: &mut Vec<u8>, txns: &Txns) {
    if txns.is_empty() {
        return;
    }
    let start = bytes.len();
    for (app_id, version) in txns.iter() {
        bytes.extend_from_slice(&low_word(app_id.len()).to_le_bytes());
        bytes.extend_from_slice(app_id.as_bytes());
        bytes.extend_from_slice(&version.to_le_bytes());
    }
    let length = low_word(bytes.len() - start);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(TXNS_MAGIC);
}

fn low_word(number: usize) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or_default()
}

/// The parts of an entry, its checksum and length verified where it has them; `what` names the
/// entry in errors.
///
/// The checksum does not cover the length, so the length is compared by itself.
///
/// # Errors
/// Damage.
pub(super) fn split(bytes: &Bytes, what: &str) -> Result<Split> {
    // Bytes that do not end in a checksum are an entry of lance, or are cut short.
    let Some((body, stored, length)) = split_checksum(bytes) else {
        return Ok(Split { stream: bytes.clone(), txns: Txns::default(), place: None });
    };
    let computed = crc32fast::hash(&body);
    if stored != computed && !mutant!("B19-checksum") {
        let detail = format!("expected {stored:08x}, found {computed:08x}");
        return Err(Error::corrupt(what, "checksum", detail));
    }
    let (body, place) = split_place(body);
    let (stream, txns) = split_txns(body, what)?;
    if length != low_word(stream.len()) {
        let detail =
            format!("the trailer records {length} bytes of stream, found {}", stream.len());
        return Err(Error::corrupt(what, "checksum", detail));
    }
    Ok(Split { stream, txns, place })
}

/// The parts of an entry that is damaged, as far as they can be told apart.
pub(super) fn split_unchecked(bytes: &Bytes, what: &str) -> Split {
    let body = split_checksum(bytes).map_or_else(|| bytes.clone(), |(body, ..)| body);
    let (body, place) = split_place(body);
    let (stream, txns) = split_txns(body.clone(), what).unwrap_or((body, Txns::default()));
    Split { stream, txns, place }
}

/// All before the checksum, the checksum, and the stream's length behind it.
fn split_checksum(bytes: &Bytes) -> Option<(Bytes, u32, u32)> {
    let mut end = bytes.len();
    let length = u32::from_le_bytes(take_end(bytes, &mut end)?);
    let checksum = u32::from_le_bytes(take_end(bytes, &mut end)?);
    let magic: [u8; CHECKSUM_MAGIC.len()] = take_end(bytes, &mut end)?;
    (&magic == CHECKSUM_MAGIC).then(|| (bytes.slice(..end), checksum, length))
}

fn split_place(body: Bytes) -> (Bytes, Option<LogAddress>) {
    let Some((rest, place)) =
        body.split_last_chunk::<PLACE_BYTES>().filter(|(_, place)| place.ends_with(PLACE_MAGIC))
    else {
        return (body, None);
    };
    let (mut shard, mut position) = ([0; 16], [0; 8]);
    shard.copy_from_slice(&place[..16]);
    position.copy_from_slice(&place[16..24]);
    let position = WalPosition(u64::from_le_bytes(position));
    let place = LogAddress { shard_id: ShardId::from_bytes(shard), position };
    (body.slice(..rest.len()), Some(place))
}

/// The stream of `body` and the transaction ids behind it.
fn split_txns(body: Bytes, what: &str) -> Result<(Bytes, Txns)> {
    let mut txns = Txns::default();
    if !body.ends_with(TXNS_MAGIC) {
        return Ok((body, txns));
    }
    let broken = || Error::corrupt(what, "undecodable", "its transaction ids are cut short");
    let mut end = body.len() - TXNS_MAGIC.len();
    let length: [u8; 4] = take_end(&body, &mut end).ok_or_else(broken)?;
    let start = end.checked_sub(u32::from_le_bytes(length) as usize).ok_or_else(broken)?;
    let mut rest = &body[start..end];
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (name, after) = after.split_at_checked(length).ok_or_else(broken)?;
        let (version, after) = after.split_first_chunk::<8>().ok_or_else(broken)?;
        let name = std::str::from_utf8(name).map_err(|_| broken())?;
        txns.record(name, i64::from_le_bytes(*version));
        rest = after;
    }
    Ok((body.slice(..start), txns))
}

fn take_end<const N: usize>(bytes: &[u8], end: &mut usize) -> Option<[u8; N]> {
    let start = end.checked_sub(N)?;
    let taken = bytes.get(start..*end)?.try_into().ok();
    *end = start;
    taken
}
