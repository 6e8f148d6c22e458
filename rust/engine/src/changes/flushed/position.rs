//! Positions in the changes of flushes.
//!
//! Owns: what a position of one shard counts at this level: generations.
//! Does not own: the text of positions (`changes::position`), or whether a table has a position
//! (`table`).

use std::fmt;

use lancemem_core::types::Generation;

use crate::changes::position::{InShard, Positions};

/// How far the changes of each shard of a table are read: the generation of the next changes. A
/// caller stores it as text.
///
/// ```
/// # use lancemem::FlushedPosition;
/// let text = "flushed1,00000000-0000-0000-0000-000000000007:3";
/// assert_eq!(text.parse::<FlushedPosition>()?.to_string(), text);
/// # Ok::<(), lancemem::Error>(())
/// ```
pub type FlushedPosition = Positions<Generation>;

impl InShard for Generation {
    const LEVEL: &str = "flushed";
    const PARTS: &str = "<generation>";

    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self).filter(|generation| *generation > Self(0))
    }
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::ShardId;

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
