//! Retries a read of the newest version if that version was cleaned up while the read ran.
//!
//! Owns: when a read that found damage is repeated. Does not own: reads of a snapshot that the
//! caller holds, which cannot move to a newer version, or rows that were returned already.

use std::sync::Arc;

use lancemem_core::store::Backoff;
use lancemem_core::types::{ErrorKind, Result};

use super::Reader;
use crate::damage::naming_damage;
use crate::snapshot::Snapshot;

/// Attempts of a read whose files another program keeps cleaning up.
const MAX_ATTEMPTS: usize = 4;

impl Reader {
    /// Runs `read` on the snapshot that `pin` takes. If the read finds damage and its base version
    /// is no longer the newest, another program may have cleaned that version up: both calls are
    /// repeated. If it is the newest, the damage is returned.
    ///
    /// # Errors
    /// Those of `pin` and `read`.
    pub(super) async fn read_again<T, P, R>(
        &self,
        pin: impl Fn() -> P,
        read: impl Fn(Arc<Snapshot>) -> R,
    ) -> Result<T>
    where
        P: Future<Output = Result<Arc<Snapshot>>>,
        R: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let mut backoff = Backoff::at_once(MAX_ATTEMPTS);
        loop {
            let snapshot = pin().await?;
            let base = snapshot.base.clone();
            let version = base.version().version;
            let error = match naming_damage(&base, read(snapshot)).await {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Corruption || backoff.is_last() {
                return Err(error);
            }
            let newest = self.catalog.latest_base().await?.version().version;
            if newest == version {
                return Err(error);
            }
            tracing::info!(table = self.catalog.uri(), version, newest, %error, "a read is repeated");
            backoff.wait().await;
        }
    }
}
