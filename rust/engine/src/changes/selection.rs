//! Sets of rows of one version, by fragment and offset.
//!
//! Owns: rows that are read ([`Selection`]), where a whole fragment takes no memory, and rows that
//! are marked ([`Marks`]).
//! Does not own: which rows they are.

use std::collections::{BTreeMap, HashSet};

use lance::dataset::scanner::RowAddrTreeMap;
use roaring::RoaringBitmap;

use crate::row_address::split_address;

/// Rows of a fragment.
#[derive(Clone, Debug)]
pub enum Picked {
    /// All live rows, and their number.
    Live(u64),
    /// Live rows at these offsets.
    At(RoaringBitmap),
}

impl Picked {
    fn rows(&self) -> u64 {
        match self {
            Self::Live(rows) => *rows,
            Self::At(offsets) => offsets.len(),
        }
    }
}

/// Live rows of a version, in the order of fragments and offsets. No fragment is without a row.
#[derive(Clone, Debug, Default)]
pub struct Selection(BTreeMap<u32, Picked>);

impl Selection {
    /// Adds rows of a fragment that has none yet.
    pub fn set(&mut self, fragment: u32, picked: Picked) {
        if picked.rows() > 0 {
            self.0.insert(fragment, picked);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn rows(&self) -> u64 {
        self.0.values().map(Picked::rows).sum()
    }

    /// The fragments, each with the number of its rows.
    pub fn fragments(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().map(|(fragment, picked)| (*fragment, picked.rows()))
    }

    /// The rows of the fragments `ids` alone.
    pub fn restricted(&self, ids: &[u32]) -> Self {
        let ids: HashSet<&u32> = ids.iter().collect();
        let within = self.0.iter().filter(|(fragment, _)| ids.contains(fragment));
        Self(within.map(|(fragment, picked)| (*fragment, picked.clone())).collect())
    }

    /// How many of the rows are marked. All marked rows of these fragments are in the selection, or
    /// the selection has offsets.
    pub fn marked_rows(&self, marks: &Marks) -> u64 {
        let of = |(fragment, picked): (&u32, &Picked)| match (marks.0.get(fragment), picked) {
            (None, _) => 0,
            (Some(marked), Picked::Live(_)) => marked.len(),
            (Some(marked), Picked::At(offsets)) => marked.intersection_len(offsets),
        };
        self.0.iter().map(of).sum()
    }

    /// The addresses of the rows; `None` where whole fragments are selected.
    pub fn addresses(&self) -> Option<RowAddrTreeMap> {
        if self.0.values().all(|picked| matches!(picked, Picked::Live(_))) {
            return None;
        }
        let mut addresses = RowAddrTreeMap::new();
        for (fragment, picked) in &self.0 {
            match picked {
                Picked::Live(_) => addresses.insert_fragment(*fragment),
                Picked::At(offsets) => addresses.insert_bitmap(*fragment, offsets.clone()),
            }
        }
        Some(addresses)
    }
}

/// Marked rows of a version.
#[derive(Clone, Debug, Default)]
pub struct Marks(BTreeMap<u32, RoaringBitmap>);

impl Marks {
    pub fn insert(&mut self, address: u64) {
        let (fragment, offset) = split_address(address);
        self.0.entry(fragment).or_default().insert(offset);
    }

    pub fn remove(&mut self, address: u64) {
        let (fragment, offset) = split_address(address);
        if let Some(offsets) = self.0.get_mut(&fragment) {
            offsets.remove(offset);
        }
    }

    pub fn contains(&self, address: u64) -> bool {
        let (fragment, offset) = split_address(address);
        self.0.get(&fragment).is_some_and(|offsets| offsets.contains(offset))
    }

    /// The rows of a fragment at `offsets`.
    pub fn of_fragment(fragment: u32, offsets: RoaringBitmap) -> Self {
        Self(BTreeMap::from([(fragment, offsets)]))
    }

    /// The marked rows, to be read.
    pub fn into_selection(self) -> Selection {
        let mut selection = Selection::default();
        for (fragment, offsets) in self.0 {
            selection.set(fragment, Picked::At(offsets));
        }
        selection
    }
}
