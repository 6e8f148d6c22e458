//! Applications that number their writes: each version is tried, through any process, until it is
//! acknowledged, and now and then once more.
//!
//! Owns: the version that each application is at, and its rows.
//! Does not own: the processes (`process`), or how often a version may count (`oracle`).

use lancemem_core::types::Txn;
use parking_lot::Mutex;

use crate::chance::Chance;
use crate::events::Call;
use crate::oracle::Version;
use crate::rules::Rule;

const APPLICATIONS: usize = 2;

#[derive(Debug)]
struct Application {
    version: i64,
    call: Call,
    /// The call of the version before, which is acknowledged.
    before: Option<Call>,
}

/// All applications of a life.
#[derive(Debug, Default)]
pub struct Applications(Mutex<Vec<Application>>);

/// One attempt to write a version.
#[derive(Debug)]
pub struct Attempt {
    /// The application and its version.
    pub version: Version,
    /// The rows.
    pub call: Call,
}

impl Applications {
    /// The next attempt of an application: its current version, or rarely the one before.
    pub fn attempt(&self, chance: &Chance, rule: Rule) -> Attempt {
        let mut all = self.0.lock();
        while all.len() < APPLICATIONS {
            all.push(Application { version: 1, call: Call::draw(chance, rule), before: None });
        }
        let at = chance.index(APPLICATIONS);
        let Application { version, call, before } = &all[at];
        match before {
            Some(before) if chance.odds(60) => {
                Attempt { version: (at, version - 1), call: before.clone() }
            }
            _ => Attempt { version: (at, *version), call: call.clone() },
        }
    }

    /// The attempt was acknowledged. Most applications then go on; others repeat the version, as one
    /// does that has lost its own record of it.
    pub fn acknowledged(&self, version: Version, chance: &Chance, rule: Rule) {
        let mut all = self.0.lock();
        let Some(application) = all.get_mut(version.0) else { return };
        if application.version == version.1 && chance.odds(700) {
            let next = Call::draw(chance, rule);
            application.before = Some(std::mem::replace(&mut application.call, next));
            application.version += 1;
        }
    }

    /// Whether the application of this name has come to `version`.
    pub fn has_come_to(&self, app_id: &str, version: i64) -> bool {
        let all = self.0.lock();
        (0..).zip(all.iter()).any(|(at, it)| app_id_of(at) == app_id && it.version >= version)
    }
}

/// The transaction id of a version.
pub fn txn_of(version: Version) -> Txn {
    Txn::new(app_id_of(version.0), version.1)
        .unwrap_or_else(|error| unreachable!("a name of an application: {error}"))
}

fn app_id_of(application: usize) -> String {
    format!("application {application}")
}
