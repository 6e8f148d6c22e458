//! The page files of a run, each block verified against its checksum as it is read.
//!
//! Owns: reads of ranges, widened to whole blocks, and the record of the first damaged block. Lance
//! decodes only verified bytes, metadata included, and no more is read than a search needs.
//! Does not own: files without block checksums (`open` compares those whole), or what becomes of a
//! damaged run.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use lance_core::{Error as LanceError, Result as LanceResult};
use lance_io::object_store::ObjectStore as LanceStore;
use lance_io::traits::Reader;
use lancemem_core::format::{PAGE_BLOCK_BYTES, PageFile, paths};
use lancemem_core::store::NO_FILE;
use lancemem_core::types::MaxBytes;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};

use crate::sstable::local_path;

/// Ranges with a smaller gap between them are read at once.
const GAP_BYTES: usize = PAGE_BLOCK_BYTES;
/// Ranges that are read at the same time.
const READS_AT_ONCE: usize = 8;
/// No retries here: the store below retries.
const RETRIES: usize = 0;
const STORE: &str = "verified files";

/// A description of the first damage that was found in the files of a run.
pub type Damage = Arc<OnceLock<String>>;

/// The files of one folder as a read-only object store.
#[derive(Debug)]
struct VerifiedFiles {
    files: Vec<VerifiedFile>,
    damage: Damage,
}

#[derive(Debug)]
struct VerifiedFile {
    path: Path,
    reader: Box<dyn Reader>,
    file: PageFile,
}

/// A store of the files `files` in `folder`, which all have block checksums.
///
/// # Errors
/// A storage error; damage where a name is not one plain component, or where a size differs.
pub async fn verified(
    store: &LanceStore,
    folder: &Path,
    files: &[PageFile],
    damage: &Damage,
) -> LanceResult<Arc<LanceStore>> {
    let mut opened = Vec::with_capacity(files.len());
    for file in files {
        if !paths::is_plain_component(&file.name) {
            let what = format!("file name '{}' leads outside the folder of the run", file.name);
            return Err(LanceError::corrupt_file(folder.clone(), what));
        }
        let path = folder.clone().join(file.name.as_str());
        if let Some(what) = size_damage(store, &path, file.bytes) {
            return Err(LanceError::corrupt_file(path, what));
        }
        let bytes = usize::try_from(file.bytes).unwrap_or(usize::MAX);
        let reader = store.open_with_size(&path, bytes).await?;
        opened.push(VerifiedFile { path, reader, file: file.clone() });
    }
    let files = VerifiedFiles { files: opened, damage: damage.clone() };
    // Of a `file` URI Lance opens files itself; of a `memory` URI it reads through this store.
    let scheme = "memory:///".parse();
    let scheme = scheme.map_err(|error| LanceError::internal(format!("{error}")))?;
    Ok(Arc::new(LanceStore::new(
        Arc::new(files),
        scheme,
        Some(GAP_BYTES),
        None,
        false,
        false,
        READS_AT_ONCE,
        RETRIES,
        None,
    )))
}

/// The damage of a file on a local disk that shows before it is opened: opening a pipe would block
/// until another process opens its other end.
fn size_damage(store: &LanceStore, path: &Path, bytes: u64) -> Option<&'static str> {
    let found = std::fs::metadata(local_path(store, path)?).ok()?;
    match found.len().cmp(&bytes) {
        _ if !found.is_file() => Some(NO_FILE),
        Ordering::Equal => None,
        Ordering::Less => Some("cut short"),
        Ordering::Greater => Some(MaxBytes::TOO_LARGE),
    }
}

impl VerifiedFiles {
    fn file(&self, location: &Path) -> Result<&VerifiedFile> {
        let found = self.files.iter().find(|file| file.path == *location);
        found.ok_or_else(|| Error::NotFound {
            path: location.to_string(),
            source: "the run of the record index lists no such file".into(),
        })
    }

    async fn read(&self, file: &VerifiedFile, range: &Range<u64>) -> Result<Bytes> {
        let (blocks, inside) = widened(range, file.file.bytes).ok_or_else(|| {
            let PageFile { name, bytes, .. } = &file.file;
            failed(format!("{name}: range {range:?} is out of bounds for {bytes} bytes"))
        })?;
        let bytes = file.reader.get_range(blocks.clone()).await?;
        let first = blocks.start / PAGE_BLOCK_BYTES;
        if let Some(what) = damage_in(&file.file, &bytes, blocks.len(), first) {
            let _ = self.damage.set(what.clone());
            return Err(failed(what));
        }
        Ok(bytes.slice(inside))
    }
}

/// The blocks of a file of `bytes` bytes that contain `range`, and the range inside these blocks.
fn widened(range: &Range<u64>, bytes: u64) -> Option<(Range<usize>, Range<usize>)> {
    let end = range.end.min(bytes);
    if range.start > end {
        return None;
    }
    let block = PAGE_BLOCK_BYTES as u64;
    let from = range.start / block * block;
    let to = (end.div_ceil(block) * block).min(bytes);
    let size = |number: u64| usize::try_from(number).ok();
    let blocks = size(from)?..size(to.max(from))?;
    Some((blocks, size(range.start - from)?..size(end - from)?))
}

/// The first damage in `read`, the bytes of `file` from block `first` on, of `expected` length.
fn damage_in(file: &PageFile, read: &[u8], expected: usize, first: usize) -> Option<String> {
    let name = &file.name;
    if read.len() != expected {
        return Some(format!("{name}: cut short: expected {expected} bytes, found {}", read.len()));
    }
    read.chunks(PAGE_BLOCK_BYTES).zip(first..).find_map(|(block, number)| {
        let (found, recorded) = (crc32fast::hash(block), file.blocks.get(number));
        (recorded != Some(&found)).then(|| {
            let at = number * PAGE_BLOCK_BYTES;
            let recorded = recorded.map_or_else(|| "none".to_owned(), |sum| format!("{sum:08x}"));
            format!(
                "{name}: checksum mismatch in the block at byte {at}: expected {recorded}, found \
                 {found:08x}"
            )
        })
    })
}

fn failed(what: String) -> Error {
    Error::Generic { store: STORE, source: what.into() }
}

fn read_only<T>() -> Result<T> {
    Err(failed("the store of verified files is read-only".to_owned()))
}

impl fmt::Display for VerifiedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifiedFiles")
    }
}

#[async_trait]
impl ObjectStore for VerifiedFiles {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let file = self.file(location)?;
        let size = file.file.bytes;
        let range = match options.range {
            _ if options.head => 0..0,
            Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
            Some(GetRange::Offset(start)) => start..size,
            Some(GetRange::Suffix(count)) => size.saturating_sub(count)..size,
            None => 0..size,
        };
        let bytes = if options.head { Bytes::new() } else { self.read(file, &range).await? };
        let payload = stream::once(futures::future::ready(Ok(bytes))).boxed();
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: UNIX_EPOCH.into(),
            size,
            e_tag: None,
            version: None,
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(payload),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        read_only()
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        stream::once(futures::future::ready(read_only())).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(futures::future::ready(read_only())).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        read_only()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = PAGE_BLOCK_BYTES as u64;

    #[test]
    fn a_range_is_widened_to_whole_blocks_of_the_file() {
        let bytes = 2 * BLOCK + 100;
        for (range, blocks, inside) in [
            (0..0, 0..0, 0..0),
            (0..1, 0..BLOCK, 0..1),
            (BLOCK - 1..BLOCK + 1, 0..2 * BLOCK, BLOCK - 1..BLOCK + 1),
            (BLOCK..2 * BLOCK, BLOCK..2 * BLOCK, 0..BLOCK),
            (2 * BLOCK + 1..bytes, 2 * BLOCK..bytes, 1..100),
            (2 * BLOCK + 1..bytes + 50, 2 * BLOCK..bytes, 1..100),
            (bytes..bytes, 2 * BLOCK..bytes, 100..100),
        ] {
            let (found, within) = widened(&range, bytes).unwrap();
            assert_eq!(found, to_usize(&blocks), "{range:?}");
            assert_eq!(within, to_usize(&inside), "{range:?}");
        }
        for range in [bytes + 1..bytes + 2, u64::MAX - 1..u64::MAX] {
            assert!(widened(&range, bytes).is_none(), "{range:?}");
        }
    }

    fn to_usize(range: &Range<u64>) -> Range<usize> {
        usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
    }

    #[test]
    fn a_damaged_block_is_named_and_so_is_a_file_that_is_cut_short() {
        let bytes: Vec<u8> = (0..=250).cycle().take(PAGE_BLOCK_BYTES + 100).collect();
        let blocks = bytes.chunks(PAGE_BLOCK_BYTES).map(crc32fast::hash).collect();
        let file =
            PageFile { name: "pages".to_owned(), crc32: 0, bytes: bytes.len() as u64, blocks };
        assert_eq!(damage_in(&file, &bytes, bytes.len(), 0), None);
        assert_eq!(damage_in(&file, &bytes[PAGE_BLOCK_BYTES..], 100, 1), None);
        let mut damaged = bytes.clone();
        damaged[PAGE_BLOCK_BYTES + 7] ^= 1;
        let found = damage_in(&file, &damaged, bytes.len(), 0).unwrap();
        assert!(
            found.starts_with("pages: checksum mismatch in the block at byte 65536"),
            "{found}"
        );
        let found = damage_in(&file, &bytes[..5], 100, 0).unwrap();
        assert_eq!(found, "pages: cut short: expected 100 bytes, found 5");
        assert!(damage_in(&file, &bytes, bytes.len(), 1).is_some(), "blocks of another place");
    }
}
