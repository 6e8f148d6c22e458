//! The token of a snapshot, by which another process reads the same rows.
//!
//! Owns: the parts of a token, and its text.
//! Does not own: opening the snapshot again (`table`), or how long its files stay: for the
//! collector's grace period, and for Lance's retention of old versions of the base table.
//!
//! ```text
//! 12/9b2f...:7:103/04c1...:3:-    base version, then a shard each: its id, the version of its
//!                                 manifest, and the WAL position after the last entry that was
//!                                 read, `-` where the log was not read
//! ```

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use lancemem_core::types::{Error, ManifestVersion, Result, ShardId, WalPosition};

/// The base version and the versions of the shards that make up a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotToken {
    /// The version of the base table.
    pub base_version: u64,
    /// One entry per shard.
    pub shards: Vec<ShardToken>,
}

/// The part of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardToken {
    /// The shard.
    pub shard_id: ShardId,
    /// The version of its manifest.
    pub manifest_version: ManifestVersion,
    /// The position after the last entry that was read; `None` where the log was not read.
    pub log_end: Option<WalPosition>,
}

impl fmt::Display for SnapshotToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base_version)?;
        for shard in &self.shards {
            write!(f, "/{}:{}:", shard.shard_id, shard.manifest_version)?;
            match shard.log_end {
                Some(end) => write!(f, "{end}")?,
                None => f.write_str("-")?,
            }
        }
        Ok(())
    }
}

impl FromStr for SnapshotToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::input(format!("'{text}' is not the token of a snapshot"));
        let mut parts = text.split('/');
        let base_version = parts.next().and_then(|part| part.parse().ok()).ok_or_else(refused)?;
        let shards = parts.map(|part| shard_token(part).ok_or_else(refused));
        let shards = shards.collect::<Result<Vec<ShardToken>>>()?;
        let ids: HashSet<ShardId> = shards.iter().map(|part| part.shard_id).collect();
        if ids.len() < shards.len() {
            return Err(refused());
        }
        Ok(Self { base_version, shards })
    }
}

fn shard_token(text: &str) -> Option<ShardToken> {
    let mut fields = text.split(':');
    let shard_id = ShardId::parse_str(fields.next()?).ok()?;
    let manifest_version = ManifestVersion(fields.next()?.parse().ok()?);
    let log_end = match fields.next()? {
        "-" => None,
        position => Some(WalPosition(position.parse().ok()?)),
    };
    fields.next().is_none().then_some(ShardToken { shard_id, manifest_version, log_end })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "9b2f0000-0000-4000-8000-000000000001";
    const OTHER: &str = "9b2f0000-0000-4000-8000-000000000002";

    #[test]
    fn a_token_is_parsed_from_its_text() {
        let part = |id, version, log_end| ShardToken {
            shard_id: ShardId::parse_str(id).unwrap(),
            manifest_version: ManifestVersion(version),
            log_end,
        };
        let shards = vec![part(ID, 7, Some(WalPosition(103))), part(OTHER, 3, None)];
        let token = SnapshotToken { base_version: 12, shards };
        assert_eq!(token.to_string(), format!("12/{ID}:7:103/{OTHER}:3:-"));
        assert_eq!(token.to_string().parse::<SnapshotToken>().unwrap(), token);
        let bare = SnapshotToken { base_version: 1, shards: Vec::new() };
        assert_eq!("1".parse::<SnapshotToken>().unwrap(), bare);
    }

    #[test]
    fn other_text_is_refused() {
        let twice = format!("1/{ID}:1:2/{OTHER}:1:2/{ID}:1:2");
        let (short, long) = (format!("1/{ID}:1"), format!("1/{ID}:1:2:3"));
        for text in ["", "x", "1/", "1/abc:1:1", &short, &long, "-1", &twice] {
            let error = text.parse::<SnapshotToken>().unwrap_err().to_string();
            assert!(error.contains("is not the token of a snapshot"), "{error}");
        }
    }
}
