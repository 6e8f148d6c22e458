//! Transaction ids: which version of an application's data a shard holds already.
//!
//! Owns: the comparison of a write's transaction id with the recorded ones, and how long a
//! transaction id is kept.
//! Does not own: where transaction ids are stored, or what an application counts.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Error, Result};

/// Prefix of applications that write one version and then end.
pub const ONCE: &str = "once:";
/// How many applications that write once a shard remembers. Their names sort by age.
const ONCE_KEPT: usize = 128;
/// Age after which neither a task of such a write nor the ingest of a staged SSTable can still
/// come.
const ONCE_AGE: Duration = Duration::from_hours(14 * 24);
const NAME_BYTES: usize = 256;

/// Identifies a write as version `version` of application `app_id`, with all rows of that version
/// that belong to one shard. Versions of an application only rise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    app_id: String,
    version: i64,
}

impl Txn {
    /// A transaction id of `app_id`, such as the id of a streaming query.
    ///
    /// # Errors
    /// An input error for a name that is empty or longer than 256 bytes.
    pub fn new(app_id: impl Into<String>, version: i64) -> Result<Self> {
        let app_id = app_id.into();
        if app_id.is_empty() || app_id.len() > NAME_BYTES {
            return Err(Error::input(format!(
                "the application id of a transaction has 1 to {NAME_BYTES} bytes, got {}",
                app_id.len()
            )));
        }
        Ok(Self { app_id, version })
    }

    /// The application.
    #[must_use]
    pub fn app_id(&self) -> &str {
        &self.app_id
    }

    /// The version.
    #[must_use]
    pub const fn version(&self) -> i64 {
        self.version
    }
}

/// How a write's transaction id stands to those that a shard has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No version is recorded, or an older one: write.
    New,
    /// The same version is recorded: it is written already.
    Recorded,
    /// This newer version is recorded: the write comes too late.
    Stale(i64),
}

/// The newest version of every application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txns(BTreeMap<String, i64>);

impl Txns {
    /// The newest version of `app_id`.
    #[must_use]
    pub fn get(&self, app_id: &str) -> Option<i64> {
        self.0.get(app_id).copied()
    }

    /// How `txn` stands to these.
    #[must_use]
    pub fn standing(&self, txn: &Txn) -> Standing {
        match self.get(&txn.app_id) {
            Some(recorded) if recorded > txn.version => Standing::Stale(recorded),
            Some(recorded) if recorded == txn.version => Standing::Recorded,
            _ => Standing::New,
        }
    }

    /// Adds a version; a version older than the recorded one changes nothing.
    pub fn record(&mut self, app_id: &str, version: i64) {
        let recorded = self.0.entry(app_id.to_owned()).or_insert(version);
        *recorded = version.max(*recorded);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (app_id, version) in other.iter() {
            self.record(app_id, version);
        }
    }

    /// Forgets applications that write once: the oldest where there are many, and those that have
    /// expired `now`. Keeps all of `brought`: a writer's clock may be slow, so that its transaction
    /// id is older than all others when it arrives.
    pub fn forget_old(&mut self, brought: &Self, now: Option<SystemTime>) {
        if let Some(now) = now {
            self.expire(now, brought);
        }
        let once: Vec<&String> = self.0.keys().filter(|name| name.starts_with(ONCE)).collect();
        let old = once.len().saturating_sub(ONCE_KEPT);
        let old = once.into_iter().filter(|name| !brought.0.contains_key(*name)).take(old);
        for name in old.cloned().collect::<Vec<String>>() {
            self.0.remove(&name);
        }
    }

    /// Whether an application that writes once has expired, by a clock that shows `now`.
    #[must_use]
    pub fn may_expire(&self, now: SystemTime) -> bool {
        self.0.keys().any(|app_id| is_expired(app_id, now))
    }

    /// Forgets the applications that write once and have expired `now`, but none of `brought`. An
    /// application whose name has no time stays.
    fn expire(&mut self, now: SystemTime, brought: &Self) {
        self.0.retain(|app_id, _| brought.0.contains_key(app_id) || !is_expired(app_id, now));
    }

    /// Lets the newest version of every application that `is_meant` be written once more, and no
    /// older version.
    pub fn take_back_newest(&mut self, is_meant: impl Fn(&str) -> bool) {
        self.0.retain(|app_id, version| {
            if !is_meant(app_id) {
                return true;
            }
            let before = version.checked_sub(1);
            *version = before.unwrap_or_default();
            before.is_some()
        });
    }

    /// Every application with its newest version, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(app_id, version)| (app_id.as_str(), *version))
    }

    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The application that writes `name` once. `written` is the time since 1970, so that such
/// applications sort by age.
#[must_use]
pub fn once_app_id(written: Duration, name: &str) -> String {
    format!("{ONCE}{:016x}-{name}", written.as_nanos())
}

/// The digits of the time and the name in [`once_app_id`]; `None` for any other application.
fn once_parts(app_id: &str) -> Option<(&str, &str)> {
    app_id.strip_prefix(ONCE)?.split_once('-')
}

/// The name in [`once_app_id`], whenever it was written; `None` for any other application.
#[must_use]
pub fn once_name(app_id: &str) -> Option<&str> {
    once_parts(app_id).map(|(_, name)| name)
}

/// The time in [`once_app_id`]; `None` where there are not sixteen hexadecimal digits.
fn written_at(app_id: &str) -> Option<SystemTime> {
    let (digits, _) = once_parts(app_id)?;
    let is_time = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let nanoseconds = is_time.then(|| u64::from_str_radix(digits, 16).ok())??;
    UNIX_EPOCH.checked_add(Duration::from_nanos(nanoseconds))
}

/// Whether an application that writes once was written longer ago than [`ONCE_AGE`].
fn is_expired(app_id: &str, now: SystemTime) -> bool {
    let age = written_at(app_id).and_then(|written| now.duration_since(written).ok());
    age.is_some_and(|age| age > ONCE_AGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_hours(500_000)
    }

    /// As a write, or the ingest of a staged SSTable, names itself.
    fn once(hours_ago: u64) -> String {
        let written = now().checked_sub(Duration::from_hours(hours_ago)).unwrap();
        once_app_id(written.duration_since(UNIX_EPOCH).unwrap(), "00c0ffee")
    }

    #[test]
    fn an_application_that_writes_once_expires_after_two_weeks_and_any_other_never() {
        let mut txns = Txns::default();
        let kept =
            [once(14 * 24), once(0), "stream:q".into(), format!("{ONCE}none"), "app:once".into()];
        for name in [once(14 * 24 + 1), once(90 * 24)].iter().chain(&kept) {
            txns.record(name, 7);
        }
        assert!(txns.may_expire(now()));
        txns.forget_old(&Txns::default(), Some(now()));
        let mut left: Vec<&str> = txns.iter().map(|(name, _)| name).collect();
        let mut wanted: Vec<&str> = kept.iter().map(String::as_str).collect();
        left.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(left, wanted);
        assert!(!txns.may_expire(now()));
    }

    #[test]
    fn a_name_that_a_late_clock_made_stays_as_it_comes() {
        let mut brought = Txns::default();
        brought.record(&once(1_000), 0);
        let mut txns = brought.clone();
        txns.record(&once(0), 0);
        txns.forget_old(&brought, Some(now()));
        assert_eq!(txns.iter().count(), 2);
    }

    #[test]
    fn a_transaction_id_is_new_recorded_or_stale_by_the_newest_version_of_its_application() {
        let mut txns = Txns::default();
        txns.record("query", 7);
        txns.record("query", 5);
        let standing = |version| txns.standing(&Txn::new("query", version).unwrap());
        assert_eq!(
            [standing(6), standing(7), standing(8)],
            [Standing::Stale(7), Standing::Recorded, Standing::New]
        );
        assert_eq!(txns.standing(&Txn::new("other", 1).unwrap()), Standing::New);
    }

    #[test]
    fn of_the_applications_that_write_once_the_newest_are_kept_and_of_others_all() {
        let mut txns = Txns::default();
        txns.record("a query", 1);
        for number in 0..ONCE_KEPT + 10 {
            txns.record(&format!("{ONCE}{number:08}"), 0);
        }
        txns.forget_old(&Txns::default(), None);
        assert_eq!(txns.iter().count(), ONCE_KEPT + 1);
        assert_eq!(txns.get(&format!("{ONCE}{:08}", 9)), None);
        assert_eq!(txns.get(&format!("{ONCE}{:08}", 10)), Some(0));
    }

    #[test]
    fn a_transaction_id_that_comes_with_an_old_name_is_not_forgotten_as_it_comes() {
        let mut txns = Txns::default();
        for number in 10..10 + ONCE_KEPT {
            txns.record(&format!("{ONCE}{number:08}"), 0);
        }
        let mut brought = Txns::default();
        brought.record(&format!("{ONCE}{:08}", 1), 0);
        txns.merge(&brought);
        txns.forget_old(&brought, None);
        assert_eq!(txns.iter().count(), ONCE_KEPT);
        assert_eq!(txns.get(&format!("{ONCE}{:08}", 1)), Some(0));
        assert_eq!(txns.get(&format!("{ONCE}{:08}", 10)), None);
    }

    #[test]
    fn a_transaction_id_without_a_name_is_refused() {
        assert!(Txn::new("", 1).is_err());
        assert!(Txn::new("x".repeat(257), 1).is_err());
    }
}
