//! Which events belong to one key, and in which order.
//!
//! Owns: the groups of a fold as offsets into one list of rows.
//! Does not own: the rows, or how keys were compared.

use crate::types::{Error, Result};

/// The events of several keys: rows of sources by `(source, row)`, key by key, oldest to newest.
///
/// ```
/// # use lancemem_core::merge::KeyGroups;
/// // Two sources, the older one first. Key 0 is in both, key 1 in none, key 2 in the newer one.
/// let groups = KeyGroups::from_ordinals(3, &[&[0], &[2, 0]])?;
/// assert_eq!(groups.ordinals(), [0, 2]);
/// assert_eq!(groups.rows(), [(0, 0), (1, 1), (1, 0)]);
/// assert_eq!(groups.offsets(), [0, 2, 3]);
/// # Ok::<(), lancemem_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGroups {
    offsets: Vec<usize>,
    rows: Vec<(usize, usize)>,
    ordinals: Vec<u32>,
}

impl KeyGroups {
    /// Groups that end where the next one begins: group `g` is `rows[offsets[g]..offsets[g + 1]]`.
    ///
    /// # Errors
    /// An internal error for offsets that do not rise from 0 to the number of rows: a key without
    /// events has no group.
    pub fn new(offsets: Vec<usize>, rows: Vec<(usize, usize)>) -> Result<Self> {
        let ends = (offsets.first(), offsets.last());
        let rises = offsets.windows(2).all(|pair| pair[0] < pair[1]);
        if ends != (Some(&0), Some(&rows.len())) || !rises {
            let rows = rows.len();
            let message =
                format!("offsets of key groups do not rise from 0 to {rows}: {offsets:?}");
            return Err(Error::internal(message));
        }
        let ordinals = (0..).take(offsets.len() - 1).collect();
        Ok(Self { offsets, rows, ordinals })
    }

    /// Groups by the ordinals that the rows of each source have, oldest source first. Ordinals are
    /// below `keys`.
    ///
    /// # Errors
    /// An internal error for a larger ordinal.
    pub fn from_ordinals(keys: usize, sources: &[&[u32]]) -> Result<Self> {
        let events = sources.iter().enumerate().flat_map(|(source, of)| {
            let rows = of.iter().enumerate();
            rows.map(move |(row, ordinal)| (*ordinal, (source, row)))
        });
        Self::from_events(keys, events)
    }

    /// Groups of events with their ordinals, those of an ordinal oldest first. Ordinals are below
    /// `keys`.
    ///
    /// # Errors
    /// As [`Self::from_ordinals`].
    pub fn from_events(
        keys: usize,
        events: impl Iterator<Item = (u32, (usize, usize))> + Clone,
    ) -> Result<Self> {
        // A counting sort, which keeps the order of the events.
        let mut ends = vec![0_usize; keys];
        for (ordinal, _) in events.clone() {
            *slot(&mut ends, ordinal)? += 1;
        }
        let (mut offsets, mut ordinals) = (vec![0], Vec::new());
        let mut total = 0;
        for (ordinal, end) in (0..).zip(&mut ends) {
            let count = *end;
            *end = total;
            if count > 0 {
                total += count;
                offsets.push(total);
                ordinals.push(ordinal);
            }
        }
        let mut rows = vec![(0, 0); total];
        for (ordinal, row) in events {
            let next = slot(&mut ends, ordinal)?;
            rows[*next] = row;
            *next += 1;
        }
        Ok(Self { offsets, rows, ordinals })
    }

    /// One group for each of the `count` rows of source 0.
    pub(super) fn singles(count: usize) -> Self {
        let offsets = (0..=count).collect();
        let rows = (0..count).map(|row| (0, row)).collect();
        Self { offsets, rows, ordinals: (0..).take(count).collect() }
    }

    /// The number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ordinals.len()
    }

    /// Whether there is no group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ordinals.is_empty()
    }

    /// Where each group begins, then the number of rows.
    #[must_use]
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Source and row of each event.
    #[must_use]
    pub fn rows(&self) -> &[(usize, usize)] {
        &self.rows
    }

    /// The ordinal of each group.
    #[must_use]
    pub fn ordinals(&self) -> &[u32] {
        &self.ordinals
    }
}

fn slot(ends: &mut [usize], ordinal: u32) -> Result<&mut usize> {
    let keys = ends.len();
    let place = usize::try_from(ordinal).ok();
    place
        .and_then(|place| ends.get_mut(place))
        .ok_or_else(|| Error::internal(format!("ordinal {ordinal} of {keys} keys")))
}
