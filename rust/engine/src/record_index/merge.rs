//! The k-way merge of runs of the record index, without reading the base table.
//!
//! Owns: the merge of their sorted pages, with a few pages of each run in memory; leaving out
//! entries of fragments that are gone, or that another run serves; and the check that every other
//! row occurs once.
//! Does not own: which runs are merged (`levels`), or which runs are removed after the new one is
//! published (`table`).

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use arrow_select::interleave::interleave;
use futures::future::try_join_all;
use lance::Dataset;
use lance_core::{Error as LanceError, Result as LanceResult};
use lancemem_core::format::IndexedFragment;
use lancemem_core::types::{Error, KeyBlock, Result};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::build::{NewPages, NewRun, key_prefix};
use super::open::{OpenRun, RecordIndex};
use super::pages::Page;
use crate::errors::{Context, is_damage, without_path};
use crate::row_address::split_address;
use crate::sstable::{PAGE_ROWS, PageMaker, page_stream_of};

const ACTION: &str = "merging runs of the record index";
/// Pages of all inputs together that are read at once. As many again wait in channels, and as many
/// are being merged.
const PAGES_AT_ONCE: usize = 64;
/// Most pages of one input that are read at once.
const PAGES_OF_AN_INPUT: usize = 8;

/// The result of a merge.
#[derive(Debug)]
pub enum Merged {
    /// A run with every live entry of the inputs.
    Run(NewRun),
    /// The damaged input, and a description of its damage.
    Damaged(Arc<OpenRun>, String),
}

/// A message from an input to the merge.
enum Fed {
    Page(Entries),
    End,
}

/// The live entries of a page.
struct Entries {
    keys: KeyBlock,
    values: ArrayRef,
    /// The row of each in the page, and its address in the new run.
    rows: Vec<(usize, u64)>,
}

/// Merges `inputs` into one run, with their live entries in `index`, the record index of `base`.
///
/// # Errors
/// A storage error.
pub async fn merge(
    base: &Dataset,
    key: &[String],
    index: &RecordIndex,
    inputs: &[Arc<OpenRun>],
) -> Result<Merged> {
    let value_type = match key {
        [name] => base.schema().field(name).map(lance_core::datatypes::Field::data_type),
        _ => Some(DataType::Binary),
    };
    let value_type = value_type.ok_or_else(|| {
        Error::internal(format!("{ACTION}: the base table has no key column '{}'", key.join(", ")))
    })?;
    let pages_at_once = (PAGES_AT_ONCE / inputs.len().max(1)).clamp(1, PAGES_OF_AN_INPUT);
    let mut receivers = Vec::with_capacity(inputs.len());
    let mut feeds = Vec::with_capacity(inputs.len());
    for run in inputs {
        let (to, from) = channel(pages_at_once);
        receivers.push(from);
        let served = index.served(&run.name).into_iter().flatten();
        let served = served.map(|(in_sstable, (fragment, rows))| {
            (*in_sstable, Served { fragment: *fragment, rows: *rows, found: 0 })
        });
        let feed = Feed { value_type: value_type.clone(), served: served.collect(), last: None };
        feeds.push(feed.all(run, pages_at_once, to));
    }
    let pages = NewPages::new(base, key).await?;
    let (maker, stream) = page_stream_of(value_type);
    let merging = tokio::task::spawn_blocking(move || Merge::new(receivers, maker).run());
    let (fed, written) = futures::join!(try_join_all(feeds), Box::pin(pages.write(stream)));
    let merged = merging
        .await
        .map_err(|error| Error::internal(format!("{ACTION}: {error}")).with_source(error))?;
    let failed = match (fed, written, merged) {
        (Ok(_), Ok(files), Ok(())) => {
            let page_files = pages.seal(&files).await?;
            return Ok(Merged::Run(pages.into_run(covered(index, inputs), page_files)));
        }
        (Err((run, error)), ..) if is_damage(&error) => {
            Ok(Merged::Damaged(run, without_path(&error)))
        }
        (Err((_, error)), ..) | (_, Err(error), _) | (.., Err(error)) => Err(error).context(ACTION),
    };
    pages.remove().await;
    failed
}

/// The fragments of the new run, whose entries have the base table's ids.
fn covered(index: &RecordIndex, inputs: &[Arc<OpenRun>]) -> Vec<IndexedFragment> {
    let mut covered: Vec<IndexedFragment> = inputs
        .iter()
        .flat_map(|run| {
            let served = index.served(&run.name);
            run.run.fragments.iter().filter_map(move |fragment| {
                let (id, _) = served?.get(&fragment.in_sstable)?;
                (u64::from(*id) == fragment.id)
                    .then(|| IndexedFragment { in_sstable: *id, ..fragment.clone() })
            })
        })
        .collect();
    covered.sort_by_key(|fragment| fragment.id);
    covered
}

/// A fragment that an input serves.
struct Served {
    fragment: u32,
    rows: u64,
    /// Entries of it so far.
    found: u64,
}

/// The entries of one input, read in their order.
struct Feed {
    value_type: DataType,
    /// By the upper half of an address in the input.
    served: HashMap<u32, Served>,
    /// The last entry of the previous page.
    last: Option<(Vec<u8>, u64)>,
}

impl Feed {
    /// Reads all pages of `run` and sends their live entries to the merge; else run and error.
    async fn all(
        self,
        run: &Arc<OpenRun>,
        pages_at_once: usize,
        to: Sender<Fed>,
    ) -> std::result::Result<(), (Arc<OpenRun>, LanceError)> {
        let read = run.unwinding(Box::pin(self.read(run, pages_at_once, to))).await;
        read.map_err(|error| (run.clone(), error))
    }

    async fn read(
        mut self,
        run: &OpenRun,
        pages_at_once: usize,
        to: Sender<Fed>,
    ) -> LanceResult<()> {
        if !run.has_blocks() {
            run.compare().await?;
        }
        let pages = run.pages().await?;
        let mut entries = 0;
        for start in (0..pages.len()).step_by(pages_at_once) {
            let end = (start + pages_at_once).min(pages.len());
            for page in pages.range(start..end).await? {
                entries += page.addresses.len() as u64;
                let page = self.of_use(page, &run.name)?;
                // The merge has failed; the caller reports its error.
                if !page.rows.is_empty() && to.send(Fed::Page(page)).await.is_err() {
                    return Ok(());
                }
            }
        }
        if entries != run.run.entries {
            let what = format!("expected {} entries, found {entries}", run.run.entries);
            return Err(damaged(&run.name, &what));
        }
        if let Some(it) = self.served.values().find(|it| it.found != it.rows) {
            let Served { fragment, rows, found } = it;
            let what = format!("expected {rows} entries of fragment {fragment}, found {found}");
            return Err(damaged(&run.name, &what));
        }
        let _ = to.send(Fed::End).await;
        Ok(())
    }

    /// The live entries of a page, after checking that they are in key order.
    fn of_use(&mut self, page: Page, run: &str) -> LanceResult<Entries> {
        let Page { keys, values, addresses } = page;
        if *values.data_type() != self.value_type {
            let what =
                format!("expected keys of type {}, found {}", self.value_type, values.data_type());
            return Err(damaged(run, &what));
        }
        let mut rows: Vec<(usize, u64)> = Vec::with_capacity(addresses.len());
        for (row, address) in addresses.into_iter().enumerate() {
            let (in_sstable, offset) = split_address(address);
            let Some(served) = self.served.get_mut(&in_sstable) else { continue };
            if u64::from(offset) >= served.rows {
                let (fragment, end) = (served.fragment, served.rows);
                let what =
                    format!("row {offset} is out of range for fragment {fragment} of {end} rows");
                return Err(damaged(run, &what));
            }
            served.found += 1;
            let address = (u64::from(served.fragment) << 32) | u64::from(offset);
            let last = match rows.last() {
                Some((row, address)) => Some((keys.get(*row), *address)),
                None => self.last.as_ref().map(|(key, address)| (key.as_slice(), *address)),
            };
            if last.is_some_and(|last| last >= (keys.get(row), address)) {
                return Err(damaged(run, "entries are not in key order"));
            }
            rows.push((row, address));
        }
        if let Some((row, address)) = rows.last() {
            self.last = Some((keys.get(*row).to_vec(), *address));
        }
        Ok(Entries { keys, values, rows })
    }
}

fn damaged(run: &str, what: &str) -> LanceError {
    LanceError::corrupt_file_named(run, format!("run {run} of the record index: {what}"))
}

/// The next entry of an input.
struct Head {
    entries: Entries,
    /// Its index in the entries.
    at: usize,
    /// The index of their values in the sources of the next page.
    source: usize,
    /// The prefix of its key: nearly all comparisons end there.
    prefix: u64,
}

impl Head {
    fn new(entries: Entries, source: usize) -> Self {
        let mut head = Self { entries, at: 0, source, prefix: 0 };
        head.prefix = key_prefix(head.key());
        head
    }

    fn row(&self) -> (usize, u64) {
        self.entries.rows[self.at]
    }

    fn key(&self) -> &[u8] {
        self.entries.keys.get(self.row().0)
    }

    fn before(&self, other: &Self) -> bool {
        let order = self.prefix.cmp(&other.prefix);
        let order = order.then_with(|| self.key().cmp(other.key()));
        order.then_with(|| self.row().1.cmp(&other.row().1)) == Ordering::Less
    }
}

/// The k-way merge, with a binary min-heap of the inputs by their next entry.
struct Merge {
    inputs: Vec<Receiver<Fed>>,
    /// The heap of the inputs that have not ended. Not `BinaryHeap`: advancing the first input
    /// changes its entry in place, with one sift instead of a pop and a push.
    heads: Vec<(usize, Box<Head>)>,
    /// Arrays from which the values of the next page are taken.
    sources: Vec<ArrayRef>,
    /// Source and row of each value of the next page.
    picked: Vec<(usize, usize)>,
    addresses: Vec<u64>,
    maker: PageMaker,
}

impl Merge {
    fn new(inputs: Vec<Receiver<Fed>>, maker: PageMaker) -> Self {
        let (heads, sources) = (Vec::with_capacity(inputs.len()), Vec::new());
        let (picked, addresses) = (Vec::with_capacity(PAGE_ROWS), Vec::with_capacity(PAGE_ROWS));
        Self { inputs, heads, sources, picked, addresses, maker }
    }

    fn run(mut self) -> LanceResult<()> {
        for input in 0..self.inputs.len() {
            if let Some(head) = self.next_page(input)? {
                self.heads.push((input, head));
            }
        }
        for place in (0..self.heads.len() / 2).rev() {
            self.sift_down(place);
        }
        while let Some((_, head)) = self.heads.first() {
            let (row, address) = head.row();
            self.picked.push((head.source, row));
            self.addresses.push(address);
            if self.picked.len() == PAGE_ROWS {
                self.send_page()?;
            }
            self.advance()?;
        }
        if self.picked.is_empty() { Ok(()) } else { self.send_page() }
    }

    /// Advances the input of the least entry.
    fn advance(&mut self) -> LanceResult<()> {
        let Some((input, head)) = self.heads.first_mut() else { return Ok(()) };
        head.at += 1;
        if head.at < head.entries.rows.len() {
            head.prefix = key_prefix(head.key());
        } else {
            let input = *input;
            match self.next_page(input)? {
                Some(head) => self.heads[0] = (input, head),
                None => drop(self.heads.swap_remove(0)),
            }
        }
        self.sift_down(0);
        Ok(())
    }

    fn next_page(&mut self, input: usize) -> LanceResult<Option<Box<Head>>> {
        match self.inputs[input].blocking_recv() {
            Some(Fed::Page(entries)) => {
                self.sources.push(entries.values.clone());
                Ok(Some(Box::new(Head::new(entries, self.sources.len() - 1))))
            }
            Some(Fed::End) => Ok(None),
            // The caller reports the error of the input instead of this one.
            None => Err(LanceError::internal("an input of the merge ended early")),
        }
    }

    /// Restores the heap below `place`: moves its head down until no child is smaller.
    fn sift_down(&mut self, mut place: usize) {
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heads.len());
            let mut least = place;
            for child in children {
                if self.heads[child].1.before(&self.heads[least].1) {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.heads.swap(place, least);
            place = least;
        }
    }

    fn send_page(&mut self) -> LanceResult<()> {
        let sources: Vec<&dyn Array> = self.sources.iter().map(AsRef::as_ref).collect();
        let values = interleave(&sources, &self.picked)?;
        let addresses = std::mem::replace(&mut self.addresses, Vec::with_capacity(PAGE_ROWS));
        self.picked.clear();
        self.maker.send_page(values, addresses)?;
        self.sources.clear();
        for (_, head) in &mut self.heads {
            head.source = self.sources.len();
            self.sources.push(head.entries.values.clone());
        }
        Ok(())
    }
}
