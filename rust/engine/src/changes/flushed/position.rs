//! Positions in the changes of flushes, and their text.
//!
//! Owns: [`FlushedPosition`] as a value and as the text that a caller stores.
//! Does not own: whether a table has that position (`table`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lancemem_core::types::{Error, Generation, Result, ShardId};

/// The first part of the text of a position.
const FORMAT: &str = "flushed1";

/// How far the changes of each shard of a table are read: the generation of the next changes. A
/// caller stores it as text.
///
/// ```
/// # use lancemem::FlushedPosition;
/// let text = "flushed1,00000000-0000-0000-0000-000000000007:3";
/// assert_eq!(text.parse::<FlushedPosition>()?.to_string(), text);
/// # Ok::<(), lancemem::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushedPosition(BTreeMap<ShardId, Generation>);

impl FlushedPosition {
    /// The generation of the next changes of a shard; `None` for a shard that did not exist.
    #[must_use]
    pub fn of_shard(&self, shard_id: ShardId) -> Option<Generation> {
        self.0.get(&shard_id).copied()
    }

    /// The shards, sorted.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.0.keys().copied()
    }
}

impl FromIterator<(ShardId, Generation)> for FlushedPosition {
    fn from_iter<I: IntoIterator<Item = (ShardId, Generation)>>(shards: I) -> Self {
        Self(shards.into_iter().collect())
    }
}

impl fmt::Display for FlushedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMAT)?;
        for (shard_id, generation) in &self.0 {
            write!(f, ",{shard_id}:{}", generation.get())?;
        }
        Ok(())
    }
}

impl FromStr for FlushedPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::input(format!(
                "'{}' is no position of level \"flushed\": since and until are the `until` of an \
                 earlier feed of that level, such as \"{FORMAT},<shard>:<generation>\"",
                text.escape_default()
            ))
        };
        let mut parts = text.split(',');
        if parts.next() != Some(FORMAT) {
            return Err(wrong());
        }
        let mut shards = BTreeMap::new();
        for part in parts {
            let (shard_id, generation) = shard_of(part).ok_or_else(wrong)?;
            if shards.insert(shard_id, generation).is_some() {
                return Err(wrong());
            }
        }
        Ok(Self(shards))
    }
}

/// The position of one shard in the text.
fn shard_of(part: &str) -> Option<(ShardId, Generation)> {
    let (shard_id, generation) = part.split_once(':')?;
    let generation = Generation(generation.parse().ok()?);
    let is_one = generation > Generation(0);
    Some((shard_id.parse().ok()?, generation)).filter(|_| is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_from_its_text() {
        let shards =
            [(ShardId::from_u128(7), Generation(3)), (ShardId::from_u128(2), Generation(u64::MAX))];
        let whole: FlushedPosition = shards.into_iter().collect();
        assert_eq!(whole.to_string().parse::<FlushedPosition>().unwrap(), whole);
        assert_eq!(whole.of_shard(ShardId::from_u128(7)), Some(Generation(3)));
        assert_eq!(whole.of_shard(ShardId::from_u128(8)), None);
        assert_eq!("flushed1".parse::<FlushedPosition>().unwrap(), FlushedPosition::default());
    }

    #[test]
    fn a_text_that_is_no_position_is_refused() {
        let shard = ShardId::from_u128(7);
        for wrong in [
            String::new(),
            "41".to_owned(),
            format!("input1,{shard}:1:2"),
            "flushed1,".to_owned(),
            format!("flushed1,{shard}"),
            format!("flushed1,{shard}:0"),
            format!("flushed1,{shard}:1:2"),
            format!("flushed1,{shard}:-1"),
            format!("flushed1,{shard}:1,{shard}:1"),
        ] {
            let error = wrong.parse::<FlushedPosition>().unwrap_err().to_string();
            assert!(error.contains("position"), "{error}");
        }
    }
}
