//! New sorted runs of the record index.
//!
//! Owns: a run built from base fragments, by one sort of their keys; a run linked from the key
//! index of an SSTable whose file became a fragment; the order of pages, sync and publication.
//! Does not own: which fragments need a run, or which runs are removed (`table`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema};
use futures::StreamExt;
use futures::future::try_join_all;
use lance::Dataset;
use lance::dataset::mem_wal::util::pk_index_path;
use lance_core::Result as LanceResult;
use lance_io::object_store::ObjectStore;
use lance_table::format::Fragment;
use lancemem_core::format::{IndexedFragment, KeyEncoder, PageFile, RecordIndexRun, paths};
use lancemem_core::store::Store;
use lancemem_core::types::{Error, KeyBlock, MaxBytes, Result};
use object_store::path::Path;

use super::key_columns::{column_batches, fragment_of, key_files, key_ids};
use super::open::below;
use super::pages::{LOOKUP, PAGES};
use crate::errors::{BaseContext, Context};
use crate::row_address::address_half;
use crate::sstable::{
    BlockSums, FileSum, Linked, PageMaker, PageStream, is_ours, link, local_path, page_stream,
    random_number, sync_folders, write_pages,
};
use crate::stages::{Stage, StageName};

const ACTION: &str = "building the record index";
/// Most rows of a built run. A build uses about 40 bytes of memory for each row, and its key. A
/// fragment with more rows is a run of its own.
const RUN_ROWS: u64 = 8 << 20;

/// A run whose pages are written and synced, but which is not published yet.
#[derive(Debug)]
pub struct NewRun {
    /// Its name.
    pub name: String,
    run: RecordIndexRun,
}

impl NewRun {
    /// Publishes the run: from here on readers use it.
    ///
    /// # Errors
    /// A storage error.
    pub async fn publish(self, store: &Store) -> Result<()> {
        let path = paths::record_index_run(&self.name);
        store.put_once(&path, self.run.encode().into(), MaxBytes::MANIFEST).await
    }
}

/// The fragments in groups, of which each becomes one run.
#[must_use]
pub fn groups(fragments: impl IntoIterator<Item = Fragment>) -> Vec<Vec<Fragment>> {
    let mut groups: Vec<(u64, Vec<Fragment>)> = Vec::new();
    for fragment in fragments {
        let rows = fragment.physical_rows.unwrap_or_default() as u64;
        match groups.last_mut() {
            Some((sum, group)) if *sum + rows <= RUN_ROWS => {
                *sum += rows;
                group.push(fragment);
            }
            _ => groups.push((rows, vec![fragment])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The pages of a run that is being written.
pub(super) struct NewPages {
    name: String,
    store: Arc<ObjectStore>,
    folder: Path,
    base_version: u64,
    key_fields: Vec<i32>,
}

impl NewPages {
    /// No pages yet, of a new run of the table of `base`.
    pub async fn new(base: &Dataset, key: &[String]) -> Result<Self> {
        let name = new_name()?;
        Ok(Self {
            store: base.object_store(None).await.context(ACTION)?,
            folder: pages_of(base, &name),
            name,
            base_version: base.version().version,
            key_fields: key_ids(base, key),
        })
    }

    /// Writes pages until their sender is dropped, and returns the paths of the files.
    pub async fn write(&self, stream: PageStream) -> LanceResult<Vec<Path>> {
        write_pages(self.store.clone(), &self.folder, stream).await
    }

    /// Makes the files durable, and computes their checksums.
    pub async fn seal(&self, files: &[Path]) -> Result<Vec<PageFile>> {
        let sums = files.iter().map(|file| BlockSums::of(&self.store, &self.folder, file));
        let sums = try_join_all(sums).await.context(ACTION)?;
        sync_folders(&self.store, std::slice::from_ref(&self.folder)).await.context(ACTION)?;
        Ok(sums.into_iter().map(with_blocks).collect())
    }

    /// The run, which has one entry for each row of `fragments`.
    pub fn into_run(self, fragments: Vec<IndexedFragment>, page_files: Vec<PageFile>) -> NewRun {
        let run = RecordIndexRun {
            base_version: self.base_version,
            key_fields: self.key_fields,
            entries: fragments.iter().map(|fragment| fragment.physical_rows).sum(),
            fragments,
            page_files,
        };
        NewRun { name: self.name, run }
    }

    /// Removes the written files. Best effort: a collection removes what is left.
    pub async fn remove(&self) {
        if let Err(error) = self.store.remove_dir_all(self.folder.clone()).await {
            tracing::debug!(folder = %self.folder, %error, "unpublished pages were not removed");
        }
    }
}

/// Writes a run over the rows of `fragments`, deleted ones included. Without fragments the run is
/// empty; it only marks that the table has a record index.
///
/// # Errors
/// A storage error, or an input error for more than 2^32 - 1 rows.
pub async fn build(base: &Dataset, key: &[String], fragments: &[Fragment]) -> Result<NewRun> {
    let total: usize = fragments.iter().filter_map(|fragment| fragment.physical_rows).sum();
    let stage = Stage::begin(StageName::IndexRows, total);
    let pages = NewPages::new(base, key).await?;
    let mut covered = Vec::with_capacity(fragments.len());
    let mut rows = Rows { batches: Vec::new(), keys: KeyBlock::default(), starts: Vec::new() };
    for fragment in fragments {
        let id = address_half(fragment.id)?;
        let before = rows.keys.len();
        rows.starts.push((before, id));
        read_fragment(base, key, fragment.id, &mut rows, &stage).await?;
        covered.push(IndexedFragment {
            in_sstable: id,
            id: fragment.id,
            physical_rows: (rows.keys.len() - before) as u64,
            key_files: key_files(fragment, &pages.key_fields),
        });
    }
    if u32::try_from(rows.keys.len()).is_err() {
        return Err(Error::input(format!(
            "a run of the record index is limited to 2^32 - 1 rows, got {}; rewrite the base table \
             in smaller fragments",
            rows.keys.len()
        )));
    }
    let Some(first) = rows.batches.first() else {
        return Ok(pages.into_run(covered, Vec::new()));
    };
    let (maker, stream) = page_stream(first.schema_ref());
    let sorted = tokio::task::spawn_blocking(move || rows.send(maker));
    let written = Box::pin(pages.write(stream)).await;
    let made = sorted
        .await
        .map_err(|error| Error::internal(format!("{ACTION}: {error}")).with_source(error))?;
    made.context(ACTION)?;
    let page_files = pages.seal(&written.context(ACTION)?).await?;
    Ok(pages.into_run(covered, page_files))
}

/// Whether the key index of an SSTable may become a run: an SSTable that lance wrote may have a key
/// index that lacks rows.
#[must_use]
pub fn is_ours_to_link(sstable: &Dataset) -> bool {
    is_ours(sstable)
}

/// Makes the key index of `sstable` a run over `fragment`, the fragment that its data file became;
/// `None` where its files do not match their checksums. Files are copied only where they cannot be
/// linked.
///
/// # Errors
/// A storage error.
pub async fn link_file(
    base: &Dataset,
    key: &[String],
    sstable: &Dataset,
    fragment: &Fragment,
) -> Result<Option<NewRun>> {
    let action = "linking a key index into the record index";
    let pages = NewPages::new(base, key).await?;
    let old = pk_index_path(&sstable.branch_location().path);
    let mut files = Vec::new();
    for file in [PAGES, LOOKUP] {
        let (from, to) = (old.clone().join(file), pages.folder.clone().join(file));
        if link(&pages.store, &from, &to).await.context(action)? == Linked::NotHere {
            pages.store.copy(&from, &to).await.context(action)?;
        }
        files.push(to);
    }
    let page_files = linked_files(&pages, FileSum::of_key_index(sstable), &files).await?;
    let Some(page_files) = page_files else {
        tracing::warn!(folder = %old, "checksum mismatch in a key index; its pages are not linked");
        pages.remove().await;
        return Ok(None);
    };
    let covered = IndexedFragment {
        in_sstable: 0,
        id: fragment.id,
        physical_rows: fragment.physical_rows.unwrap_or_default() as u64,
        key_files: key_files(fragment, &pages.key_fields),
    };
    Ok(Some(pages.into_run(vec![covered], page_files)))
}

/// The page files of a run from linked files, compared with the checksums `sums` of their SSTable's
/// manifest; `None` where one differs. On an object store no file is read, and without checksums
/// there is nothing to compare.
async fn linked_files(
    pages: &NewPages,
    sums: Vec<FileSum>,
    files: &[Path],
) -> Result<Option<Vec<PageFile>>> {
    let is_local = local_path(&pages.store, &pages.folder).is_some();
    if !is_local || sums.len() != files.len() {
        sync_folders(&pages.store, std::slice::from_ref(&pages.folder)).await.context(ACTION)?;
        let files = sums.into_iter();
        let files = files.map(|FileSum { file: name, crc32 }| PageFile {
            name,
            crc32,
            ..PageFile::default()
        });
        return Ok(Some(files.collect()));
    }
    let found = pages.seal(files).await?;
    let is_recorded =
        |file: &PageFile| sums.iter().any(|sum| sum.file == file.name && sum.crc32 == file.crc32);
    Ok(found.iter().all(is_recorded).then_some(found))
}

fn with_blocks(sums: BlockSums) -> PageFile {
    let BlockSums { sum: FileSum { file: name, crc32 }, bytes, blocks } = sums;
    PageFile { name, crc32, bytes, blocks }
}

/// The keys of some fragments, in the order in which they were read.
struct Rows {
    /// Only the key columns, in primary-key order.
    batches: Vec<RecordBatch>,
    /// The same keys, encoded.
    keys: KeyBlock,
    /// The first row of each fragment, and its id.
    starts: Vec<(usize, u32)>,
}

impl Rows {
    /// Sorts, and sends the pages.
    fn send(self, maker: PageMaker) -> LanceResult<()> {
        let Self { batches, keys, starts } = self;
        let sorted = sorted_rows(&keys);
        drop(keys);
        let address = |row: u32| {
            let piece = starts.partition_point(|(start, _)| *start <= row as usize) - 1;
            let (start, fragment) = starts[piece];
            (u64::from(fragment) << 32) | (row as usize - start) as u64
        };
        maker.make_all(&batches, &sorted, address).map(|_| ())
    }
}

/// Positions of the keys in key order; equal keys by position.
fn sorted_rows(keys: &KeyBlock) -> Vec<u32> {
    let mut rows: Vec<(u64, u32)> = keys.iter().map(key_prefix).zip(0..).collect();
    rows.sort_unstable_by(|(prefix, row), (other_prefix, other)| {
        let whole = || keys.get(*row as usize).cmp(keys.get(*other as usize));
        prefix.cmp(other_prefix).then_with(whole).then(row.cmp(other))
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The eight bytes after the first byte of an encoded key, as a big-endian number. The first byte
/// is the null tag of the first column and equal in all keys. Nearly all comparisons end in this
/// prefix.
pub(super) fn key_prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let known = key.get(1..).unwrap_or_default();
    let known = &known[..known.len().min(8)];
    bytes[..known.len()].copy_from_slice(known);
    u64::from_be_bytes(bytes)
}

async fn read_fragment(
    base: &Dataset,
    key: &[String],
    id: u64,
    rows: &mut Rows,
    stage: &Stage,
) -> Result<()> {
    let fragment = fragment_of(base, id)?;
    let mut batches = column_batches(&fragment, key).await.in_base(ACTION)?;
    while let Some(batch) = batches.next().await {
        let batch = batch.in_base(ACTION)?;
        let names = KeyEncoder::new(batch.schema_ref(), key)?;
        rows.keys.append(&names.encode_block(&batch));
        stage.add(batch.num_rows());
        let batch = batch.project(names.columns()).context(ACTION)?;
        let read = batch.schema();
        let plain = read
            .fields()
            .iter()
            .map(|field| Field::new(field.name(), field.data_type().clone(), true));
        // One schema for all batches, although files differ in nullability and metadata.
        let schema = Arc::new(Schema::new(plain.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(schema, batch.columns().to_vec()).context(ACTION)?;
        rows.batches.push(batch);
    }
    Ok(())
}

fn pages_of(base: &Dataset, name: &str) -> Path {
    below(&base.branch_location().path, &paths::record_index_pages(name))
}

/// A unique name: 16 random hex digits.
///
/// # Errors
/// A storage error where the system provides no random numbers.
pub fn new_name() -> Result<String> {
    let half = || random_number().context(ACTION);
    Ok(format!("{:08x}{:08x}", half()?, half()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_by_all_their_bytes_and_equal_ones_by_position() {
        let mut keys = KeyBlock::default();
        let texts =
            ["\x01", "\x01same start of a key b", "\x01same start of a key a", "\x01a", "\x01"];
        for text in texts.iter().chain(&texts) {
            keys.push_with(|bytes| bytes.extend_from_slice(text.as_bytes()));
        }
        let mut expected: Vec<u32> = (0..10).collect();
        expected.sort_by_key(|row| keys.get(*row as usize).to_vec());
        assert_eq!(sorted_rows(&keys), expected);
    }

    #[test]
    fn fragments_are_grouped_in_order_and_a_large_one_stays_alone() {
        let fragment = |id, rows: u64| {
            let mut fragment = Fragment::new(id);
            fragment.physical_rows = usize::try_from(rows).ok();
            fragment
        };
        let all =
            [fragment(1, 5), fragment(2, RUN_ROWS - 5), fragment(3, 1), fragment(4, 2 * RUN_ROWS)];
        let ids: Vec<Vec<u64>> = groups(all)
            .into_iter()
            .map(|group| group.into_iter().map(|fragment| fragment.id).collect())
            .collect();
        assert_eq!(ids, [vec![1, 2], vec![3], vec![4]]);
        assert!(groups([]).is_empty());
    }
}
