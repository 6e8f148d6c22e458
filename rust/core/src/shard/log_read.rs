//! A read of a shard's log by a process that does not own the shard.
//!
//! Owns: the repetition of a read while the owner flushes.
//! Does not own: what is read (`log_size`, `transactions`), or the read of a claim (`claim`).

use std::sync::Arc;

use crate::format::ShardManifest;
use crate::store::ManifestStore;
use crate::types::Result;

/// How often a read starts again because the owner flushed meanwhile.
const MAX_ATTEMPTS: usize = 8;

/// Reads the log above the newest manifest, and again where the owner flushed meanwhile: a flush
/// removes entries, and a missing entry counts as damage only while the manifest stands still.
///
/// # Errors
/// The error of `read`, or of reading the manifest.
pub(super) async fn read_beside_owner<T, F>(
    manifests: &ManifestStore,
    read: impl Fn(Arc<ShardManifest>) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut manifest = manifests.existing().await?;
    let mut attempt = 1;
    loop {
        let error = match read(manifest.clone()).await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let newest = manifests.existing().await?;
        if newest.version <= manifest.version || attempt == MAX_ATTEMPTS {
            return Err(error);
        }
        manifest = newest;
        attempt += 1;
    }
}
