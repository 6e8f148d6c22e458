//! Files of deletion vectors: listing, decoding and cache.
//!
//! Owns: the listing, the decoded form of a file, and the cache of decoded files in this process.
//! Does not own: which files a snapshot needs (`coverage`).

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::try_join_all;
use lance_table::format::Fragment;
use lancemem_core::format::{FragmentVector, SsTableVectors, paths};
use lancemem_core::store::Store;
use lancemem_core::types::{Error, ErrorKind, MaxBytes, Result, ShardId};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::record_index::{has_keys_of, key_ids};
use crate::snapshot::{CacheBudget, Cached, Snapshot};

/// A file of deletion vectors, decoded. Every bitmap lies within its source.
#[derive(Debug)]
pub struct SsTableFile {
    /// The shard of the SSTable.
    pub shard_id: ShardId,
    /// The newer SSTable, which supersedes rows.
    pub sstable: String,
    basis: Basis,
    /// By fragment id.
    fragments: HashMap<u64, KnownFragment>,
    /// By the folder of the older SSTable.
    sstables: HashMap<String, LostRows>,
    /// Tombstones of the newer SSTable.
    pub tombstones: Option<RoaringBitmap>,
}

/// What rows are compared by. A file answers for the same comparison only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// Field ids of the key columns, then of the columns that decide.
    pub columns: Vec<i32>,
    /// The merge rule that chooses; empty where the newest row is shown.
    pub rule: String,
}

/// The rows of one source, and those of the file's own SSTable, that lose to each other.
#[derive(Debug)]
pub struct LostRows {
    /// Rows of the source.
    pub dead: RoaringBitmap,
    /// Rows of the file's own SSTable that lose to a row of the source. Empty without a merge rule.
    pub beaten: RoaringBitmap,
}

#[derive(Debug)]
struct KnownFragment {
    physical_rows: u64,
    key_files: Vec<String>,
    deletion_file: String,
    lost: LostRows,
}

impl Basis {
    /// What the rows of `snapshot` are compared by.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut columns = key_ids(&snapshot.base, &snapshot.key);
        let Some(choosing) = snapshot.rule() else { return Self { columns, rule: String::new() } };
        columns.extend(choosing.rule().sequence());
        Self { columns, rule: choosing.rule().to_json() }
    }

    /// The deletion file of a fragment as far as it matters: a deleted row loses to each other row
    /// where the newest is shown, but beats none where a rule chooses.
    #[must_use]
    pub fn deletion_file(&self, fragment: &Fragment) -> String {
        match &fragment.deletion_file {
            Some(file) if !self.rule.is_empty() => format!("{}-{}", file.read_version, file.id),
            _ => String::new(),
        }
    }
}

impl SsTableFile {
    /// A file that covers nothing.
    fn of_nothing(shard_id: ShardId, sstable: &str) -> Self {
        Self {
            shard_id,
            sstable: sstable.to_owned(),
            basis: Basis::default(),
            fragments: HashMap::new(),
            sstables: HashMap::new(),
            tombstones: None,
        }
    }

    /// Decodes the bytes of the file at `path`.
    ///
    /// # Errors
    /// Corruption where the bytes or a bitmap in them cannot be decoded.
    pub fn decode(bytes: &[u8], path: &str, shard_id: ShardId, sstable: &str) -> Result<Self> {
        let file = SsTableVectors::decode(bytes, path)?;
        let bitmap = |bytes: &[u8], rows: u64| {
            let damaged = |what: String| Error::corrupt(path.to_owned(), "damaged", what);
            let bitmap = RoaringBitmap::deserialize_from(bytes)
                .map_err(|error| damaged(format!("a bitmap cannot be decoded: {error}")))?;
            match bitmap.max() {
                Some(last) if u64::from(last) >= rows => Err(damaged(format!(
                    "a bitmap has row {last}, which is out of range for a source of {rows} rows"
                ))),
                _ => Ok(bitmap),
            }
        };
        let any = u64::from(u32::MAX) + 1;
        let lost = |dead: &[u8], rows: u64, beaten: &[u8]| {
            // Without a merge rule there are no bytes at all.
            let none = beaten.is_empty();
            let beaten = if none { RoaringBitmap::new() } else { bitmap(beaten, any)? };
            Ok::<_, Error>(LostRows { dead: bitmap(dead, rows)?, beaten })
        };
        let fragments = file.fragments.into_iter().map(|known| {
            let lost = lost(&known.dead, known.physical_rows, &known.beaten)?;
            let FragmentVector { id, physical_rows, key_files, deletion_file, .. } = known;
            Ok((id, KnownFragment { physical_rows, key_files, deletion_file, lost }))
        });
        let sstables = file.sstables.into_iter();
        let sstables =
            sstables.map(|known| Ok((known.path, lost(&known.dead, any, &known.beaten)?)));
        Ok(Self {
            shard_id,
            sstable: sstable.to_owned(),
            basis: Basis { columns: file.key_fields, rule: file.rule },
            fragments: fragments.collect::<Result<_>>()?,
            sstables: sstables.collect::<Result<_>>()?,
            tombstones: file.tombstones.map(|bytes| bitmap(&bytes, any)).transpose()?,
        })
    }

    /// The lost rows of a fragment; `None` where the file does not cover it by this comparison.
    #[must_use]
    pub fn of_fragment(&self, fragment: &Fragment, basis: &Basis) -> Option<&LostRows> {
        let known = self.fragments.get(&fragment.id)?;
        let (rows, files) = (known.physical_rows, &known.key_files);
        let is_same = self.basis == *basis
            && has_keys_of(fragment, &basis.columns, rows, files)
            && known.deletion_file == basis.deletion_file(fragment);
        is_same.then_some(&known.lost)
    }

    /// The lost rows of an older SSTable of the shard; `None` where the file does not cover it by
    /// this comparison.
    #[must_use]
    pub fn of_sstable(&self, path: &str, basis: &Basis) -> Option<&LostRows> {
        self.sstables.get(path).filter(|_| self.basis.rule == basis.rule)
    }

    fn heap_bytes(&self) -> usize {
        let fragments = self.fragments.values().map(|known| &known.lost);
        let lost = fragments.chain(self.sstables.values());
        let bitmaps = lost.flat_map(|lost| [&lost.dead, &lost.beaten]).chain(&self.tombstones);
        bitmaps.map(|bitmap| size_of::<RoaringBitmap>() + bitmap.serialized_size()).sum()
    }
}

/// Shard and SSTable of a file.
type SsTablePath = (ShardId, String);
/// A cached file, its path, and its SSTable.
type Entry = (Arc<Cached<SsTableFile>>, String, SsTablePath);

/// Files that this process has read, by path.
#[derive(Debug)]
pub struct VectorFiles {
    budget: Arc<CacheBudget>,
    known: Mutex<HashMap<String, Arc<Cached<SsTableFile>>>>,
}

impl VectorFiles {
    /// An empty cache, whose bytes count under `budget`.
    #[must_use]
    pub fn new(budget: &Arc<CacheBudget>) -> Self {
        Self { budget: budget.clone(), known: Mutex::default() }
    }

    /// The files of the SSTables of `shards`. A damaged file covers nothing and is logged: its
    /// sources are compared by key.
    ///
    /// # Errors
    /// A storage error.
    pub async fn of_shards(
        &self,
        store: &Store,
        shards: &[ShardId],
    ) -> Result<Vec<Arc<SsTableFile>>> {
        let listings = shards.iter().map(|shard_id| async move {
            let names = store.list_files(&paths::deletion_vectors(*shard_id)).await?;
            Ok::<_, Error>((*shard_id, names))
        });
        let listed = try_join_all(listings).await?;
        let mut kept = HashMap::new();
        for (shard_id, names) in &listed {
            for name in names {
                let Some(sstable) = paths::parse_run_vectors(name) else { continue };
                let path = format!("{}/{name}", paths::deletion_vectors(*shard_id));
                kept.insert(path, (*shard_id, sstable.to_owned()));
            }
        }
        let files = self.entries(kept, shards);
        let reads = files.iter().map(|(file, path, (shard_id, sstable))| {
            file.get_or_read(read(store, path, *shard_id, sstable))
        });
        try_join_all(reads).await
    }

    /// The cache entry of each of `files`. Entries of `shards` without such a file are evicted.
    fn entries(&self, files: HashMap<String, SsTablePath>, shards: &[ShardId]) -> Vec<Entry> {
        let mut known = self.known.lock();
        known.retain(|path, _| files.contains_key(path) || !is_of(path, shards));
        let entry = |(path, place): (String, SsTablePath)| {
            let kept = known.entry(path.clone()).or_insert_with(|| Cached::new(&self.budget));
            (kept.clone(), path, place)
        };
        files.into_iter().map(entry).collect()
    }
}

fn is_of(path: &str, shards: &[ShardId]) -> bool {
    shards.iter().any(|shard_id| path.starts_with(&paths::deletion_vectors(*shard_id)))
}

async fn read(
    store: &Store,
    path: &str,
    shard_id: ShardId,
    sstable: &str,
) -> Result<(SsTableFile, usize)> {
    let decoded = match store.get(path, MaxBytes::VECTORS).await {
        Ok(Some(bytes)) => SsTableFile::decode(&bytes, path, shard_id, sstable),
        // A collector may have removed the SSTable meanwhile, and the file with it.
        Ok(None) => return Ok((SsTableFile::of_nothing(shard_id, sstable), 0)),
        Err(error) if error.kind() == ErrorKind::Corruption => Err(error),
        Err(error) => return Err(error),
    };
    match decoded {
        Ok(file) => {
            let bytes = file.heap_bytes();
            Ok((file, bytes))
        }
        Err(error) => {
            tracing::warn!(%error, "a damaged file of deletion vectors is skipped");
            Ok((SsTableFile::of_nothing(shard_id, sstable), 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use lancemem_core::format::OlderSsTableVector;

    use super::*;

    fn bytes_of(rows: impl IntoIterator<Item = u32>) -> Vec<u8> {
        let mut bitmap: RoaringBitmap = rows.into_iter().collect();
        bitmap.optimize();
        let mut bytes = Vec::new();
        bitmap.serialize_into(&mut bytes).unwrap();
        bytes
    }

    fn decode(dead: Vec<u8>, physical_rows: u64) -> Result<SsTableFile> {
        let key_files = vec!["a.lance".to_owned()];
        let vectors = SsTableVectors {
            fragments: vec![FragmentVector {
                id: 4,
                physical_rows,
                key_files,
                dead: dead.clone(),
                ..FragmentVector::default()
            }],
            sstables: vec![OlderSsTableVector {
                path: "older".to_owned(),
                dead,
                ..OlderSsTableVector::default()
            }],
            ..SsTableVectors::default()
        };
        SsTableFile::decode(&vectors.encode(), "here", ShardId::nil(), "run")
    }

    #[test]
    fn a_bitmap_that_reaches_beyond_its_fragment_is_damage() {
        assert!(decode(bytes_of([0, 9]), 10).is_ok());
        let error = decode(bytes_of([0, 10]), 10).unwrap_err().to_string();
        let row = "row 10, which is out of range for a source of 10 rows";
        assert!(error.contains("here") && error.contains(row), "{error}");
    }

    #[test]
    fn a_bitmap_of_any_bytes_is_read_or_damage() {
        let corpus = [
            bytes_of([]),
            bytes_of([1, 70_000, 900_000]),
            bytes_of((0..9_000).map(|it| it * 3)),
            bytes_of((0..4_000).chain(70_000..70_500)),
        ];
        let mut random = 7_u64;
        let mut below = |end: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((random >> 33) % end as u64).unwrap()
        };
        let mut read = 0;
        for _ in 0..20_000 {
            let mut bytes = corpus[below(corpus.len())].clone();
            for _ in 0..=below(4) {
                let at = below(bytes.len().min(64));
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff][below(5)];
            }
            bytes.truncate(bytes.len() - below(3).min(bytes.len()));
            if let Ok(file) = decode(bytes, 1 << 20) {
                read += 1;
                let known = &file.fragments[&4].lost.dead;
                assert!(known.max().is_none_or(|last| last < 1 << 20));
                assert_eq!(known.iter().count() as u64, known.len());
            }
        }
        assert!(read > 0);
    }
}
