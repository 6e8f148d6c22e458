//! A WAL entry: one Arrow IPC stream, followed by a trailer that other readers skip.
//!
//! Owns: encoding, decoding and the recognition of damage.
//! Does not own: the bytes behind the stream ([`wal_trailer`]), or fencing decisions.
//!
//! Layout: the IPC stream with `writer_epoch` and `generation` in its schema metadata, its
//! end-of-stream marker, and the trailer. Arrow readers stop at the marker, so lance reads such an
//! entry unchanged; entries that lance wrote have no trailer.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_ipc::{Message, RecordBatch as BatchMessage, root_as_message};
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};
use bytes::Bytes;

use super::cast::item_of;
use super::size::{arrays_of, payload_bytes};
use super::wal_trailer::{self, LogAddress};
use super::zero_width::{brings_too_many, holds_rows};
use crate::types::{Error, Generation, Result, Txns, WriterEpoch};

const WRITER_EPOCH: &str = "writer_epoch";
const GENERATION: &str = "generation";
const FENCE_SENTINEL: &str = "fence_sentinel";
/// Bytes of rows that are encoded at a time.
const PIECE_BYTES: usize = 64 << 20;
/// Approximate bytes of a stream beside its rows, and of the padding of one array's buffers.
const HEAD_BYTES: usize = 4_096;
const FILL_BYTES: usize = 256;
const CONTINUATION: [u8; 4] = [0xff; 4];
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// A decoded WAL entry.
#[derive(Clone, Debug)]
pub struct WalEntry {
    /// Epoch of the writer that appended it.
    pub writer_epoch: WriterEpoch,
    /// Generation of its rows; absent in entries of writers without a MemTable.
    pub generation: Option<Generation>,
    /// The transaction ids of its rows' writes.
    pub txns: Txns,
    /// Where it belongs; absent in entries of lance.
    pub place: Option<LogAddress>,
    /// Its rows in arrival order; empty for a fence sentinel.
    pub batches: Vec<RecordBatch>,
}

impl WalEntry {
    /// Whether it is a fence sentinel of lance. It may come late, behind entries of a later claim:
    /// lance takes the next free position and does not check whose entries it passes. It has no
    /// rows, so nothing is lost.
    #[must_use]
    pub fn is_fence_of_lance(&self) -> bool {
        self.batches.is_empty() && self.place.is_none()
    }
}

/// The bytes of an entry for `place` that holds `batches`, all of one schema and none empty.
///
/// # Errors
/// An internal error where the batches differ in schema or cannot be encoded.
pub fn encode(
    batches: &[RecordBatch],
    place: LogAddress,
    writer_epoch: WriterEpoch,
    generation: Generation,
) -> Result<Bytes> {
    encode_with_txns(batches, place, writer_epoch, generation, &Txns::default())
}

/// [`encode`] with the transaction ids of the writes that brought these rows.
///
/// # Errors
/// As [`encode`].
pub fn encode_with_txns(
    batches: &[RecordBatch],
    place: LogAddress,
    writer_epoch: WriterEpoch,
    generation: Generation,
    txns: &Txns,
) -> Result<Bytes> {
    let Some(first) = batches.first() else {
        return Err(Error::internal("a WAL entry needs at least one batch"));
    };
    let mut metadata = first.schema_ref().metadata().clone();
    metadata.insert(WRITER_EPOCH.to_owned(), writer_epoch.to_string());
    metadata.insert(GENERATION.to_owned(), generation.to_string());
    let mut bytes = encode_stream(first.schema_ref().fields().clone(), metadata, batches)?;
    wal_trailer::append(&mut bytes, txns, place);
    Ok(bytes.into())
}

/// The bytes of a fence sentinel for `place`: no rows, only the epoch that took the shard.
///
/// # Errors
/// An internal error where the encoder fails.
pub fn encode_sentinel(place: LogAddress, writer_epoch: WriterEpoch) -> Result<Bytes> {
    let metadata = HashMap::from([
        (WRITER_EPOCH.to_owned(), writer_epoch.to_string()),
        (FENCE_SENTINEL.to_owned(), "true".to_owned()),
    ]);
    let mut bytes = encode_stream(Fields::empty(), metadata, &[])?;
    wal_trailer::append(&mut bytes, &Txns::default(), place);
    Ok(bytes.into())
}

/// An IPC stream of these batches.
///
/// # Errors
/// An internal error where the encoder fails.
pub(super) fn encode_stream(
    fields: Fields,
    metadata: HashMap<String, String>,
    batches: &[RecordBatch],
) -> Result<Vec<u8>> {
    let failed = |error| {
        Error::internal(format!("a WAL entry could not be encoded: {error}")).with_source(error)
    };
    let bytes = Vec::with_capacity(batches.iter().map(encoded_bytes).sum::<usize>() + HEAD_BYTES);
    let schema = Schema::new_with_metadata(fields, metadata);
    let mut writer = StreamWriter::try_new(bytes, &schema).map_err(failed)?;
    for batch in batches {
        for piece in pieces(batch, PIECE_BYTES) {
            writer.write(&piece).map_err(failed)?;
        }
    }
    writer.into_inner().map_err(failed)
}

/// Bytes of an encoded batch, estimated from above: a buffer that is slightly too small is copied
/// into one of twice its size.
fn encoded_bytes(batch: &RecordBatch) -> usize {
    let arrays: usize = batch.schema_ref().fields().iter().map(|it| arrays_of(it)).sum();
    // The encoder writes a validity for each array, and fills each buffer up.
    payload_bytes(batch) + arrays * (batch.num_rows().div_ceil(8) + FILL_BYTES)
}

/// The rows of `batch` in batches of about `most` bytes. The encoder copies each batch before it
/// writes it: a copy of a large put would take as much memory again.
fn pieces(batch: &RecordBatch, most: usize) -> Vec<RecordBatch> {
    let (rows, bytes) = (batch.num_rows(), payload_bytes(batch));
    let shares = |field: &FieldRef| shares_buffers(field.data_type());
    if bytes <= most || rows <= 1 || batch.schema_ref().fields().iter().any(shares) {
        return vec![batch.clone()];
    }
    let step = (rows / bytes.div_ceil(most)).max(1);
    (0..rows).step_by(step).map(|from| batch.slice(from, step.min(rows - from))).collect()
}

/// Whether the encoder writes all values of an array of this type for any slice of it.
fn shares_buffers(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View
        | DataType::BinaryView
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Dictionary(_, _)
        | DataType::RunEndEncoded(_, _)
        | DataType::Union(_, _) => true,
        DataType::Struct(parts) => parts.iter().any(|part| shares_buffers(part.data_type())),
        DataType::Map(entries, _) => shares_buffers(entries.data_type()),
        other => item_of(other).is_some_and(|item| shares_buffers(item.data_type())),
    }
}

/// Reads the entry of `place` without copying its buffers.
///
/// # Errors
/// As [`decode`], and "misplaced" where it records another address.
pub fn decode_at(bytes: &Bytes, place: LogAddress) -> Result<WalEntry> {
    let entry = decode(bytes, &place.to_string())?;
    match entry.place {
        Some(own) if own != place && !mutant!("B19-place") => {
            Err(Error::corrupt(place.to_string(), "misplaced", format!("the object holds {own}")))
        }
        _ => Ok(entry),
    }
}

/// Reads an entry without copying its buffers, wherever it belongs; `what` names it in errors.
///
/// # Errors
/// Damage, named by kind: zero length, no end of stream, checksum, undecodable, no epoch.
pub fn decode(bytes: &Bytes, what: &str) -> Result<WalEntry> {
    if bytes.is_empty() {
        return Err(Error::corrupt(what, "zero length", "an entry is never empty"));
    }
    let split = wal_trailer::split(bytes, what)?;
    if !split.stream.ends_with(&END_OF_STREAM) && !mutant!("B19-cut") {
        let kind = if bytes.iter().all(|byte| *byte == 0) { "zero filled" } else { "cut short" };
        return Err(Error::corrupt(
            what,
            kind,
            format!("{} bytes without the end-of-stream marker", bytes.len()),
        ));
    }
    decode_stream(split, what)
}

/// Reads a damaged entry without verifying its checksum, for a report to the operator.
///
/// # Errors
/// Damage that leaves nothing to report.
pub fn decode_unchecked(bytes: &Bytes, what: &str) -> Result<WalEntry> {
    decode_stream(wal_trailer::split_unchecked(bytes, what), what)
}

/// Schema and batches of an IPC stream.
///
/// Arrow's reader panics on some damaged streams. Entries of lance have no checksum that would
/// catch them before, so a panic is damage like an error.
pub(super) fn read_stream(stream: Bytes, what: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let undecodable = |error| Error::corrupt(what, "undecodable", &error).with_source(error);
    if has_compressed(&stream) {
        return Err(Error::corrupt(
            what,
            "undecodable",
            "its buffers are compressed, which no writer of WAL entries does",
        ));
    }
    let read = AssertUnwindSafe(|| {
        let mut decoder = StreamDecoder::new();
        let mut buffer = Buffer::from(stream);
        let mut batches = Vec::new();
        while !buffer.is_empty() {
            match decoder.decode(&mut buffer).map_err(undecodable)? {
                Some(batch) if names_too_many(&batch) => {
                    let why = "a batch declares more values than its bytes hold";
                    return Err(Error::corrupt(what, "undecodable", why));
                }
                Some(batch) => batches.push(batch),
                None => break,
            }
        }
        // Values can look like the marker, so its bytes at the end do not prove a whole stream.
        decoder.finish().map_err(undecodable)?;
        let schema = decoder
            .schema()
            .ok_or_else(|| Error::corrupt(what, "undecodable", "the stream has no schema"))?;
        Ok((schema, batches))
    });
    catch_unwind(read)
        .unwrap_or_else(|_| Err(Error::corrupt(what, "undecodable", "the Arrow decoder panicked")))
}

/// Whether the batch declares too many zero-width rows or values: a reader would allocate missing
/// columns of the table for any number of them.
fn names_too_many(batch: &RecordBatch) -> bool {
    let rows = batch.num_rows() > 0 && !holds_rows(batch.schema_ref());
    rows || batch.columns().iter().any(|column| brings_too_many(column))
}

/// Whether a batch or a dictionary of the stream is compressed, which no writer of entries does. A
/// compressed buffer declares its full size, and the decoder allocates that size unchecked.
fn has_compressed(stream: &[u8]) -> bool {
    let mut rest = stream;
    while let Some((message, after)) = split_message(rest) {
        let dictionary = message.header_as_dictionary_batch().and_then(|it| it.data());
        let batches = [message.header_as_record_batch(), dictionary];
        if batches.iter().flatten().any(|batch: &BatchMessage<'_>| batch.compression().is_some()) {
            return true;
        }
        rest = after;
    }
    false
}

/// The next message, and the rest behind its body. `None` at the end and at damage, which the
/// decoder reports.
fn split_message(stream: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let (mut length, mut rest) = stream.split_first_chunk::<4>()?;
    if length == &CONTINUATION {
        (length, rest) = rest.split_first_chunk::<4>()?;
    }
    let length = u32::from_le_bytes(*length) as usize;
    let (header, rest) = rest.split_at_checked(length).filter(|_| length > 0)?;
    let message = root_as_message(header).ok()?;
    let body = usize::try_from(message.bodyLength()).ok()?;
    Some((message, rest.get(body..)?))
}

fn decode_stream(entry: wal_trailer::Split, what: &str) -> Result<WalEntry> {
    let wal_trailer::Split { stream, txns, place } = entry;
    let (schema, batches) = read_stream(stream, what)?;
    let number = |key: &str| -> Result<Option<u64>> {
        let Some(value) = schema.metadata().get(key) else { return Ok(None) };
        let parsed = value.parse().map_err(|_| {
            Error::corrupt(what, "undecodable", format!("{key} is '{value}', not a number"))
        })?;
        Ok(Some(parsed))
    };
    let writer_epoch = number(WRITER_EPOCH)?.ok_or_else(|| {
        Error::corrupt(what, "no writer epoch", "the schema metadata lacks writer_epoch")
    })?;
    Ok(WalEntry {
        writer_epoch: WriterEpoch(writer_epoch),
        generation: number(GENERATION)?.map(Generation),
        txns,
        place,
        batches: without_entry_metadata(batches),
    })
}

/// The batches with a schema without the entry's own metadata.
fn without_entry_metadata(batches: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let Some(first) = batches.first() else { return batches };
    let mut metadata = first.schema_ref().metadata().clone();
    for key in [WRITER_EPOCH, GENERATION, FENCE_SENTINEL] {
        metadata.remove(key);
    }
    let schema = Arc::new(Schema::new_with_metadata(first.schema_ref().fields().clone(), metadata));
    batches
        .into_iter()
        .map(|batch| {
            let (_, columns, rows) = batch.into_parts();
            let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(schema.clone(), columns, &options)
                .unwrap_or_else(|error| unreachable!("same fields, same columns: {error}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::slice;

    use arrow_array::{
        Array, ArrayRef, Int64Array, LargeListArray, NullArray, RecordBatchOptions, StringArray,
        StructArray,
    };
    use arrow_buffer::{OffsetBuffer, ScalarBuffer};
    use arrow_schema::{DataType, Field};
    use arrow_select::concat::concat_batches;

    use super::super::wal_trailer::{CHECKSUM_BYTES, TRAILER_BYTES};
    use super::*;
    use crate::types::{ShardId, WalPosition};

    const PLACE: LogAddress =
        LogAddress { shard_id: ShardId::from_u128(11), position: WalPosition(5) };

    fn batch(ids: &[i64]) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("s", DataType::Utf8, true),
        ]);
        let names: StringArray =
            ids.iter().map(|id| (id % 2 == 0).then(|| id.to_string())).collect();
        RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(Int64Array::from(ids.to_vec())), Arc::new(names)],
        )
        .unwrap()
    }

    fn entry() -> Bytes {
        let batches = [batch(&[1, 2, 3]), batch(&[4]), batch(&[5, 6])];
        encode(&batches, PLACE, WriterEpoch(7), Generation(3)).unwrap()
    }

    #[test]
    fn a_large_put_is_encoded_in_pieces_that_hold_its_rows_in_their_order() {
        let whole = batch(&(0..1_000).collect::<Vec<_>>());
        assert_eq!(pieces(&whole, payload_bytes(&whole)), slice::from_ref(&whole));
        let parts = pieces(&whole, payload_bytes(&whole) / 7);
        assert!((7..=9).contains(&parts.len()), "{}", parts.len());
        let read = encode(&parts, PLACE, WriterEpoch(7), Generation(3)).unwrap();
        let read = decode_at(&read, PLACE).unwrap().batches;
        assert_eq!(concat_batches(&whole.schema(), &read).unwrap(), whole);
    }

    #[test]
    fn the_buffer_of_an_entry_does_not_grow_while_it_is_encoded() {
        for rows in [1, 7, 1_000, 100_000] {
            let batch = batch(&(0..rows).collect::<Vec<_>>());
            let encoded =
                encode(slice::from_ref(&batch), PLACE, WriterEpoch(7), Generation(3)).unwrap();
            assert!(encoded.len() <= encoded_bytes(&batch) + HEAD_BYTES, "{rows} rows");
        }
    }

    #[test]
    fn an_entry_reads_back_with_its_epoch_generation_and_rows() {
        let read = decode_at(&entry(), PLACE).unwrap();
        assert_eq!(read.place, Some(PLACE));
        assert_eq!(read.writer_epoch, WriterEpoch(7));
        assert_eq!(read.generation, Some(Generation(3)));
        assert_eq!(read.batches, [batch(&[1, 2, 3]), batch(&[4]), batch(&[5, 6])]);
    }

    #[test]
    fn a_sentinel_has_an_epoch_and_no_rows() {
        let read = decode_at(&encode_sentinel(PLACE, WriterEpoch(9)).unwrap(), PLACE).unwrap();
        assert_eq!(read.writer_epoch, WriterEpoch(9));
        assert!(read.generation.is_none());
        assert!(read.batches.is_empty());
    }

    #[test]
    fn an_entry_reads_back_with_its_transaction_ids_and_the_rows_do_not_carry_them() {
        let mut txns = Txns::default();
        txns.record("query: \u{e9}", -3);
        txns.record("b", i64::MAX);
        let bytes = encode_with_txns(&[batch(&[1])], PLACE, WriterEpoch(7), Generation(3), &txns);
        let read = decode_at(&bytes.unwrap(), PLACE).unwrap();
        assert_eq!(read.txns, txns);
        assert_eq!(read.batches, [batch(&[1])]);
    }

    #[test]
    fn an_entry_without_a_trailer_is_read_because_lance_writes_none() {
        let bytes = entry();
        let read = decode_at(&bytes.slice(..bytes.len() - TRAILER_BYTES), PLACE).unwrap();
        assert_eq!((read.batches.len(), read.place), (3, None));
    }

    #[test]
    fn an_entry_in_the_place_of_another_names_the_place_that_it_records() {
        let other_shard = ShardId::from_u128(12);
        for place in [
            LogAddress { position: WalPosition(6), ..PLACE },
            LogAddress { shard_id: other_shard, ..PLACE },
        ] {
            let error = decode_at(&entry(), place).unwrap_err().to_string();
            assert!(
                error.contains("misplaced") && error.contains(&format!("holds {PLACE}")),
                "{error}"
            );
            assert!(error.contains(&place.to_string()), "{error}");
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_golden_file_and_older_bytes_without_a_place_are_read() {
        let mut txns = Txns::default();
        txns.record("stream", 4);
        let rows = [batch(&[1, 2])];
        let bytes = encode_with_txns(&rows, PLACE, WriterEpoch(7), Generation(3), &txns).unwrap();
        let golden: &[u8] = include_bytes!("golden/wal_entry.arrow");
        assert_eq!(bytes, golden);
        let before: &[u8] = include_bytes!("golden/wal_entry_unplaced.arrow");
        let read = decode_at(&Bytes::from_static(before), PLACE).unwrap();
        assert_eq!((read.place, read.txns, &read.batches[..]), (None, txns, &rows[..]));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = entry();
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.to_vec();
                damaged[position] ^= 1 << bit;
                assert!(decode(&damaged.into(), "e").is_err(), "byte {position}, bit {bit}");
            }
        }
    }

    #[test]
    fn zeros_behind_a_checksum_whose_last_byte_is_zero_are_noticed() {
        let entry_of = |id| encode(&[batch(&[id])], PLACE, WriterEpoch(7), Generation(3)).unwrap();
        let bytes = (0..100_000).map(entry_of).find(|bytes| bytes[bytes.len() - 5] == 0).unwrap();
        let mut damaged = bytes.to_vec();
        damaged[bytes.len() - 5..].fill(0);
        let error = decode(&damaged.into(), "e").unwrap_err().to_string();
        assert!(error.contains("checksum") && error.contains("records 0 bytes"), "{error}");
    }

    #[test]
    fn every_cut_but_that_of_the_trailer_alone_is_noticed() {
        let bytes = entry();
        let whole_stream = bytes.len() - TRAILER_BYTES;
        for length in (0..bytes.len()).filter(|length| *length != whole_stream) {
            assert!(decode(&bytes.slice(..length), "e").is_err(), "cut at {length}");
        }
    }

    #[test]
    fn no_message_of_an_entry_is_passed_over() {
        let entry = entry();
        let (mut messages, mut rest) = (0, &entry[..]);
        while let Some((_, after)) = split_message(rest) {
            (messages, rest) = (messages + 1, after);
        }
        assert_eq!(messages, 4, "a schema and three batches");
        assert!(rest.starts_with(&END_OF_STREAM));
    }

    #[test]
    fn more_rows_or_values_than_there_are_bytes_for_are_refused() {
        let many = 1 << 40;
        let item = Arc::new(Field::new_list_field(DataType::Null, true));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0_i64, many]));
        let many = usize::try_from(many).unwrap();
        let nulls = Arc::new(NullArray::new(many));
        let columns: [(Option<ArrayRef>, usize); 4] = [
            (None, many),
            (Some(nulls.clone()), many),
            (Some(Arc::new(StructArray::new_empty_fields(many, None))), many),
            (Some(Arc::new(LargeListArray::new(item, offsets, nulls, None))), 1),
        ];
        for (column, rows) in columns {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let fields: Vec<Field> =
                column.iter().map(|it| Field::new("v", it.data_type().clone(), true)).collect();
            let metadata = HashMap::from([(WRITER_EPOCH.to_owned(), "1".to_owned())]);
            let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
            let columns = column.into_iter().collect();
            let batch = RecordBatch::try_new_with_options(schema, columns, &options).unwrap();
            let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
            writer.write(&batch).unwrap();
            let error = decode(&writer.into_inner().unwrap().into(), "x").unwrap_err();
            assert!(error.to_string().contains("than its bytes hold"), "{error}");
        }
    }

    #[test]
    fn an_entry_that_is_shorter_than_its_checksum_is_cut_short() {
        let whole = entry();
        let checksum = whole.slice(whole.len() - CHECKSUM_BYTES..);
        for length in 1..CHECKSUM_BYTES {
            let error = decode(&checksum.slice(..length), "x").unwrap_err();
            assert!(error.to_string().contains("cut short"), "{length}: {error}");
            assert!(decode_unchecked(&checksum.slice(..length), "x").is_err());
        }
    }

    #[test]
    fn a_zero_filled_entry_is_named_so() {
        let error = decode(&vec![0; 4096].into(), "e").unwrap_err();
        assert!(error.to_string().contains("zero filled"), "{error}");
    }
}
