//! A WAL entry: one Arrow IPC stream, followed by a checksum that other readers skip.
//!
//! Owns: encoding, decoding and the recognition of damage.
//! Does not own: positions or fencing decisions.
//!
//! Layout: the IPC stream with `writer_epoch` and `generation` in its schema metadata, its
//! end-of-stream marker, the marks of its rows if they have some, then 16 bytes: the magic
//! `lmemcrc1`, CRC-32 (IEEE) of all before it and the stream's length modulo 2^32, both
//! little-endian. Arrow readers stop at the marker, so
//! lance reads such an entry unchanged; entries that lance wrote have no checksum.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_ipc::{Message, RecordBatch as BatchMessage, root_as_message};
use arrow_schema::{Fields, Schema, SchemaRef};
use bytes::Bytes;

use super::hollow::{brings_too_many, holds_rows};
use super::size::payload_bytes;
use crate::types::{Error, Generation, Marks, Result, WriterEpoch};

const WRITER_EPOCH: &str = "writer_epoch";
const GENERATION: &str = "generation";
const FENCE_SENTINEL: &str = "fence_sentinel";
const TRAILER_MAGIC: &[u8; 8] = b"lmemcrc1";
const TRAILER_BYTES: usize = 16;
const MARKS_MAGIC: &[u8; 8] = b"lmemmrk1";
const CONTINUATION: [u8; 4] = [0xff; 4];
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// A decoded WAL entry.
#[derive(Clone, Debug)]
pub struct WalEntry {
    /// Epoch of the writer that appended it.
    pub writer_epoch: WriterEpoch,
    /// Generation of its rows; absent in entries of writers without a MemTable.
    pub generation: Option<Generation>,
    /// The marks of its rows' writes.
    pub marks: Marks,
    /// Its rows in arrival order; empty for a fence sentinel.
    pub batches: Vec<RecordBatch>,
}

/// The bytes of an entry that holds `batches`, all of one schema and none empty.
///
/// # Errors
/// An internal error where the batches differ in schema or cannot be encoded.
pub fn encode(
    batches: &[RecordBatch],
    writer_epoch: WriterEpoch,
    generation: Generation,
) -> Result<Bytes> {
    encode_marked(batches, writer_epoch, generation, &Marks::default())
}

/// [`encode`] with the marks of the writes that brought these rows.
///
/// # Errors
/// As [`encode`].
pub fn encode_marked(
    batches: &[RecordBatch],
    writer_epoch: WriterEpoch,
    generation: Generation,
    marks: &Marks,
) -> Result<Bytes> {
    let Some(first) = batches.first() else {
        return Err(Error::Internal("a WAL entry needs at least one batch".to_owned()));
    };
    let mut metadata = first.schema_ref().metadata().clone();
    metadata.insert(WRITER_EPOCH.to_owned(), writer_epoch.to_string());
    metadata.insert(GENERATION.to_owned(), generation.to_string());
    encode_stream(first.schema_ref().fields().clone(), metadata, batches, marks)
}

/// The bytes of a fence sentinel: no rows, only the epoch that took the shard.
///
/// # Errors
/// An internal error where the encoder fails.
pub fn encode_sentinel(writer_epoch: WriterEpoch) -> Result<Bytes> {
    let metadata = HashMap::from([
        (WRITER_EPOCH.to_owned(), writer_epoch.to_string()),
        (FENCE_SENTINEL.to_owned(), "true".to_owned()),
    ]);
    encode_stream(Fields::empty(), metadata, &[], &Marks::default())
}

fn encode_stream(
    fields: Fields,
    metadata: HashMap<String, String>,
    batches: &[RecordBatch],
    marks: &Marks,
) -> Result<Bytes> {
    let failed = |error| Error::Internal(format!("a WAL entry could not be encoded: {error}"));
    let payload: usize = batches.iter().map(payload_bytes).sum();
    let schema = Schema::new_with_metadata(fields, metadata);
    let mut writer =
        StreamWriter::try_new(Vec::with_capacity(payload + 4096), &schema).map_err(failed)?;
    for batch in batches {
        writer.write(batch).map_err(failed)?;
    }
    let mut bytes = writer.into_inner().map_err(failed)?;
    let length = low_word(bytes.len());
    append_marks(&mut bytes, marks);
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(TRAILER_MAGIC);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    Ok(bytes.into())
}

/// Puts the marks behind the stream, where no Arrow reader looks: lance replays an entry only
/// where the metadata of its schema is what lance knows.
fn append_marks(bytes: &mut Vec<u8>, marks: &Marks) {
    if marks.is_empty() {
        return;
    }
    let start = bytes.len();
    for (application, version) in marks.iter() {
        bytes.extend_from_slice(&low_word(application.len()).to_le_bytes());
        bytes.extend_from_slice(application.as_bytes());
        bytes.extend_from_slice(&version.to_le_bytes());
    }
    let length = low_word(bytes.len() - start);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(MARKS_MAGIC);
}

fn low_word(number: usize) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or_default()
}

/// The stream of `body` and the marks behind it.
fn split_marks(body: Bytes, what: &str) -> Result<(Bytes, Marks)> {
    let mut marks = Marks::default();
    if !body.ends_with(MARKS_MAGIC) {
        return Ok((body, marks));
    }
    let broken = || Error::corrupt(what, "undecodable", "its marks are cut short");
    let mut end = body.len() - MARKS_MAGIC.len();
    let length: [u8; 4] = take_end(&body, &mut end).ok_or_else(broken)?;
    let start = end.checked_sub(u32::from_le_bytes(length) as usize).ok_or_else(broken)?;
    let mut rest = &body[start..end];
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (name, after) = after.split_at_checked(length).ok_or_else(broken)?;
        let (version, after) = after.split_first_chunk::<8>().ok_or_else(broken)?;
        let name = std::str::from_utf8(name).map_err(|_| broken())?;
        marks.record(name, i64::from_le_bytes(*version));
        rest = after;
    }
    Ok((body.slice(..start), marks))
}

fn take_end<const N: usize>(bytes: &[u8], end: &mut usize) -> Option<[u8; N]> {
    let start = end.checked_sub(N)?;
    let taken = bytes.get(start..*end)?.try_into().ok();
    *end = start;
    taken
}

/// Reads an entry without copying its buffers; `what` names it in errors.
///
/// # Errors
/// Damage, named by kind: zero length, no end of stream, checksum, undecodable, no epoch.
pub fn decode(bytes: &Bytes, what: &str) -> Result<WalEntry> {
    let (stream, marks) = checked_stream(bytes, what)?;
    decode_stream(stream, marks, what)
}

/// Reads what a damaged entry says, past its checksum, for a person who has to decide.
///
/// # Errors
/// Damage that leaves nothing to say.
pub fn decode_unchecked(bytes: &Bytes, what: &str) -> Result<WalEntry> {
    let split = bytes.len().saturating_sub(TRAILER_BYTES);
    let has_trailer = bytes[split..].starts_with(TRAILER_MAGIC);
    let body = if has_trailer { bytes.slice(..split) } else { bytes.clone() };
    let (stream, marks) = split_marks(body.clone(), what).unwrap_or((body, Marks::default()));
    decode_stream(stream, marks, what)
}

/// Schema and batches of an IPC stream.
///
/// The reader of arrow panics on some damaged streams. An entry that lance wrote has no checksum
/// that would keep them from it, so a panic is damage like an error.
fn read_stream(stream: Bytes, what: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let undecodable = |error| Error::corrupt(what, "undecodable", error);
    if has_compressed(&stream) {
        return Err(Error::corrupt(what, "undecodable", "its buffers are compressed"));
    }
    let read = AssertUnwindSafe(|| {
        let mut decoder = StreamDecoder::new();
        let mut buffer = Buffer::from(stream);
        let mut batches = Vec::new();
        while !buffer.is_empty() {
            match decoder.decode(&mut buffer).map_err(undecodable)? {
                Some(batch) if names_too_many(&batch) => {
                    let why = "more values than its bytes hold";
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
        .unwrap_or_else(|_| Err(Error::corrupt(what, "undecodable", "its stream is not valid")))
}

/// Whether rows or values that hold nothing are too many: what a table has and they lack would be
/// made for any number of them.
fn names_too_many(batch: &RecordBatch) -> bool {
    let rows = batch.num_rows() > 0 && !holds_rows(batch.schema_ref());
    rows || batch.columns().iter().any(|column| brings_too_many(column))
}

/// Whether a batch or a dictionary of the stream is compressed, which no writer of entries does. Such a
/// buffer says how large it will be, and the decoder asks for that much memory, whatever it is.
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

/// The next message, and what is behind its body. `None` at the end, and at damage, which the decoder names.
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

fn decode_stream(stream: Bytes, marks: Marks, what: &str) -> Result<WalEntry> {
    let (schema, batches) = read_stream(stream, what)?;
    let number = |key: &str| -> Result<Option<u64>> {
        let Some(value) = schema.metadata().get(key) else { return Ok(None) };
        let parsed = value.parse().map_err(|_| {
            Error::corrupt(what, "undecodable", format!("{key} is '{value}', not a number"))
        })?;
        Ok(Some(parsed))
    };
    let writer_epoch = number(WRITER_EPOCH)?
        .ok_or_else(|| Error::corrupt(what, "no writer epoch", "schema metadata lacks it"))?;
    Ok(WalEntry {
        writer_epoch: WriterEpoch(writer_epoch),
        generation: number(GENERATION)?.map(Generation),
        marks,
        batches: without_entry_metadata(batches),
    })
}

/// The IPC stream of an entry after the checks that need no decoding, and its marks.
fn checked_stream(bytes: &Bytes, what: &str) -> Result<(Bytes, Marks)> {
    if bytes.is_empty() {
        return Err(Error::corrupt(what, "zero length", "an entry is never empty"));
    }
    // What is shorter than a trailer has none, whatever it begins with.
    let trailer = bytes.last_chunk::<TRAILER_BYTES>();
    let trailer = trailer.filter(|trailer| trailer.starts_with(TRAILER_MAGIC));
    let (stream, marks) = if let Some(trailer) = trailer {
        let body = bytes.slice(..bytes.len() - TRAILER_BYTES);
        let stored = u32::from_le_bytes([trailer[8], trailer[9], trailer[10], trailer[11]]);
        let computed = crc32fast::hash(&body);
        if stored != computed && !mutant!("B19-checksum") {
            return Err(Error::corrupt(
                what,
                "checksum",
                format!("stored {stored:08x}, computed {computed:08x}"),
            ));
        }
        split_marks(body, what)?
    } else {
        (bytes.clone(), Marks::default())
    };
    if !stream.ends_with(&END_OF_STREAM) && !mutant!("B19-cut") {
        let kind = if bytes.iter().all(|byte| *byte == 0) { "zero filled" } else { "cut short" };
        return Err(Error::corrupt(
            what,
            kind,
            format!("{} bytes without the end-of-stream marker", bytes.len()),
        ));
    }
    Ok((stream, marks))
}

/// The batches with a schema that no longer carries what the entry says about itself.
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
    use arrow_array::{
        Array, ArrayRef, Int64Array, LargeListArray, NullArray, RecordBatchOptions, StringArray,
        StructArray,
    };
    use arrow_buffer::{OffsetBuffer, ScalarBuffer};
    use arrow_schema::{DataType, Field};

    use super::*;

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
        encode(&batches, WriterEpoch(7), Generation(3)).unwrap()
    }

    #[test]
    fn an_entry_reads_back_with_its_epoch_generation_and_rows() {
        let read = decode(&entry(), "e").unwrap();
        assert_eq!(read.writer_epoch, WriterEpoch(7));
        assert_eq!(read.generation, Some(Generation(3)));
        assert_eq!(read.batches, [batch(&[1, 2, 3]), batch(&[4]), batch(&[5, 6])]);
    }

    #[test]
    fn a_sentinel_has_an_epoch_and_no_rows() {
        let read = decode(&encode_sentinel(WriterEpoch(9)).unwrap(), "e").unwrap();
        assert_eq!(read.writer_epoch, WriterEpoch(9));
        assert!(read.generation.is_none());
        assert!(read.batches.is_empty());
    }

    #[test]
    fn an_entry_reads_back_with_its_marks_and_the_rows_do_not_carry_them() {
        let mut marks = Marks::default();
        marks.record("query: \u{e9}", -3);
        marks.record("b", i64::MAX);
        let bytes = encode_marked(&[batch(&[1])], WriterEpoch(7), Generation(3), &marks).unwrap();
        let read = decode(&bytes, "e").unwrap();
        assert_eq!(read.marks, marks);
        assert_eq!(read.batches, [batch(&[1])]);
    }

    #[test]
    fn an_entry_without_a_checksum_is_read_because_lance_writes_none() {
        let bytes = entry();
        let read = decode(&bytes.slice(..bytes.len() - TRAILER_BYTES), "e").unwrap();
        assert_eq!(read.batches.len(), 3);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = entry();
        for position in 0..bytes.len() - 4 {
            let mut damaged = bytes.to_vec();
            damaged[position] ^= 1;
            assert!(decode(&damaged.into(), "e").is_err(), "byte {position}");
        }
    }

    #[test]
    fn every_cut_but_that_of_the_checksum_alone_is_noticed() {
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
        let trailer = whole.slice(whole.len() - TRAILER_BYTES..);
        for length in 1..TRAILER_BYTES {
            let error = decode(&trailer.slice(..length), "x").unwrap_err();
            assert!(error.to_string().contains("cut short"), "{length}: {error}");
            assert!(decode_unchecked(&trailer.slice(..length), "x").is_err());
        }
    }

    #[test]
    fn a_zero_filled_entry_is_named_so() {
        let error = decode(&vec![0; 4096].into(), "e").unwrap_err();
        assert!(error.to_string().contains("zero filled"), "{error}");
    }
}
