//! A snapshot that a reader holds while the shard goes on: it always shows the same.
//!
//! Owns: what it showed, and the later look at it.
//! Does not own: how a snapshot is taken, or what it may show at first.
//!
//! It draws no random number and never waits, so that a held snapshot changes nothing of the life.

use std::sync::Arc;

use lancemem_core::format::ShardManifest;
use lancemem_core::memtable::MemTableView;

use crate::rows::PutId;
use crate::world::{Base, World};

/// It is looked at again after this number of looks of its reader.
const LOOKS: usize = 4;

/// A base version, a manifest, and rows in memory as they were at one moment.
#[derive(Debug)]
struct View {
    base: Base,
    manifest: Arc<ShardManifest>,
    memtables: Vec<MemTableView>,
    puts: Vec<PutId>,
}

/// The snapshot that a reader holds, if it holds one.
#[derive(Debug, Default)]
pub struct Held {
    view: Option<View>,
    looks: usize,
}

impl Held {
    /// Looks again at the held snapshot when its time has come.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn look_again(&mut self, world: &World) -> Result<(), String> {
        self.looks += 1;
        if self.looks < LOOKS {
            return Ok(());
        }
        self.looks = 0;
        let Some(view) = self.view.take() else { return Ok(()) };
        world.event("view held", 0, "");
        let again = world.assemble_on(&view.base, &view.manifest, &view.memtables, true)?;
        if again.puts == view.puts {
            return Ok(());
        }
        Err(format!(
            "P5: a held snapshot shows {} puts, and showed {}",
            again.puts.len(),
            view.puts.len()
        ))
    }

    /// Holds this snapshot, which shows `puts`, where the reader holds no other.
    pub fn hold(
        &mut self,
        base: Base,
        manifest: &Arc<ShardManifest>,
        memtables: &[MemTableView],
        puts: &[PutId],
    ) {
        self.view.get_or_insert_with(|| View {
            base,
            manifest: manifest.clone(),
            memtables: memtables.to_vec(),
            puts: puts.to_vec(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rows;

    #[test]
    fn a_snapshot_that_shows_more_than_it_showed_breaks_a_promise() {
        let world = World::new(7, 1, false);
        let put = world.oracle.lock().call(1, 1, None, |_| vec![(9, rows::put(3))]);
        let rows = Arc::new(world.oracle.lock().table(&[put]));
        let base = Base { puts: Arc::new(vec![put]), rows, ..world.base.lock().clone() };
        let manifest = Arc::new(ShardManifest::initial(world.shard_id, 1, BTreeMap::new()));
        for (showed, is_kept) in [(vec![put], true), (Vec::new(), false)] {
            let mut held = Held::default();
            held.hold(base.clone(), &manifest, &[], &showed);
            let looks: Vec<_> = (0..LOOKS).map(|_| held.look_again(&world)).collect();
            assert!(looks[..LOOKS - 1].iter().all(Result::is_ok));
            assert_eq!(looks[LOOKS - 1].is_ok(), is_kept, "{looks:?}");
        }
    }
}
