//! The rows that differ between two versions of the base table.
//!
//! Owns: what each operation of Lance can change, and the rows that died and came, from the
//! fragments and deletion files of two manifests, or of one manifest and a commit to it.
//! Does not own: rows whose columns were rewritten in place (`altered`), or which row of one side
//! has the key of which row of the other (`pair`).

use std::collections::HashMap;
use std::sync::Arc;

use lance::Dataset;
use lance::dataset::fragment::FileFragment;
use lance::dataset::transaction::Operation;
use lance_table::format::Fragment;
use lancemem_core::types::Result;
use roaring::RoaringBitmap;

use super::altered::Altered;
use super::selection::{Picked, Selection};
use super::shape::Shape;
use crate::errors::BaseContext;
use crate::record_index::fragment_of;
use crate::row_address::address_half;

const ACTION: &str = "comparing two versions of the base table";

/// What an operation may do to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes no row.
    Nothing,
    /// The versions are compared.
    Rows(Trust),
    /// Its changes cannot be derived.
    Unknown,
}

/// What the comparison takes from the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// A fragment of the same id has the same rows at the same offsets, whatever its files are.
    pub keeps_ids: bool,
    /// A column that was widened has the same values.
    pub keeps_widened: bool,
}

/// The effect of an operation.
pub const fn effect(operation: &Operation) -> Effect {
    match operation {
        Operation::Rewrite { .. }
        | Operation::CreateIndex { .. }
        | Operation::ReserveFragments { .. }
        | Operation::UpdateConfig { .. }
        | Operation::UpdateMemWalState { .. }
        | Operation::UpdateBases { .. } => Effect::Nothing,
        Operation::Append { .. }
        | Operation::Delete { .. }
        | Operation::Overwrite { .. }
        | Operation::Restore { .. }
        | Operation::Project { .. }
        | Operation::Clone { .. } => Effect::Rows(Trust { keeps_ids: false, keeps_widened: false }),
        Operation::Update { .. } | Operation::DataReplacement { .. } => {
            Effect::Rows(Trust { keeps_ids: true, keeps_widened: false })
        }
        Operation::Merge { .. } => Effect::Rows(Trust { keeps_ids: true, keeps_widened: true }),
        Operation::DataOverlay { .. } | Operation::Unknown { .. } => Effect::Unknown,
    }
}

/// The rows that differ.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Live rows of the older version that the newer one does not have, or has with other values.
    pub before: Selection,
    /// Live rows of the newer version that the older one does not have, or had with other values.
    pub after: Selection,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }
}

/// The rows that differ between `old` and `new`; all rows of `new` where there is no older version.
///
/// # Errors
/// A storage error; an error of changes that cannot be derived where the columns changed so that
/// older rows do not fit.
pub async fn difference(
    shape: &Shape,
    old: Option<&Arc<Dataset>>,
    new: &Arc<Dataset>,
    trust: Trust,
) -> Result<Difference> {
    shape.stored(new, &shape.all)?;
    let mut found = Difference::default();
    let of_old = old.map_or(&[][..], |old| old.fragments().as_slice());
    let mut gone: HashMap<u64, &Fragment> = of_old.iter().map(|it| (it.id, it)).collect();
    let altered = old.map(|old| Altered::new(shape, old, new, trust.keeps_widened)).transpose()?;
    for fragment in new.fragments().iter() {
        let before = gone.get(&fragment.id).copied();
        match (before.filter(|before| has_rows_of(before, fragment, trust)), old, &altered) {
            (Some(before), Some(old), Some(altered)) => {
                gone.remove(&fragment.id);
                let columns = altered.columns(before, fragment);
                if columns.is_empty() && before.deletion_file == fragment.deletion_file {
                    continue;
                }
                let (died, came) = moved(old, new, fragment.id).await?;
                let rewritten = altered.rows(&columns, &died, fragment.id).await?;
                let id = address_half(fragment.id)?;
                found.before.set(id, Picked::At(&died.only_before | &rewritten));
                found.after.set(id, Picked::At(came | rewritten));
            }
            _ => live(&fragment_of(new, fragment.id)?, &mut found.after).await?,
        }
    }
    if let Some(old) = old {
        for id in gone.into_keys() {
            live(&fragment_of(old, id)?, &mut found.before).await?;
        }
    }
    Ok(found)
}

/// Whether two fragments of one id have the same rows at the same offsets. Older releases of Lance
/// gave an id to another fragment after an overwrite.
fn has_rows_of(before: &Fragment, after: &Fragment, trust: Trust) -> bool {
    let is_shared = |path: &str| after.files.iter().any(|file| file.path == path);
    before.physical_rows == after.physical_rows
        && (trust.keeps_ids || before.files.iter().any(|file| is_shared(&file.path)))
}

/// The rows that a commit changes which is not made yet: it removes fragments of `base`, gives
/// others the deletion files of `updated`, and adds the fragments `added`.
///
/// # Errors
/// A storage error.
pub async fn difference_of_commit(
    base: &Arc<Dataset>,
    removed: &[u64],
    updated: &[Fragment],
    added: &[Fragment],
) -> Result<Difference> {
    let mut found = Difference::default();
    for id in removed {
        live(&fragment_of(base, *id)?, &mut found.before).await?;
    }
    for after in updated {
        let before = deleted(&fragment_of(base, after.id)?).await?;
        let died = deleted(&FileFragment::new(base.clone(), after.clone())).await? - before;
        found.before.set(address_half(after.id)?, Picked::At(died));
    }
    for fragment in added {
        live(&FileFragment::new(base.clone(), fragment.clone()), &mut found.after).await?;
    }
    Ok(found)
}

/// Adds all live rows of a fragment.
async fn live(fragment: &FileFragment, rows: &mut Selection) -> Result<()> {
    let count = fragment.count_rows(None).await.in_base(ACTION)?;
    rows.set(address_half(fragment.id() as u64)?, Picked::Live(count as u64));
    Ok(())
}

/// Rows of a fragment that one version has alive.
#[derive(Debug, Default)]
pub struct Died {
    /// Rows that are alive in the older version alone.
    pub only_before: RoaringBitmap,
    /// Rows that are deleted in one version or in both.
    pub deleted: RoaringBitmap,
}

/// The rows of a fragment that died, and those that are alive again.
async fn moved(old: &Dataset, new: &Dataset, fragment: u64) -> Result<(Died, RoaringBitmap)> {
    let before = deleted(&fragment_of(old, fragment)?).await?;
    let after = deleted(&fragment_of(new, fragment)?).await?;
    let (only_before, came) = (&after - &before, &before - &after);
    Ok((Died { only_before, deleted: before | after }, came))
}

pub(super) async fn deleted(fragment: &FileFragment) -> Result<RoaringBitmap> {
    let deleted = fragment.get_deletion_vector().await.in_base(ACTION)?;
    Ok(deleted.map(|deleted| RoaringBitmap::from(&*deleted)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use lance_table::format::DataFile;

    use super::*;

    fn fragment(rows: usize, files: &[&str]) -> Fragment {
        let mut fragment = Fragment::new(7);
        fragment.physical_rows = Some(rows);
        fragment.files = files
            .iter()
            .map(|path| DataFile::new_legacy_from_fields(*path, vec![0], None))
            .collect();
        fragment
    }

    #[test]
    fn a_fragment_of_one_id_has_the_same_rows_where_a_file_is_the_same_or_the_operation_keeps_ids()
    {
        let (by_file, by_id) = (Trust::default(), Trust { keeps_ids: true, ..Trust::default() });
        let one = fragment(3, &["a", "b"]);
        assert!(has_rows_of(&one, &fragment(3, &["b", "c"]), by_file));
        assert!(!has_rows_of(&one, &fragment(3, &["c"]), by_file));
        assert!(has_rows_of(&one, &fragment(3, &["c"]), by_id));
        assert!(!has_rows_of(&one, &fragment(4, &["a"]), by_id));
    }

    #[test]
    fn operations_that_move_or_describe_rows_change_none() {
        assert_eq!(effect(&Operation::ReserveFragments { num_fragments: 1 }), Effect::Nothing);
        let append = Operation::Append { fragments: Vec::new() };
        assert_eq!(effect(&append), Effect::Rows(Trust::default()));
        assert_eq!(effect(&Operation::DataOverlay { groups: Vec::new() }), Effect::Unknown);
    }
}
