//! A read of the newest version, begun again where that was cleaned up while it ran.
//!
//! Owns: when a read that found damage is repeated. Does not own: reads of a snapshot that the caller pinned, which
//! cannot move on, or rows that were handed out already.

use std::sync::Arc;

use lancemem_core::types::{ErrorKind, Result};

use super::Table;
use crate::damage::naming_damage;
use crate::snapshot::Snapshot;

/// Reads that may find a file missing although another program commits and cleans up beside them.
const ATTEMPTS: u32 = 4;

impl Table {
    /// What `read` makes of what `pin` pins. A file that is missing is damage where the base version of the read
    /// is the newest still; else both are done again.
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
        let mut attempt = 1;
        loop {
            let snapshot = pin().await?;
            let base = snapshot.base.clone();
            let version = base.version().version;
            let error = match naming_damage(&base, read(snapshot)).await {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Corruption || attempt == ATTEMPTS {
                return Err(error);
            }
            let newest = self.latest_base().await?.version().version;
            if newest == version {
                return Err(error);
            }
            tracing::info!(table = self.uri(), version, newest, %error, "a read begins again");
            attempt += 1;
        }
    }
}
