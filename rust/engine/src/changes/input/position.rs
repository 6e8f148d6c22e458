//! Positions in the events of a table, and their text.
//!
//! Owns: [`InputPosition`] as a value and as the text that a caller stores.
//! Does not own: whether a table has that position (`table`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lancemem_core::types::{Error, Generation, Result, ShardId};

/// The first part of the text of a position.
const FORMAT: &str = "input1";

/// How far the events of one shard are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardPosition {
    /// The generation of the next event.
    pub generation: Generation,
    /// The row of the next event within the generation.
    pub row: u64,
}

impl fmt::Display for ShardPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}, row {}", self.generation, self.row)
    }
}

/// How far the events of each shard of a table are read. A caller stores it as text.
///
/// ```
/// # use lancemem::InputPosition;
/// let text = "input1,00000000-0000-0000-0000-000000000007:3:10";
/// assert_eq!(text.parse::<InputPosition>()?.to_string(), text);
/// # Ok::<(), lancemem::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputPosition(BTreeMap<ShardId, ShardPosition>);

impl InputPosition {
    /// The position in the events of a shard; `None` for a shard that did not exist.
    #[must_use]
    pub fn of_shard(&self, shard_id: ShardId) -> Option<ShardPosition> {
        self.0.get(&shard_id).copied()
    }

    /// The shards, sorted.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.0.keys().copied()
    }
}

impl FromIterator<(ShardId, ShardPosition)> for InputPosition {
    fn from_iter<I: IntoIterator<Item = (ShardId, ShardPosition)>>(shards: I) -> Self {
        Self(shards.into_iter().collect())
    }
}

impl fmt::Display for InputPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMAT)?;
        for (shard_id, position) in &self.0 {
            write!(f, ",{shard_id}:{}:{}", position.generation.get(), position.row)?;
        }
        Ok(())
    }
}

impl FromStr for InputPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::input(format!(
                "'{text}' is no position of level \"input\": since and until are the `until` of \
                 an earlier feed of that level, such as \"{FORMAT},<shard>:<generation>:<row>\""
            ))
        };
        let mut parts = text.split(',');
        if parts.next() != Some(FORMAT) {
            return Err(wrong());
        }
        let mut shards = BTreeMap::new();
        for part in parts {
            let (shard_id, position) = shard_of(part).ok_or_else(wrong)?;
            if shards.insert(shard_id, position).is_some() {
                return Err(wrong());
            }
        }
        Ok(Self(shards))
    }
}

/// The position of one shard in the text.
fn shard_of(part: &str) -> Option<(ShardId, ShardPosition)> {
    let mut numbers = part.split(':');
    let shard_id = numbers.next()?.parse().ok()?;
    let generation = Generation(numbers.next()?.parse().ok()?);
    let row = numbers.next()?.parse().ok()?;
    let is_whole = numbers.next().is_none() && generation > Generation(0);
    is_whole.then_some((shard_id, ShardPosition { generation, row }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_from_its_text() {
        let position = |generation, row| ShardPosition { generation: Generation(generation), row };
        let shards = [
            (ShardId::from_u128(7), position(3, 10)),
            (ShardId::from_u128(2), position(u64::MAX, 0)),
        ];
        let whole: InputPosition = shards.into_iter().collect();
        assert_eq!(whole.to_string().parse::<InputPosition>().unwrap(), whole);
        assert_eq!(whole.of_shard(ShardId::from_u128(7)), Some(position(3, 10)));
        assert_eq!(whole.of_shard(ShardId::from_u128(8)), None);
        assert_eq!("input1".parse::<InputPosition>().unwrap(), InputPosition::default());
    }

    #[test]
    fn a_text_that_is_no_position_is_refused() {
        let shard = ShardId::from_u128(7);
        for wrong in [
            String::new(),
            "41".to_owned(),
            "input2".to_owned(),
            "input1,".to_owned(),
            format!("input1,{shard}"),
            format!("input1,{shard}:1"),
            format!("input1,{shard}:1:2:3"),
            format!("input1,{shard}:0:2"),
            format!("input1,{shard}:1:-2"),
            format!("input1,{shard}:1:2,{shard}:1:2"),
        ] {
            let error = wrong.parse::<InputPosition>().unwrap_err().to_string();
            assert!(error.contains("position"), "{error}");
        }
    }
}
