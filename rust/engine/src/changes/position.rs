//! Positions of change feeds that read each shard by itself, and their text.
//!
//! Owns: [`Positions`] as a value and as the text that a caller stores.
//! Does not own: what a position of one shard counts (`flushed`, `input`), or whether a table has
//! it (`table`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lancemem_core::types::{Error, Result, ShardId};

/// The position of one shard at a level of change feeds.
pub trait InShard: Copy {
    /// The name of the level, with which the text of its positions begins.
    const LEVEL: &str;
    /// The parts of the text behind the shard, for an error.
    const PARTS: &str;

    /// Writes the text behind the shard.
    ///
    /// # Errors
    /// An error of the formatter.
    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Reads what [`Self::write`] writes; `None` for another text.
    fn parse(text: &str) -> Option<Self>;
}

/// The version of the text.
const FORMAT: u32 = 1;

/// How far each shard of a table is read. A caller stores it as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions<P>(BTreeMap<ShardId, P>);

impl<P: InShard> Positions<P> {
    /// The position of a shard; `None` for a shard that did not exist.
    #[must_use]
    pub fn of_shard(&self, shard_id: ShardId) -> Option<P> {
        self.0.get(&shard_id).copied()
    }

    /// The shards, sorted.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.0.keys().copied()
    }

    /// Refuses a position with a shard that is not among `shards`, those of the table `uri`. `name`
    /// is what the caller calls the position.
    ///
    /// # Errors
    /// An input error.
    pub fn refuse_other_shards(&self, uri: &str, shards: &[ShardId], name: &str) -> Result<()> {
        let Some(unknown) = self.shards().find(|shard| !shards.contains(shard)) else {
            return Ok(());
        };
        Err(Error::input(format!(
            "table {uri} has no shard {unknown}, which {name} names: it is a position of another \
             table"
        )))
    }
}

impl<P> Default for Positions<P> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<P> FromIterator<(ShardId, P)> for Positions<P> {
    fn from_iter<I: IntoIterator<Item = (ShardId, P)>>(shards: I) -> Self {
        Self(shards.into_iter().collect())
    }
}

impl<P: InShard> fmt::Display for Positions<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{FORMAT}", P::LEVEL)?;
        for (shard_id, position) in &self.0 {
            write!(f, ",{shard_id}:")?;
            position.write(f)?;
        }
        Ok(())
    }
}

impl<P: InShard> FromStr for Positions<P> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (level, parts) = (P::LEVEL, P::PARTS);
        let wrong = || {
            Error::input(format!(
                "'{}' is no position of level \"{level}\": since and until are the `until` of an \
                 earlier feed of that level, such as \"{level}{FORMAT},<shard>:{parts}\"",
                text.escape_default()
            ))
        };
        let mut parts = text.split(',');
        if parts.next() != Some(&format!("{level}{FORMAT}")) {
            return Err(wrong());
        }
        let mut shards = BTreeMap::new();
        for part in parts {
            let (shard_id, position) = of_part(part).ok_or_else(wrong)?;
            if shards.insert(shard_id, position).is_some() {
                return Err(wrong());
            }
        }
        Ok(Self(shards))
    }
}

/// The position of one shard in the text.
fn of_part<P: InShard>(part: &str) -> Option<(ShardId, P)> {
    let (shard_id, position) = part.split_once(':')?;
    Some((shard_id.parse().ok()?, P::parse(position)?))
}
