//! The sources of a snapshot whose rows a scan reads.
//!
//! Owns: [`ScanSources`]. Does not own: which sources there are (`snapshot`).

use std::collections::BTreeSet;
use std::sync::Arc;

/// The sources whose rows a scan reads. Newer rows of other sources hide them all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScanSources {
    /// All.
    #[default]
    All,
    /// Some, by arm: the base table is 0, the source at index `n` of the snapshot is `n + 1`.
    Arms(Arc<BTreeSet<usize>>),
}

impl ScanSources {
    /// The sources of these arms.
    pub fn arms(arms: impl IntoIterator<Item = usize>) -> Self {
        Self::Arms(Arc::new(arms.into_iter().collect()))
    }

    /// Whether the rows of the source of `arm` are read.
    #[must_use]
    pub fn has(&self, arm: usize) -> bool {
        match self {
            Self::All => true,
            Self::Arms(arms) => arms.contains(&arm),
        }
    }
}
