//! The base rows that a compaction deletes.
//!
//! Owns: the positions of the rows, which are cached over several attempts, and the writing of
//! their deletion files.
//! Does not own: the keys, the look-up (`visibility`), or the commit.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use lance::Dataset;
use lance::dataset::fragment::FileFragment;
use lance_table::format::{DataFile, Fragment};
use lance_table::io::deletion::write_deletion_file;
use lancemem_core::types::Result;
use roaring::RoaringBitmap;

use super::inputs::KeysOfSsTables;
use super::throttle::Throttle;
use crate::errors::{BaseContext, Context};
use crate::record_index::RecordIndex;
use crate::stages::{Stage, StageName};
use crate::visibility::{BaseLookup, DeadRows, Pace};

const LOOKING: &str = "looking up the base rows of a compaction";
/// Fragments in which keys are looked up at the same time.
const CONCURRENT_LOOKS: usize = 2;
/// Deletion files that are written at the same time.
const CONCURRENT_WRITES: usize = 8;

/// Dead rows of base fragments, with the data files in which they were found. An entry is valid as
/// long as the fragment has the same files. Deleted rows are included, because a restored version
/// may show them again.
#[derive(Debug, Default)]
pub struct BaseRows {
    looked_at: HashMap<u64, Vec<DataFile>>,
    dead: DeadRows,
}

impl BaseRows {
    /// The dead rows of `base` from the deletion vectors of the SSTables.
    #[must_use]
    pub fn covered(base: &Dataset, dead: DeadRows) -> Self {
        let fragments = base.fragments().iter();
        let covered = fragments.filter(|fragment| dead.of_fragment(fragment.id).is_some());
        let looked_at = covered.map(|fragment| (fragment.id, fragment.files.clone())).collect();
        Self { looked_at, dead }
    }

    /// How many rows of `base` the compaction deletes; rows that are deleted already do not count.
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

    /// Removes the entries of fragments that `base` does not have.
    pub fn forget_gone(&mut self, base: &Dataset) {
        let fragments = base.fragments();
        self.looked_at.retain(|id, _| fragments.iter().any(|fragment| fragment.id == *id));
        self.dead.retain(|id| self.looked_at.contains_key(&id));
    }

    /// The fragments of `base` without a valid entry.
    pub fn unknown(&self, base: &Dataset) -> Vec<Fragment> {
        let is_known = |fragment: &&Fragment| {
            self.looked_at.get(&fragment.id).is_some_and(|files| *files == fragment.files)
        };
        base.fragments().iter().filter(|it| !is_known(it)).cloned().collect()
    }

    /// Looks up `keys` in the fragments of `base` without a valid entry. A failed look-up adds no
    /// entry.
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
        let throttle = throttle.clone();
        let pace: Pace = Arc::new(move |bytes| {
            let throttle = throttle.clone();
            async move { throttle.take(bytes).await }.boxed()
        });
        let lookup = BaseLookup {
            base,
            key,
            index,
            pace: Some(pace),
            concurrent: CONCURRENT_LOOKS,
            action: LOOKING,
        };
        let found = lookup.dead_rows(&new, keys.iter(), keys.newest()).await?;
        self.dead.replace(found);
        self.looked_at.extend(new.into_iter().map(|fragment| (fragment.id, fragment.files)));
        Ok(())
    }

    /// The dead rows of `fragment`; `None` where it has none or was not looked up.
    fn of(&self, fragment: u64) -> Option<&RoaringBitmap> {
        self.dead.of_fragment(fragment).filter(|dead| !dead.is_empty())
    }

    /// Writes deletion files and commits nothing. Returns the ids of fragments without a live row,
    /// and the other fragments that changed.
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
        let writes: Vec<_> = writes.collect();
        let stage = Stage::begin(StageName::WriteDeletions, writes.len());
        let mut writes = stream::iter(writes).buffered(CONCURRENT_WRITES);
        let (mut removed, mut updated) = (Vec::new(), Vec::new());
        while let Some((id, written)) = writes.next().await {
            match written.context(action)? {
                Written::Same => {}
                Written::Changed(fragment) => updated.push(fragment),
                Written::Removed => removed.push(id),
            }
            stage.add(1_u64);
        }
        Ok((removed, updated))
    }
}

/// The result for one fragment.
enum Written {
    /// All dead rows were deleted already.
    Same,
    Changed(Fragment),
    /// No live row is left.
    Removed,
}

/// `fragment` with a new deletion file, which adds `dead` to the deleted rows.
async fn with_dead(fragment: &FileFragment, dead: &RoaringBitmap) -> lance_core::Result<Written> {
    let deleted = fragment.get_deletion_vector().await?;
    let deleted = deleted.map(|deleted| RoaringBitmap::from(&*deleted)).unwrap_or_default();
    let dead = dead | &deleted;
    if dead.len() == deleted.len() {
        return Ok(Written::Same);
    }
    let rows = fragment.physical_rows().await? as u64;
    if let Some(last) = dead.max().filter(|last| u64::from(*last) >= rows) {
        let message = format!(
            "row {last} is dead and out of range for fragment {} of {rows} rows",
            fragment.id()
        );
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
