//! Named sync points at which a test stops a call, so that an interleaving does not depend on time.
//!
//! Owns: the names, and the wait at a sync point until the test releases the call. Does not own:
//! the work of the call before and after it.
//!
//! Only unit tests and builds with the feature `mutants` have sync points; in every other build
//! [`pass`] returns a future that is ready. A unit test gets a gate from [`hold`]. A process of a
//! build with `mutants` looks into the folder of the environment variable `LANCEMEM_HOLDS`. A file
//! there with the name of a hold arms it for one call: the call renames the file to
//! `{name}.reached` and goes on once the renamed file is removed.

/// A sync point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A compaction has found the dead rows, and has written no file.
    Planned,
    /// A compaction has written its files, and commits next.
    Files,
    /// A compaction has committed rows, and links the indexes of SSTables next.
    Segments,
    /// A compaction has committed, and drains the shard manifests next.
    Drain,
    /// A rewrite of dead fragments has chosen them at one version, and reads them next.
    Rewrite,
    /// An update of indexes, or the build of one, has read its base version, and begins.
    Indexes,
    /// Any commit to the base table: Lance has checked it against the versions since its read
    /// version. Next the engine checks that there are no others.
    Commit,
    /// Any commit to the base table: the engine has checked the versions, and creates the manifest
    /// next.
    Manifest,
    /// A collection has listed its garbage, and removes it next.
    Listed,
    /// The changes of a flush are written, and published next.
    Changes,
}

#[cfg(not(any(test, feature = "mutants")))]
pub use absent::pass;
#[cfg(any(test, feature = "mutants"))]
pub use present::pass;

#[cfg(not(any(test, feature = "mutants")))]
mod absent {
    use std::future::{Ready, ready};

    use super::Hold;

    /// This build holds no call.
    pub fn pass(_hold: Hold, _table: &str) -> Ready<()> {
        ready(())
    }
}

#[cfg(any(test, feature = "mutants"))]
mod present {
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;
    use std::time::Duration;

    use super::Hold;

    const FOLDER: &str = "LANCEMEM_HOLDS";
    const POLL: Duration = Duration::from_millis(2);

    /// Waits where `hold` is armed for `table`, until the test releases the call.
    pub async fn pass(hold: Hold, table: &str) {
        static HOLDS: OnceLock<Option<PathBuf>> = OnceLock::new();
        #[cfg(test)]
        super::gates::pass(hold, table).await;
        #[cfg(not(test))]
        let _ = table;
        let folder = HOLDS.get_or_init(|| std::env::var_os(FOLDER).map(PathBuf::from));
        if let Some(folder) = folder {
            pass_file(folder, name_of(hold)).await;
        }
    }

    async fn pass_file(folder: &Path, name: &str) {
        let reached = folder.join(format!("{name}.reached"));
        // A rename succeeds for one call only, and that call is held.
        if std::fs::rename(folder.join(name), &reached).is_err() {
            return;
        }
        while reached.exists() {
            #[expect(
                clippy::disallowed_methods,
                reason = "the test decides when the call goes on; no decision reads the clock"
            )]
            tokio::time::sleep(POLL).await;
        }
    }

    const fn name_of(hold: Hold) -> &'static str {
        match hold {
            Hold::Planned => "planned",
            Hold::Files => "files",
            Hold::Segments => "segments",
            Hold::Drain => "drain",
            Hold::Rewrite => "rewrite",
            Hold::Indexes => "indexes",
            Hold::Commit => "commit",
            Hold::Manifest => "manifest",
            Hold::Listed => "listed",
            Hold::Changes => "changes",
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[tokio::test]
        async fn a_file_holds_one_call_until_its_second_name_is_removed() {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            pass_file(folder.path(), "commit").await;
            std::fs::write(at("commit"), "").unwrap();
            let mut held = std::pin::pin!(pass_file(folder.path(), "commit"));
            assert!(futures::poll!(held.as_mut()).is_pending());
            assert!(at("commit.reached").exists());
            pass_file(folder.path(), "commit").await;
            std::fs::remove_file(at("commit.reached")).unwrap();
            held.await;
        }
    }
}

#[cfg(test)]
pub use gates::hold;

#[cfg(test)]
mod gates {
    use std::sync::Arc;

    use lancemem_testkit::Gate;
    use parking_lot::Mutex;

    use super::Hold;

    static GATES: Mutex<Vec<(Hold, String, Arc<Gate>)>> = Mutex::new(Vec::new());

    /// Holds each call that reaches `hold` for the table at `table`, until the gate is opened.
    pub fn hold(hold: Hold, table: &str) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        GATES.lock().push((hold, table.to_owned(), gate.clone()));
        gate
    }

    pub(super) async fn pass(hold: Hold, table: &str) {
        let gates: Vec<Arc<Gate>> = GATES
            .lock()
            .iter()
            .filter(|(held, of, _)| *held == hold && of == table)
            .map(|(_, _, gate)| gate.clone())
            .collect();
        for gate in gates {
            gate.pass().await;
        }
    }
}
