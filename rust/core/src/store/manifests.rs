//! The versioned manifests of one shard: newest version, creation, claim, update.
//!
//! Owns: the compare-and-swap over gap-free version files, and the version hint.
//! Does not own: what a manifest records beyond epoch and version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use futures::try_join;
use parking_lot::Mutex;

use super::{Created, Moment, Store};
use crate::format::{ShardManifest, ShardStatus, paths, version_hint};
use crate::types::{Error, Generation, ManifestVersion, MaxBytes, Result, ShardId, WriterEpoch};

const MAX_ATTEMPTS: usize = 16;

/// How long a remembered manifest is used, by the clock that shows more time. A collector removes
/// versions only after a day, so within this time a free slot behind a remembered version was never
/// written.
const REMEMBERED: Duration = Duration::from_mins(10);

/// Outcome of the write of a version, as far as its writer can tell.
enum Landed {
    /// This handle wrote it.
    Ours,
    /// The stored bytes are the same: of this handle, whose answer was lost, or of another one that
    /// made exactly the same change.
    Equal,
    /// Another change came first.
    Foreign,
}

/// Most versions that are looked for at once, whatever the settings of a table.
const MAX_AT_ONCE: u64 = 256;

/// Reads and writes the manifest versions of one shard.
#[derive(Debug)]
pub struct ManifestStore {
    store: Store,
    shard_id: ShardId,
    scan_batch: u64,
    /// The newest manifest that this handle wrote or read. A writer starts from it without a
    /// request; a lost race proves it stale.
    last: Mutex<Option<(Arc<ShardManifest>, Moment)>>,
}

impl ManifestStore {
    /// The manifests of `shard_id`; `scan_batch` versions are looked for in parallel.
    #[must_use]
    pub fn new(store: Store, shard_id: ShardId, scan_batch: usize) -> Self {
        let scan_batch = u64::try_from(scan_batch).unwrap_or(u64::MAX).clamp(1, MAX_AT_ONCE);
        Self { store, shard_id, scan_batch, last: Mutex::new(None) }
    }

    /// Where they are.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The newest manifest in storage; `None` for a shard that was never created.
    ///
    /// Starts at the hint, or at the newest listed version, and goes forward while a later one
    /// exists. Whether one does is asked while the candidate is read.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn latest(&self) -> Result<Option<Arc<ShardManifest>>> {
        let mut newest = match self.remembered() {
            // One request where nothing was written since.
            Some((manifest, seen)) => {
                let asked = Moment::now();
                match self.later_than(manifest.version, 1).await? {
                    Some(later) => later,
                    None if seen.age() < REMEMBERED => {
                        self.remember(manifest.clone(), asked);
                        return Ok(Some(manifest));
                    }
                    // The answer took so long that the next version may be written and gone.
                    None => self.hinted_version().await?,
                }
            }
            None => self.hinted_version().await?,
        };
        let mut listed = false;
        loop {
            let asked = Moment::now();
            let path = paths::manifest(self.shard_id, newest);
            let later = self.later_than(newest, self.scan_batch);
            let (stored, later) = try_join!(self.store.get(&path, MaxBytes::MANIFEST), later)?;
            match (stored, later) {
                (_, Some(later)) => newest = later,
                // As above: the machine may have slept between the two answers.
                (Some(_), None) if asked.age() >= REMEMBERED => {
                    newest = self.listed_version().await?;
                }
                (Some(bytes), None) => {
                    let manifest = Arc::new(self.decode(newest, &bytes, &path)?);
                    self.remember(manifest.clone(), asked);
                    return Ok(Some(manifest));
                }
                (None, None) if !listed => {
                    newest = self.listed_version().await?;
                    listed = true;
                }
                (None, None) if newest == ManifestVersion(0) => return Ok(None),
                (None, None) => {
                    let reason = "the listing shows this version, and it is gone";
                    return Err(Error::corrupt(path, "missing", reason));
                }
            }
        }
    }

    /// [`Self::initialize_from`] the first generation.
    ///
    /// # Errors
    /// As there.
    pub async fn initialize(
        &self,
        shard_spec_id: u32,
        values: BTreeMap<String, Vec<u8>>,
    ) -> Result<Arc<ShardManifest>> {
        self.initialize_from(Generation(1), shard_spec_id, values, None).await
    }

    /// Creates the shard, whose generations start at `first` and whose rows are put under
    /// `sharding`, or returns it where it exists with the same identity.
    ///
    /// # Errors
    /// An input error where the shard exists under another specification or value.
    pub async fn initialize_from(
        &self,
        first: Generation,
        shard_spec_id: u32,
        values: BTreeMap<String, Vec<u8>>,
        sharding: Option<String>,
    ) -> Result<Arc<ShardManifest>> {
        let initial = ShardManifest {
            current_generation: first,
            sharding,
            ..ShardManifest::initial(self.shard_id, shard_spec_id, values)
        };
        let existing = match self.latest().await? {
            Some(existing) => existing,
            None if self.is_written(&initial).await? => return Ok(Arc::new(initial)),
            None => self.existing().await?,
        };
        if existing.shard_spec_id != initial.shard_spec_id
            || existing.shard_field_values != initial.shard_field_values
        {
            return Err(Error::input(format!(
                "shard {} exists under sharding specification {} with another shard value",
                self.shard_id, existing.shard_spec_id
            )));
        }
        Ok(existing)
    }

    /// The newest manifest of a shard that a writer may take.
    ///
    /// # Errors
    /// An input error for a shard that is sealed or was never created.
    pub async fn claimable(&self) -> Result<Arc<ShardManifest>> {
        let manifest = self.existing().await?;
        if manifest.status == ShardStatus::Sealed {
            return Err(Error::input(format!(
                "shard {} is sealed because a drop is under way",
                self.shard_id
            )));
        }
        Ok(manifest)
    }

    /// Takes the shard with the next writer epoch.
    ///
    /// # Errors
    /// Fenced where another claim took the same epoch first; an input error for a shard that is
    /// sealed or was never created.
    pub async fn claim(&self) -> Result<Arc<ShardManifest>> {
        self.claim_with(|_| Ok(())).await
    }

    /// As [`Self::claim`], with a `change` of the version that the claim writes. It may run again
    /// after a lost race; where it fails, nothing is written and no writer is fenced.
    ///
    /// # Errors
    /// As [`Self::claim`], and the error of `change`.
    pub async fn claim_with(
        &self,
        change: impl Fn(&mut ShardManifest) -> Result<()> + Send,
    ) -> Result<Arc<ShardManifest>> {
        self.claim_from(None, change).await
    }

    /// As [`Self::claim_with`], where `seen` is still the epoch of the newest claim: a claim that
    /// was made since, or is made at the same moment, is left alone.
    ///
    /// # Errors
    /// As [`Self::claim_with`]; fenced, with no other writer fenced, where another claim was
    /// faster.
    pub async fn claim_after(
        &self,
        seen: WriterEpoch,
        change: impl Fn(&mut ShardManifest) -> Result<()> + Send,
    ) -> Result<Arc<ShardManifest>> {
        self.claim_from(Some(seen), change).await
    }

    async fn claim_from(
        &self,
        seen: Option<WriterEpoch>,
        change: impl Fn(&mut ShardManifest) -> Result<()> + Send,
    ) -> Result<Arc<ShardManifest>> {
        let mut current = self.claimable().await?;
        let mut target = seen.unwrap_or(current.writer_epoch).next();
        for _ in 0..MAX_ATTEMPTS {
            if current.writer_epoch >= target {
                return Err(self.fenced(target, current.writer_epoch));
            }
            let mut claimed = ShardManifest {
                version: current.version.next(),
                writer_epoch: target,
                ..ShardManifest::clone(&current)
            };
            change(&mut claimed)?;
            current = match self.try_write(&claimed).await? {
                Landed::Ours => return Ok(Arc::new(claimed)),
                // Another process may have written the same bytes, and then holds that epoch.
                Landed::Equal if seen.is_some() => return Err(self.fenced(target, target)),
                // Two claims of one epoch have the same bytes, and only one may hold it: skip that
                // epoch and take the next.
                Landed::Equal => {
                    target = target.next();
                    Arc::new(claimed)
                }
                Landed::Foreign => self.claimable().await?,
            };
        }
        Err(self.contended("claiming"))
    }

    /// Fails where a later claim took the shard from the writer of epoch `local`.
    ///
    /// # Errors
    /// Fenced.
    pub async fn check_fenced(&self, local: WriterEpoch) -> Result<()> {
        let stored = self.existing().await?.writer_epoch;
        if stored > local { Err(self.fenced(local, stored)) } else { Ok(()) }
    }

    /// Writes the next version as the owner of epoch `local`.
    ///
    /// `change` sees the version it builds on and may run again after a lost race.
    ///
    /// # Errors
    /// Fenced where a later claim took the shard.
    pub async fn update(
        &self,
        local: WriterEpoch,
        change: impl Fn(&mut ShardManifest) + Send,
    ) -> Result<Arc<ShardManifest>> {
        self.swap(Some(local), change).await
    }

    /// Writes the next version beside a living owner, whose epoch stays in force.
    ///
    /// Only for changes that no writer makes: draining SSTables that compaction has covered.
    ///
    /// # Errors
    /// A storage error.
    pub async fn update_beside_owner(
        &self,
        change: impl Fn(&mut ShardManifest) + Send,
    ) -> Result<Arc<ShardManifest>> {
        self.swap(None, change).await
    }

    async fn swap(
        &self,
        local: Option<WriterEpoch>,
        change: impl Fn(&mut ShardManifest) + Send,
    ) -> Result<Arc<ShardManifest>> {
        let mut current = match self.remembered() {
            Some((manifest, _)) => manifest,
            None => self.existing().await?,
        };
        // Compare-and-swap: only one writer creates the next version, the others start from it.
        for _ in 0..MAX_ATTEMPTS {
            if let Some(local) = local
                && current.writer_epoch > local
            {
                return Err(self.fenced(local, current.writer_epoch));
            }
            let mut next = ShardManifest::clone(&current);
            change(&mut next);
            next.version = current.version.next();
            next.writer_epoch = current.writer_epoch;
            if mutant!("B23") && local.is_none() {
                next.writer_epoch = current.writer_epoch.next();
            }
            if self.is_written(&next).await? {
                return Ok(Arc::new(next));
            }
            current = self.existing().await?;
        }
        Err(self.contended("updating"))
    }

    /// Whether `manifest` became its version, written by this handle or by another one that made
    /// the same change.
    async fn is_written(&self, manifest: &ShardManifest) -> Result<bool> {
        Ok(!matches!(self.try_write(manifest).await?, Landed::Foreign))
    }

    /// Tries to make `manifest` its version. Publishes it to this handle and the hint.
    async fn try_write(&self, manifest: &ShardManifest) -> Result<Landed> {
        let path = paths::manifest(self.shard_id, manifest.version);
        let bytes = Bytes::from(manifest.encode());
        // Readers refuse a larger manifest, so it must not be written.
        if bytes.len() as u64 > MaxBytes::MANIFEST.get() {
            return Err(Error::input(format!(
                "a shard manifest is limited to {} bytes, {path} would have {}; compact the table, \
                 or write with fewer application ids",
                MaxBytes::MANIFEST.get(),
                bytes.len()
            )));
        }
        let begun = Moment::now();
        let created = self.store.put_if_absent(&path, bytes.clone()).await;
        let landed = match created {
            Ok(Created::Yes) => Landed::Ours,
            // The write may have landed although its answer was lost, to us or to a storage
            // client that repeats requests: the stored bytes decide.
            unsure => match (self.store.get(&path, MaxBytes::MANIFEST).await?, unsure) {
                (Some(stored), _) if stored == bytes => Landed::Equal,
                (None, Err(error)) => return Err(error),
                _ => Landed::Foreign,
            },
        };
        // A machine that was suspended meanwhile may have written into a slot that was used before.
        let is_late = begun.age() >= REMEMBERED && self.listed_version().await? > manifest.version;
        if is_late || matches!(landed, Landed::Foreign) {
            self.forget();
            return Ok(Landed::Foreign);
        }
        if matches!(landed, Landed::Equal) {
            // The attempt that wrote it failed, maybe before it was on disk.
            self.store.make_durable(&path).await?;
        }
        self.remember(Arc::new(manifest.clone()), begun);
        self.write_hint(manifest.version).await;
        Ok(landed)
    }

    /// The manifest that was the newest a short time ago, and when it was.
    fn remembered(&self) -> Option<(Arc<ShardManifest>, Moment)> {
        let last = self.last.lock().clone();
        last.filter(|(_, seen)| seen.age() < REMEMBERED)
    }

    /// Remembers what was the newest manifest at the time `seen`, which is before it was asked for.
    fn remember(&self, manifest: Arc<ShardManifest>, seen: Moment) {
        *self.last.lock() = Some((manifest, seen));
    }

    /// Drops the remembered manifest, so that the next look starts at the hint or a listing.
    pub fn forget(&self) {
        *self.last.lock() = None;
    }

    /// The newest manifest.
    ///
    /// # Errors
    /// An input error for a shard that was never created.
    pub async fn existing(&self) -> Result<Arc<ShardManifest>> {
        self.latest().await?.ok_or_else(|| {
            Error::input(format!("shard {} does not exist in this table", self.shard_id))
        })
    }

    /// The manifest of one version.
    ///
    /// # Errors
    /// Damage, also where that version was removed; a storage error.
    pub async fn at(&self, version: ManifestVersion) -> Result<ShardManifest> {
        let path = paths::manifest(self.shard_id, version);
        let bytes = self.store.get(&path, MaxBytes::MANIFEST).await?;
        let bytes =
            bytes.ok_or_else(|| Error::corrupt(&path, "missing", "this version was removed"))?;
        self.decode(version, &bytes, &path)
    }

    fn decode(&self, version: ManifestVersion, bytes: &[u8], path: &str) -> Result<ShardManifest> {
        let manifest = ShardManifest::decode(bytes, path)?;
        if manifest.version != version || manifest.shard_id != self.shard_id {
            return Err(Error::corrupt(
                path,
                "misplaced",
                format!("it holds version {} of shard {}", manifest.version, manifest.shard_id),
            ));
        }
        Ok(manifest)
    }

    /// The version that the hint names, or without one the newest listed.
    async fn hinted_version(&self) -> Result<ManifestVersion> {
        match self.read_hint().await {
            Some(hint) => Ok(hint),
            None => self.listed_version().await,
        }
    }

    /// The last version of the gap-free sequence behind `newest`, among the next `width` versions.
    async fn later_than(
        &self,
        newest: ManifestVersion,
        width: u64,
    ) -> Result<Option<ManifestVersion>> {
        let candidates: Vec<ManifestVersion> = (1..=width)
            .map_while(|offset| newest.get().checked_add(offset))
            .map(ManifestVersion)
            .collect();
        let checks = candidates.iter().map(|version| self.version_exists(*version));
        let found = try_join_all(checks).await?;
        let consecutive = found.iter().take_while(|exists| **exists).count();
        Ok(consecutive.checked_sub(1).map(|last| candidates[last]))
    }

    async fn listed_version(&self) -> Result<ManifestVersion> {
        let files = self.store.list_files(&paths::manifests(self.shard_id)).await?;
        Ok(files.iter().filter_map(|name| paths::parse_manifest(name)).max().unwrap_or_default())
    }

    async fn version_exists(&self, version: ManifestVersion) -> Result<bool> {
        self.store.exists(&paths::manifest(self.shard_id, version)).await
    }

    /// Best effort: a hint that cannot be read only costs a listing.
    async fn read_hint(&self) -> Option<ManifestVersion> {
        let bytes =
            self.store.get(&paths::version_hint(self.shard_id), MaxBytes::NOTE).await.ok()??;
        version_hint::decode(&bytes)
    }

    async fn write_hint(&self, version: ManifestVersion) {
        let path = paths::version_hint(self.shard_id);
        let hint = version_hint::encode(version);
        if let Err(error) = self.store.put_hint(&path, hint.into()).await {
            tracing::warn!(shard = %self.shard_id, %version, %error, "the version hint was not written");
        }
    }

    /// The error of the writer of epoch `local`, where epoch `stored` owns the shard.
    pub(crate) const fn fenced(&self, local: WriterEpoch, stored: WriterEpoch) -> Error {
        Error::Fenced { shard: self.shard_id, local, stored }
    }

    fn contended(&self, action: &str) -> Error {
        Error::storage(
            format!("{action} shard {}", self.shard_id),
            format!("{MAX_ATTEMPTS} attempts lost against other writers"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ErrorKind, Generation};

    fn manifests() -> (ManifestStore, ManifestStore) {
        let inner = Arc::new(object_store::memory::InMemory::new());
        let store = Store::new(inner, "t".into());
        let shard_id = ShardId::from_u128(1);
        (ManifestStore::new(store.clone(), shard_id, 2), ManifestStore::new(store, shard_id, 2))
    }

    #[tokio::test]
    async fn the_last_number_is_no_version_to_look_behind() {
        let (manifests, _) = manifests();
        let last = ManifestVersion(u64::MAX);
        for (path, bytes) in [
            (paths::manifest(manifests.shard_id, last), "no manifest".to_owned()),
            (paths::version_hint(manifests.shard_id), version_hint::encode(last)),
        ] {
            manifests.store.put(&path, bytes.into()).await.unwrap();
        }
        let error = manifests.latest().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }

    #[tokio::test]
    async fn a_claim_raises_the_epoch_by_one_and_fences_the_writer_before() {
        let (first, second) = manifests();
        first.initialize(1, BTreeMap::new()).await.unwrap();
        let old = first.claim().await.unwrap().writer_epoch;
        let new = second.claim().await.unwrap().writer_epoch;
        assert_eq!((old, new), (WriterEpoch(1), WriterEpoch(2)));
        let error = first.update(old, |_| {}).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        assert!(second.check_fenced(new).await.is_ok());
    }

    #[tokio::test]
    async fn a_compactor_drains_beside_a_living_writer_without_fencing_it() {
        let (writer, compactor) = manifests();
        writer.initialize(1, BTreeMap::new()).await.unwrap();
        let epoch = writer.claim().await.unwrap().writer_epoch;
        compactor.update_beside_owner(|m| m.sstables.clear()).await.unwrap();
        let after = writer.update(epoch, |m| m.current_generation = Generation(9)).await.unwrap();
        assert_eq!(after.writer_epoch, epoch);
        assert_eq!(after.version, ManifestVersion(4));
    }

    #[tokio::test]
    async fn a_shard_is_created_once_whichever_handle_asks_first() {
        let (first, second) = manifests();
        let value = BTreeMap::from([("bucket".to_owned(), vec![1, 0, 0, 0])]);
        first.initialize(1, value.clone()).await.unwrap();
        assert!(second.initialize(1, value).await.is_ok());
        assert!(second.initialize(1, BTreeMap::new()).await.is_err());
    }

    #[tokio::test]
    async fn a_lost_hint_costs_a_listing_and_nothing_else() {
        let (first, second) = manifests();
        first.initialize(1, BTreeMap::new()).await.unwrap();
        for _ in 0..5 {
            first.claim().await.unwrap();
        }
        second.store.put(&paths::version_hint(second.shard_id), "{}".into()).await.unwrap();
        assert_eq!(second.latest().await.unwrap().unwrap().version, ManifestVersion(6));
    }

    #[tokio::test]
    async fn a_handle_that_remembers_a_version_sees_each_later_one() {
        let (reader, writer) = manifests();
        writer.initialize(1, BTreeMap::new()).await.unwrap();
        for version in 1..8 {
            // Read twice: what is remembered must not hide what comes next.
            for _ in 0..2 {
                let seen = reader.latest().await.unwrap().unwrap().version;
                assert_eq!(seen, ManifestVersion(version));
            }
            writer.claim().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_handle_that_slept_for_days_trusts_no_slot_that_a_collector_has_freed() {
        let (first, second) = manifests();
        first.initialize(1, BTreeMap::new()).await.unwrap();
        let old = first.claim().await.unwrap().writer_epoch;
        for _ in 0..12 {
            second.claim().await.unwrap();
        }
        let behind = paths::manifest(first.shard_id, ManifestVersion(3));
        second.store.delete(&behind).await.unwrap();
        if let Some((_, seen)) = first.last.lock().as_mut() {
            *seen = seen.before_a_sleep_of(Duration::from_hours(8 * 24));
        }
        let error = first.check_fenced(old).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        let error = first.update(old, |_| {}).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        assert!(!second.store.exists(&behind).await.unwrap(), "nothing is written there");
    }

    #[tokio::test]
    async fn a_claim_of_a_shard_that_was_never_created_is_an_input_error() {
        let (first, _) = manifests();
        assert!(first.claim().await.unwrap_err().to_string().contains("does not exist"));
    }
}
