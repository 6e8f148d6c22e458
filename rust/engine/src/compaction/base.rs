//! The base rows that a compaction kills.
//!
//! Owns: the look-up of their positions, remembered over several attempts, and their deletion
//! files, not committed.
//! Does not own: the keys, or the commit.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance::dataset::fragment::FileFragment;
use lance_table::format::{DataFile, Fragment};
use lance_table::io::deletion::write_deletion_file;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::inputs::KeysOfSsTables;
use super::throttle::Throttle;
use crate::errors::{BaseContext, Context};
use crate::record_index::{RecordIndex, fragment_of};
use crate::visibility::{Pace, found_rows};

const LOOKING: &str = "looking up the base rows of a compaction";
/// Fragments whose keys are looked at at the same time.
const CONCURRENT_LOOKS: usize = 2;
/// Deletion files that are written at the same time.
const CONCURRENT_WRITES: usize = 8;

/// Dead positions by fragment, of deleted rows too: a version that is restored may show those
/// again. What was found in a fragment stays true as long as it consists of the same files.
#[derive(Debug, Default)]
pub struct DeadRows(HashMap<u64, Looked>);

#[derive(Debug)]
struct Looked {
    files: Vec<DataFile>,
    dead: RoaringBitmap,
}

impl DeadRows {
    /// What deletion vectors of the SSTables say of `base`.
    #[must_use]
    pub fn covered(base: &Dataset, mut cover: HashMap<u32, RoaringBitmap>) -> Self {
        let fragments = base.fragments().iter().filter_map(|fragment| {
            let dead = cover.remove(&u32::try_from(fragment.id).ok()?)?;
            Some((fragment.id, Looked { files: fragment.files.clone(), dead }))
        });
        Self(fragments.collect())
    }

    /// How many rows of `base` die: those that are deleted there do not die again.
    ///
    /// # Errors
    /// A storage error.
    pub async fn count(&self, base: &Dataset) -> Result<u64> {
        let action = "reading the deletion vectors of the base table";
        let mut count = 0;
        for fragment in base.get_fragments() {
            let Some(dead) = self.of(fragment.id() as u64) else { continue };
            let deleted = match fragment.metadata().deletion_file {
                Some(_) => fragment.get_deletion_vector().await.in_base(action)?,
                None => None,
            };
            let deleted = deleted.map(|deleted| RoaringBitmap::from(&*deleted));
            count += dead.len() - deleted.map_or(0, |deleted| dead.intersection_len(&deleted));
        }
        Ok(count)
    }

    /// Forgets what was found in fragments that `base` does not have.
    pub fn forget_gone(&mut self, base: &Dataset) {
        let fragments = base.fragments();
        self.0.retain(|id, _| fragments.iter().any(|fragment| fragment.id == *id));
    }

    /// The fragments of `base` that were not looked at.
    pub fn unknown(&self, base: &Dataset) -> Vec<Fragment> {
        let is_known = |fragment: &&Fragment| {
            self.0.get(&fragment.id).is_some_and(|known| known.files == fragment.files)
        };
        base.fragments().iter().filter(|it| !is_known(it)).cloned().collect()
    }

    /// Looks up `keys` in the fragments of `base` that were not looked at before.
    ///
    /// # Errors
    /// A storage error.
    pub async fn look_up(
        &mut self,
        base: &Dataset,
        key: &Arc<[String]>,
        keys: &Arc<KeysOfSsTables>,
        index: &RecordIndex,
        throttle: &Arc<Throttle>,
    ) -> Result<()> {
        let new = self.unknown(base);
        for fragment in &new {
            let looked = Looked { files: fragment.files.clone(), dead: RoaringBitmap::new() };
            self.0.insert(fragment.id, looked);
        }
        if keys.is_empty() {
            return Ok(());
        }
        let mut scanned = new.clone();
        if let Some(found) = index.positions(&new, keys.len(), keys.iter()).await {
            throttle.take(found.bytes).await;
            scanned.retain(|fragment| !found.rows.contains_key(&fragment.id));
            for (fragment, rows) in found.rows {
                self.0.entry(fragment).and_modify(|looked| looked.dead |= rows);
            }
        }
        let found = if scanned.is_empty() {
            Ok(())
        } else {
            self.read(base, scanned, key, keys, throttle).await
        };
        if found.is_err() {
            // Half a look-up must not count as one.
            for fragment in &new {
                self.0.remove(&fragment.id);
            }
        }
        found
    }

    async fn read(
        &mut self,
        base: &Dataset,
        fragments: Vec<Fragment>,
        key: &Arc<[String]>,
        keys: &Arc<KeysOfSsTables>,
        throttle: &Arc<Throttle>,
    ) -> Result<()> {
        let throttle = throttle.clone();
        let pace: Pace = Arc::new(move |bytes| {
            let throttle = throttle.clone();
            async move { throttle.take(bytes).await }.boxed()
        });
        let looks = fragments.into_iter().map(|Fragment { id, .. }| {
            let (key, newest, pace) = (key.clone(), keys.newest(), pace.clone());
            async move {
                let rows = found_rows(fragment_of(base, id)?, key, newest, Some(pace), LOOKING);
                let rows = SpawnedTask::spawn(rows).await;
                let rows = rows.map_err(|error| Error::Internal(format!("{LOOKING}: {error}")))?;
                Ok::<_, Error>((id, rows?))
            }
        });
        let mut found = stream::iter(looks).buffered(CONCURRENT_LOOKS);
        while let Some((fragment, rows)) = found.try_next().await? {
            self.0.entry(fragment).and_modify(|looked| looked.dead |= rows);
        }
        Ok(())
    }

    /// The positions of `fragment`; none for one that was not looked at.
    fn of(&self, fragment: u64) -> Option<&RoaringBitmap> {
        self.0.get(&fragment).map(|looked| &looked.dead).filter(|dead| !dead.is_empty())
    }

    /// Writes deletion files. Returns fragments without a live row, and the others that changed.
    ///
    /// # Errors
    /// A storage error.
    pub async fn write(&self, base: &Dataset) -> Result<(Vec<u64>, Vec<Fragment>)> {
        let action = "writing the deletion files of a compaction";
        let writes = base.get_fragments().into_iter().filter_map(|fragment| {
            let id = fragment.id() as u64;
            let dead = self.of(id)?;
            Some(async move { (id, with_dead(&fragment, dead).await) })
        });
        let mut writes = stream::iter(writes).buffered(CONCURRENT_WRITES);
        let (mut removed, mut updated) = (Vec::new(), Vec::new());
        while let Some((id, written)) = writes.next().await {
            match written.context(action)? {
                Written::Same => {}
                Written::Changed(fragment) => updated.push(fragment),
                Written::Removed => removed.push(id),
            }
        }
        Ok((removed, updated))
    }
}

/// What becomes of a fragment.
enum Written {
    /// All that dies was deleted before.
    Same,
    Changed(Fragment),
    /// No row is left.
    Removed,
}

/// `fragment` with more rows dead, in a new deletion file.
async fn with_dead(fragment: &FileFragment, dead: &RoaringBitmap) -> lance_core::Result<Written> {
    let deleted = fragment.get_deletion_vector().await?;
    let deleted = deleted.map(|deleted| RoaringBitmap::from(&*deleted)).unwrap_or_default();
    let dead = dead | &deleted;
    if dead.len() == deleted.len() {
        return Ok(Written::Same);
    }
    let rows = fragment.physical_rows().await? as u64;
    if let Some(last) = dead.max().filter(|last| u64::from(*last) >= rows) {
        let message =
            format!("row {last} of fragment {}, which has {rows}, is dead", fragment.id());
        return Err(lance_core::Error::internal(message));
    }
    if dead.len() == rows {
        return Ok(Written::Removed);
    }
    let base = fragment.dataset();
    let store = base.object_store(None).await?;
    let (root, version) = (base.branch_location().path, base.version().version);
    let id = fragment.id() as u64;
    let mut fragment = fragment.metadata().clone();
    fragment.deletion_file = write_deletion_file(&root, id, version, &dead.into(), &store).await?;
    Ok(Written::Changed(fragment))
}
