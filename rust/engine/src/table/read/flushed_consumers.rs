//! Consumers of flushed changes: names that keep the changes behind which they go on.
//!
//! Owns: the position of a consumer, a file of the table that collections respect.
//! Does not own: which changes a consumer has processed; its caller says so. Consumers of versions
//! are `consumers`.

use std::time::SystemTime;

use async_recursion::async_recursion as boxed;
use futures::future::try_join_all;
use lancemem_core::format::paths;
use lancemem_core::store::Listed;
use lancemem_core::types::{Error, MaxBytes, Result, ShardId};

use super::consumers::check_name;
use crate::changes::FlushedPosition;
use crate::table::Table;

/// A consumer of the changes of a table's flushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushedConsumer {
    /// Its name.
    pub name: String,
    /// The position behind which it goes on.
    pub position: FlushedPosition,
    /// When it moved there.
    pub timestamp: SystemTime,
}

impl Table {
    /// The consumers of the changes of flushes, by name.
    ///
    /// # Errors
    /// Damage of a position; a storage error.
    #[boxed]
    pub async fn flushed_consumers(&self) -> Result<Vec<FlushedConsumer>> {
        let listed = self.catalog.store.list_tree(paths::CONSUMERS).await?;
        let reads = listed.iter().map(|file| self.flushed_consumer_in(file));
        let mut consumers: Vec<FlushedConsumer> =
            try_join_all(reads).await?.into_iter().flatten().collect();
        consumers.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(consumers)
    }

    /// The consumer `name`; `None` if the table has no such consumer.
    ///
    /// # Errors
    /// An input error for a name that no consumer can have; damage of a position; a storage error.
    #[boxed]
    pub async fn flushed_consumer(&self, name: &str) -> Result<Option<FlushedConsumer>> {
        check_name(name)?;
        let listed = self.catalog.store.list_tree(paths::CONSUMERS).await?;
        match listed.iter().find(|file| file.name() == name) {
            Some(file) => self.flushed_consumer_in(file).await,
            None => Ok(None),
        }
    }

    /// Moves the consumer `name` to `position`, or creates it there. Collections leave the changes
    /// behind that position from here on, and may remove those before it after their retention.
    ///
    /// # Errors
    /// An input error for a name that no consumer can have, for a position of another table, or
    /// where the consumer is at a later position. A storage error.
    #[boxed]
    pub async fn move_flushed_consumer(
        &self,
        name: &str,
        position: &FlushedPosition,
    ) -> Result<()> {
        let shards: Vec<ShardId> = self.catalog.shard_ids().await?;
        position.refuse_other_shards(self.uri(), &shards, "the position")?;
        let known = self.flushed_consumer(name).await?.map(|known| known.position);
        if let Some(known) = known {
            if known == *position {
                return Ok(());
            }
            let is_back = |shard: &ShardId| position.of_shard(*shard) < known.of_shard(*shard);
            if let Some(shard) = known.shards().find(is_back) {
                return Err(Error::input(format!(
                    "table {}: consumer '{name}' is after that position in shard {shard}: another \
                     process moved it; a consumer never moves back, drop it to start again",
                    self.uri()
                )));
            }
        }
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        store.put(&paths::consumer(name), encoded(position).into()).await
    }

    /// Drops the consumer `name`: collections may remove the changes that it kept.
    ///
    /// # Errors
    /// An input error where there is no such consumer; a storage error.
    #[boxed]
    pub async fn drop_flushed_consumer(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let path = paths::consumer(name);
        if self.catalog.store.get(&path, MaxBytes::MANIFEST).await?.is_none() {
            return Err(Error::input(format!(
                "table {} has no consumer '{name}' of level \"flushed\"; changes_consumers(level=) \
                 lists them",
                self.uri()
            )));
        }
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        store.delete(&path).await
    }

    /// The consumer whose position is in `file`; `None` where another process has dropped it, and
    /// for a file of another program.
    async fn flushed_consumer_in(&self, file: &Listed) -> Result<Option<FlushedConsumer>> {
        let name = file.name();
        if check_name(name).is_err() || file.path != paths::consumer(name) {
            return Ok(None);
        }
        let bytes = self.catalog.store.get(&file.path, MaxBytes::MANIFEST).await?;
        let Some(bytes) = bytes else { return Ok(None) };
        let position = decoded(&bytes, &file.path)?;
        Ok(Some(FlushedConsumer { name: name.to_owned(), position, timestamp: file.modified }))
    }
}

/// The content of the file of a position.
fn encoded(position: &FlushedPosition) -> Vec<u8> {
    let text = format!("{position}\n");
    let checksum = crc32fast::hash(text.as_bytes());
    format!("{text}crc32 {checksum:08x}\n").into_bytes()
}

fn decoded(bytes: &[u8], path: &str) -> Result<FlushedPosition> {
    let line = std::str::from_utf8(bytes).ok().and_then(|text| text.lines().next());
    let position = line.and_then(|line| line.parse::<FlushedPosition>().ok());
    let position = position.filter(|position| encoded(position) == bytes);
    position.ok_or_else(|| {
        Error::corrupt(path, "undecodable", "it is no position of a consumer with its checksum")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_every_cut_and_flipped_bit_is_damage() {
        let text = format!("flushed1,{}:12", ShardId::from_u128(7));
        let position: FlushedPosition = text.parse().unwrap();
        let bytes = encoded(&position);
        assert_eq!(decoded(&bytes, "here").unwrap(), position);
        for place in 0..bytes.len() {
            assert!(decoded(&bytes[..place], "here").is_err());
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[place] ^= 1 << bit;
                assert!(decoded(&damaged, "here").is_err(), "byte {place}, bit {bit}");
            }
        }
    }
}
