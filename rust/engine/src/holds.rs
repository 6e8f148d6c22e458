//! Named places at which a test holds a call, so that what happens meanwhile is no matter of time.
//!
//! Owns: the names, and waiting at one until the test lets go. Does not own: what the call does before and
//! after it.
//!
//! Only unit tests and builds with the feature `mutants` have them; in every other build [`pass`] is a value
//! that is ready. A unit test asks [`hold`] for a gate. A process of a build with `mutants` looks into the folder
//! that the variable `LANCEMEM_HOLDS` names. A file there that has the name of a hold arms it, for one call: the
//! call renames the file to `{name}.reached` and goes on once that is removed.

/// A place of a call at which it can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A compaction knows what dies, and has made no file.
    Planned,
    /// A compaction has made its files, and commits next.
    Files,
    /// A compaction has committed, and drains the shard manifests next.
    Drain,
    /// A rewrite of dead fragments has chosen them at one version, and reads them next.
    Rewrite,
    /// An update of indexes has its version, and begins.
    Indexes,
    /// Any commit to the base table: Lance has compared it with the versions since, and the engine looks next
    /// whether those were all.
    Commit,
    /// Any commit to the base table: the engine has looked, and creates the manifest next.
    Manifest,
    /// A collection has listed what it removes, and removes it next.
    Listed,
}

#[cfg(not(any(test, feature = "mutants")))]
pub use absent::pass;
#[cfg(any(test, feature = "mutants"))]
pub use present::pass;

#[cfg(not(any(test, feature = "mutants")))]
mod absent {
    use std::future::{Ready, ready};

    use super::Hold;

    /// Nothing is ever held in this build.
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

    /// Waits where `hold` is armed for `table`, until the test lets go.
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
        // One call is held, whichever renames the file.
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
            Hold::Drain => "drain",
            Hold::Rewrite => "rewrite",
            Hold::Indexes => "indexes",
            Hold::Commit => "commit",
            Hold::Manifest => "manifest",
            Hold::Listed => "listed",
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

    /// Holds each call that comes to `hold` for the table at `table`, until the gate is opened.
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
