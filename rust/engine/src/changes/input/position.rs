//! Positions in the events of a table.
//!
//! Owns: what a position of one shard counts at this level: generations, and rows in them.
//! Does not own: the text of positions (`changes::position`), or whether a table has a position
//! (`table`).

use std::fmt;

use lancemem_core::types::Generation;

use crate::changes::position::{InShard, Positions};

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
pub type InputPosition = Positions<ShardPosition>;

impl InShard for ShardPosition {
    const LEVEL: &str = "input";
    const PARTS: &str = "<generation>:<row>";

    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.generation.get(), self.row)
    }

    fn parse(text: &str) -> Option<Self> {
        let (generation, row) = text.split_once(':')?;
        let generation = Generation::parse(generation)?;
        Some(Self { generation, row: row.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::ShardId;

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
