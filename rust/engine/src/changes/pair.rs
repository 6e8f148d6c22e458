//! Which changed rows are images of an update, and which rows the feed has.
//!
//! Owns: the passes over keys, over the columns of the condition and over compared columns. Rows
//! of the smaller side are held by their keys, rows of the larger side stream by.
//! Does not own: the values of the feed, which are read afterwards by position (`feed`), or what is
//! recorded for a key (`held_keys`).

use arrow_array::{BooleanArray, RecordBatch};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future};
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{KeyBlock, Result};

use super::derive::Difference;
use super::held_keys::{HeldKeys, HeldRows, Row, Verdict};
use super::images::{Rows, Version, scan};
use super::row_hash::RowHasher;
use super::selection::{Marks, Selection};
use super::shape::{Check, Shape};
use super::types::ChangeCounts;
use crate::errors::Context;
use crate::plan::Filter;

const ACTION: &str = "pairing the images of changes";

/// The rows of one side in the feed.
#[derive(Debug, Default)]
pub struct Side {
    pub rows: Selection,
    /// Which of them are images of an update.
    pub updated: Marks,
}

/// The rows of a step in the feed.
#[derive(Debug, Default)]
pub struct Paired {
    pub before: Side,
    pub after: Side,
}

impl Paired {
    pub fn counts(&self) -> ChangeCounts {
        let (before, after) = (self.before.rows.rows(), self.after.rows.rows());
        let updated = self.after.rows.marked_rows(&self.after.updated);
        ChangeCounts {
            inserted: after - updated,
            updated,
            deleted: before - self.before.rows.marked_rows(&self.before.updated),
            rows: before + after,
        }
    }
}

/// What is paired: the differing rows of two versions.
pub struct Pairing<'a> {
    pub shape: &'a Shape,
    /// The older version; `None` where there is none.
    pub old: Option<&'a Version>,
    pub new: &'a Version,
    /// Every row that differs.
    pub all: &'a Difference,
    /// The rows of them that the feed may have; `None` for all.
    pub own: Option<&'a Difference>,
    /// The columns that are compared to leave out rows without a change; `None` for no comparison.
    pub compared: Option<&'a [String]>,
}

impl Pairing<'_> {
    /// The rows of the feed.
    ///
    /// # Errors
    /// A storage error; an input error where the condition fails for a row.
    pub async fn pair(&self) -> Result<Paired> {
        let own = self.own.unwrap_or(self.all);
        let (Some(old), false, false) =
            (self.old, self.all.before.is_empty(), self.all.after.is_empty())
        else {
            return self.passing(own).await;
        };
        if self.shape.key.is_empty() {
            if self.compares()? {
                return self.cancel_equal(old).await;
            }
            return self.passing(own).await;
        }
        if self.own.is_some() {
            let (old_rows, new_rows) = ((old, &self.all.before), (self.new, &self.all.after));
            let before = self.verdict((old, &own.before), new_rows).await?;
            let after = self.verdict((self.new, &own.after), old_rows).await?;
            return Ok(self.paired(own, before, after));
        }
        let (before, after) = ((old, &own.before), (self.new, &own.after));
        let (before, after) = if own.before.rows() <= own.after.rows() {
            self.probe(before, after).await?
        } else {
            let (after, before) = self.probe(after, before).await?;
            (before, after)
        };
        Ok(self.paired(own, before, after))
    }

    /// Whether the values of rows are compared, and Arrow can compare them.
    fn compares(&self) -> Result<bool> {
        let Some(compared) = self.compared else { return Ok(false) };
        let schema = self.shape.stored(&self.new.dataset, compared)?.schema;
        Ok(RowHasher::new(&schema)?.is_some())
    }

    /// Without a condition and a comparison the feed has every row of `own`.
    fn paired(&self, own: &Difference, before: Verdict, after: Verdict) -> Paired {
        let keeps_all = self.shape.filter.is_none() && self.compared.is_none();
        let side = |rows: &Selection, verdict: Verdict| {
            let rows = if keeps_all { rows.clone() } else { verdict.kept.into_selection() };
            Side { rows, updated: verdict.updated }
        };
        Paired { before: side(&own.before, before), after: side(&own.after, after) }
    }

    /// The rows of `own` that meet the condition, none of which is an image of an update.
    async fn passing(&self, own: &Difference) -> Result<Paired> {
        let before = match self.old {
            Some(old) => self.passing_rows(old, &own.before).await?,
            None => Selection::default(),
        };
        let after = self.passing_rows(self.new, &own.after).await?;
        let side = |rows| Side { rows, updated: Marks::default() };
        Ok(Paired { before: side(before), after: side(after) })
    }

    async fn passing_rows(&self, version: &Version, rows: &Selection) -> Result<Selection> {
        if self.shape.filter.is_none() {
            return Ok(rows.clone());
        }
        let mut kept = Marks::default();
        let mut facts = self.facts(version, rows, Wanted::default()).await?;
        while let Some(batch) = facts.try_next().await? {
            batch.rows().filter(|row| row.passes).for_each(|row| kept.insert(row.address));
        }
        Ok(kept.into_selection())
    }

    /// The verdict of `held`, which may be without a row.
    async fn verdict(
        &self,
        held: (&Version, &Selection),
        others: (&Version, &Selection),
    ) -> Result<Verdict> {
        if held.1.is_empty() {
            return Ok(Verdict::default());
        }
        Ok(self.probe(held, others).await?.0)
    }

    /// The verdicts of `held`, whose keys are held in memory, and of `streamed`.
    async fn probe(
        &self,
        held: (&Version, &Selection),
        streamed: (&Version, &Selection),
    ) -> Result<(Verdict, Verdict)> {
        let wanted = Wanted { keys: true, hashes: self.compared.is_some() };
        let (mut keys, mut other) = (HeldKeys::default(), Verdict::default());
        let mut facts = self.facts(held.0, held.1, wanted).await?;
        while let Some(batch) = facts.try_next().await? {
            batch.rows().try_for_each(|row| keys.hold(row))?;
        }
        let mut facts = self.facts(streamed.0, streamed.1, wanted).await?;
        while let Some(batch) = facts.try_next().await? {
            batch.rows().for_each(|row| keys.meet(row, &mut other));
        }
        Ok((keys.finish(&mut other), other))
    }

    /// The rows of a table without a key, without those that are equal on both sides.
    async fn cancel_equal(&self, old: &Version) -> Result<Paired> {
        let wanted = Wanted { keys: false, hashes: true };
        let (before, after) = ((old, &self.all.before), (self.new, &self.all.after));
        let is_before_held = self.all.before.rows() <= self.all.after.rows();
        let (held, streamed) = if is_before_held { (before, after) } else { (after, before) };
        let (mut rows, mut kept) = (HeldRows::default(), Marks::default());
        let mut facts = self.facts(held.0, held.1, wanted).await?;
        while let Some(batch) = facts.try_next().await? {
            for (row, hash) in batch.rows().filter_map(|row| Some((row, row.hash?))) {
                rows.hold(row.address, hash, row.passes);
            }
        }
        let mut facts = self.facts(streamed.0, streamed.1, wanted).await?;
        while let Some(batch) = facts.try_next().await? {
            for row in batch.rows() {
                if !row.hash.is_some_and(|hash| rows.cancels(hash)) && row.passes {
                    kept.insert(row.address);
                }
            }
        }
        let side = |rows| Side { rows, updated: Marks::default() };
        let (held, streamed) = (side(rows.finish()), side(kept.into_selection()));
        let (before, after) = if is_before_held { (held, streamed) } else { (streamed, held) };
        Ok(Paired { before, after })
    }

    /// What is read of the rows to pair them.
    async fn facts(
        &self,
        version: &Version,
        rows: &Selection,
        wanted: Wanted,
    ) -> Result<BoxStream<'static, Result<Facts>>> {
        let compared = self.compared.filter(|_| wanted.hashes).unwrap_or_default();
        let key: &[String] = if wanted.keys { &self.shape.key } else { &[] };
        let tested = self.shape.filter.as_ref().map(Filter::columns).unwrap_or_default();
        let is_read = |name: &&String| {
            key.contains(name) || tested.contains(*name) || compared.contains(name)
        };
        let names: Vec<String> = self.shape.all.iter().filter(is_read).cloned().collect();
        let stored = self.shape.stored(&version.dataset, &names)?;
        let schema = stored.schema.clone();
        let encoder = if key.is_empty() { None } else { Some(KeyEncoder::new(&schema, key)?) };
        let check = self.shape.filter.as_ref().map(|filter| Check::new(filter, &schema));
        let places: Vec<usize> =
            compared.iter().filter_map(|name| schema.index_of(name).ok()).collect();
        let hasher = if wanted.hashes {
            RowHasher::new(&schema.project(&places).context(ACTION)?)?
        } else {
            None
        };
        let tests = Tests { encoder, check: check.transpose()?, places, hasher };
        let read = scan(version, rows, stored).await?;
        let facts = read.and_then(move |batch| future::ready(tests.facts(&batch)));
        Ok(facts.boxed())
    }
}

/// What is read of rows beside their addresses and whether they pass.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    keys: bool,
    hashes: bool,
}

/// What makes facts of rows.
struct Tests {
    encoder: Option<KeyEncoder>,
    check: Option<Check>,
    /// The places of the compared columns.
    places: Vec<usize>,
    hasher: Option<RowHasher>,
}

impl Tests {
    fn facts(&self, batch: &Rows) -> Result<Facts> {
        let rows = &batch.rows;
        let hash = |hasher: &RowHasher| {
            let compared: RecordBatch = rows.project(&self.places).context(ACTION)?;
            hasher.hash(&compared)
        };
        Ok(Facts {
            addresses: batch.addresses.values().to_vec(),
            keys: self.encoder.as_ref().map(|encoder| encoder.encode_block(rows)),
            passes: self.check.as_ref().map(|check| check.of(rows)).transpose()?,
            hashes: self.hasher.as_ref().map(hash).transpose()?,
        })
    }
}

/// What is known of the rows of a batch.
struct Facts {
    addresses: Vec<u64>,
    keys: Option<KeyBlock>,
    passes: Option<BooleanArray>,
    hashes: Option<Vec<u128>>,
}

impl Facts {
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.addresses.iter().enumerate().map(|(index, address)| Row {
            address: *address,
            key: self.keys.as_ref().map_or(&[][..], |keys| keys.get(index)),
            passes: self.passes.as_ref().is_none_or(|passes| passes.value(index)),
            hash: self.hashes.as_ref().and_then(|hashes| hashes.get(index).copied()),
        })
    }
}
