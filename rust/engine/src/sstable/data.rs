//! The data file of one SSTable.
//!
//! Owns: how rows reach lance's encoder, streamed and without a copy of large batches, and the
//! output that the bytes are written to.
//! Does not own: encodings and pages, which are lance's, or the manifest that names the file.

use std::num::NonZero;

use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{DataType, Field, SchemaRef};
use lance::dataset::WriteParams;
use lance::dataset::fragment::write::FragmentCreateBuilder;
use lance_core::datatypes::Schema;
use lance_core::{Error, Result};
use lance_file::version::ConcreteFileVersion;
use lance_file::versions::create_writer;
use lance_file::writer::{FileWriteSummary, FileWriter, FileWriterOptions};
use lance_io::traits::Writer;
use lance_table::format::{DataFile, Fragment};

use super::SsTableContext;
use super::checksums::{FileSum, Summed};
use super::chunks::{Chunks, window_bytes};
use super::local_file::LocalFile;
use super::sync;

/// The id of the one fragment of an SSTable.
pub(super) const FRAGMENT: u64 = 0;
/// Lance's folder of data files.
const FOLDER: &str = "data";
/// Field metadata of types whose stored form differs from the form in memory.
const EXTENSION: &str = "ARROW:extension:name";

/// Writes the batches as the data file of the SSTable in the folder `sstable`, and returns its
/// checksum. The file is not durable yet.
pub(super) async fn write_data(
    context: SsTableContext,
    sstable: String,
    schema: Schema,
    arrow_schema: SchemaRef,
    batches: Vec<RecordBatch>,
) -> Result<(Fragment, Vec<FileSum>)> {
    let own_form = arrow_schema.fields().iter().all(|field| is_stored_as_it_is(field));
    if context.storage_version == ConcreteFileVersion::V1 || !own_form {
        let fragment = write_converted(&context, &sstable, &schema, &arrow_schema, batches).await?;
        let folder = context.folder(&sstable);
        let file = |file: &DataFile| folder.clone().join(FOLDER).join(file.path.as_str());
        let files: Vec<_> = fragment.files.iter().map(file).collect();
        let sums = FileSum::of_all(&context.object_store, &folder, &files).await?;
        return Ok((fragment, sums));
    }
    let name = data_file_name()?;
    let path = context.folder(&sstable).join(FOLDER).join(name.as_str());
    let output: Box<dyn Writer> = match sync::local_path(&context.object_store, &path) {
        Some(local) => {
            Box::new(LocalFile::create(local, context.fsync, context.buffer_bytes).await?)
        }
        None => context.object_store.create(&path).await?,
    };
    let (output, sum) = Summed::new(output);
    // The batches outlive the writer, so it need not copy arrays that wait for the end of a page.
    let options = FileWriterOptions {
        // Lance divides this among the columns.
        data_cache_bytes: Some((context.buffer_bytes * arrow_schema.fields().len()) as u64),
        keep_original_array: Some(true),
        ..Default::default()
    };
    let mut writer = create_writer(context.storage_version, Box::new(output), schema, options)?;
    let (ids, columns) = columns_of(&writer)?;
    let written = match write_chunks(&mut writer, batches, context.buffer_bytes).await {
        Ok(written) => written,
        Err(error) => {
            writer.abort().await;
            return Err(error);
        }
    };
    let size = NonZero::new(written.size_bytes);
    let mut fragment = Fragment::new(FRAGMENT);
    fragment.physical_rows = usize::try_from(written.num_rows).ok();
    let not_closed = || Error::internal(format!("data file {name} was not closed"));
    let crc32 = *sum.get().ok_or_else(not_closed)?;
    let sum = FileSum { file: format!("{FOLDER}/{name}"), crc32 };
    let file = DataFile::new(name, ids, columns, context.storage_version, size, None);
    fragment.files.push(file);
    Ok((fragment, vec![sum]))
}

async fn write_chunks(
    writer: &mut FileWriter,
    batches: Vec<RecordBatch>,
    page_bytes: usize,
) -> Result<FileWriteSummary> {
    for chunk in Chunks::of(batches) {
        for piece in pieces(&chunk?, page_bytes) {
            writer.write_batch(&piece).await?;
        }
    }
    writer.finish().await
}

/// Pieces of at most about `most_bytes`: lance encodes one batch into one page, and a page is in
/// memory twice.
fn pieces(batch: &RecordBatch, most_bytes: usize) -> impl Iterator<Item = RecordBatch> {
    let rows = batch.num_rows();
    let count = window_bytes(batch).div_ceil(most_bytes).max(1);
    let step = rows.div_ceil(count).max(1);
    (0..rows).step_by(step).map(move |first| batch.slice(first, step.min(rows - first)))
}

/// Field ids, and the file's column of each.
fn columns_of(writer: &FileWriter) -> Result<(Vec<i32>, Vec<i32>)> {
    let signed = |number: u32| {
        let too_large = |_| Error::internal(format!("field or column {number} exceeds 2^31 - 1"));
        i32::try_from(number).map_err(too_large)
    };
    let pairs = writer.field_id_to_column_indices();
    let ids = pairs.iter().map(|(id, _)| signed(*id)).collect::<Result<_>>()?;
    let columns = pairs.iter().map(|(_, column)| signed(*column)).collect::<Result<_>>()?;
    Ok((ids, columns))
}

/// Whether the encoder takes the field's arrays unchanged. JSON, blobs and view types have another
/// form on disk, into which lance's fragment builder converts them.
fn is_stored_as_it_is(field: &Field) -> bool {
    if field.metadata().contains_key(EXTENSION) {
        return false;
    }
    match field.data_type() {
        DataType::Utf8View
        | DataType::BinaryView
        | DataType::ListView(_)
        | DataType::LargeListView(_) => false,
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _) => is_stored_as_it_is(child),
        DataType::Struct(children) => children.iter().all(|child| is_stored_as_it_is(child)),
        _ => true,
    }
}

/// The slower path through lance's fragment builder, which converts arrays to their stored form.
async fn write_converted(
    context: &SsTableContext,
    sstable: &str,
    schema: &Schema,
    arrow_schema: &SchemaRef,
    batches: Vec<RecordBatch>,
) -> Result<Fragment> {
    let params = WriteParams {
        // Row positions are offsets in one file.
        max_rows_per_file: usize::MAX,
        max_bytes_per_file: usize::MAX,
        data_storage_version: Some(context.storage_version.to_selector()),
        store_params: context.store_params(sstable),
        session: Some(context.session.clone()),
        ..Default::default()
    };
    let rows = RecordBatchIterator::new(Chunks::of(batches), arrow_schema.clone());
    // The fragment builder keeps the field ids of the given schema. A dataset that is created the
    // usual way gets new ids from 0.
    let uri = context.uri(sstable);
    let builder = FragmentCreateBuilder::new(&uri).schema(schema).write_params(&params);
    let mut fragments = Box::pin(builder.write_fragments(rows)).await?;
    match (fragments.pop(), fragments.pop()) {
        (Some(fragment), None) => Ok(Fragment { id: FRAGMENT, ..fragment }),
        _ => Err(Error::internal(format!("SSTable {uri} was not written as one fragment"))),
    }
}

/// A random name in the shape of lance's: 24 binary digits, which spread files over the
/// partitions of an object store, then hex digits.
///
/// # Errors
/// As [`random_number`].
pub fn data_file_name() -> Result<String> {
    let spread = random_number()? & 0x00ff_ffff;
    let [a, b, c] = [random_number()?, random_number()?, random_number()?];
    Ok(format!("{spread:024b}{a:08x}{b:08x}{c:08x}{:02x}.lance", random_number()? & 0xff))
}

/// 32 random bits from the operating system. A generator in this process would repeat its numbers
/// in each child of a fork, and two files with one name overwrite each other.
///
/// # Errors
/// A storage error where the system provides none.
pub fn random_number() -> Result<u32> {
    getrandom::u32().map_err(|error| Error::io(format!("drawing a random name: {error}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
    use arrow_select::concat::concat_batches;

    use super::{pieces, window_bytes};

    fn batch(rows: usize, bytes: usize) -> RecordBatch {
        let value = vec![7; bytes];
        let values: ArrayRef = Arc::new(BinaryArray::from_iter_values(vec![&value; rows]));
        RecordBatch::try_from_iter([("data", values)]).unwrap()
    }

    #[test]
    fn a_batch_that_is_larger_than_a_page_is_split_without_a_copy() {
        let whole = batch(1_000, 4_096);
        let split: Vec<_> = pieces(&whole, 1 << 20).collect();
        assert_eq!(split.len(), 4);
        assert!(split.iter().all(|piece| window_bytes(piece) < (1 << 20) + 4_096));
        assert_eq!(concat_batches(&whole.schema(), &split).unwrap(), whole);
        let buffer = |batch: &RecordBatch| batch.column(0).to_data().buffers()[1].as_ptr();
        assert_eq!(buffer(&split[3]), buffer(&whole));
    }

    #[test]
    fn a_row_that_is_larger_than_a_page_is_a_page() {
        let split: Vec<_> = pieces(&batch(3, 4_096), 100).collect();
        assert_eq!(split.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn a_small_batch_stays_whole() {
        let split: Vec<_> = pieces(&batch(1_000, 8), 8 << 20).collect();
        assert_eq!(split.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [1_000]);
        assert_eq!(pieces(&batch(0, 0), 100).count(), 0);
    }
}
