//! Bytes that no writer wrote, given to every decoder: no panic beyond Arrow's, bounded memory.
//!
//! Owns: random mutations, the inputs that `rust/fuzz` has kept, and the count of bytes that a
//! decoder allocates.
//! Does not own: the other invariants of decoders (`lancemem_testkit::decoders`), or damage of a
//! whole shard (`damage_everywhere`).
//!
//! A binary of its own: its allocator counts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(unsafe_code, reason = "an allocator is an unsafe trait; this one passes all calls on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use bytes::Bytes;
use lancemem_core::format::wal_entry;
use lancemem_testkit::decoders::{DECODERS, Decoder, ROWS, quiet_arrow};

thread_local! {
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator with the arguments that came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = HELD.try_with(|held| {
            let (now, peak) = held.get();
            held.set((now + layout.size(), peak.max(now + layout.size())));
        });
        // SAFETY: the caller keeps the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let _ = HELD.try_with(|held| {
            let (now, peak) = held.get();
            held.set((now.saturating_sub(layout.size()), peak));
        });
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `work` held at once.
fn peak_of(work: impl FnOnce()) -> usize {
    HELD.with(|held| held.set((0, 0)));
    work();
    HELD.with(|held| held.get().1)
}

/// `SplitMix64`.
struct Chance(u64);

impl Chance {
    /// Of a test with this number; `FUZZ_SEED` gives other mutations than the usual ones.
    fn of(test: u64) -> Self {
        let seed = std::env::var("FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
        Self(test.wrapping_add(seed.unwrap_or(0_u64).wrapping_mul(0x2545_f491_4f6c_dd1d)))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end.max(1) as u64).unwrap()
    }

    /// One to four changes of one of the `corpus`: bytes, words that may be lengths, cuts,
    /// pieces of another one.
    fn mutate(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 | 3 => {
                    let word = at & !3;
                    let length =
                        [0, 1, u32::MAX, 0x7fff_ffff, 1 << 30, 1 << 20, 0xffff][self.below(7)];
                    for (slot, byte) in bytes[word..].iter_mut().zip(length.to_le_bytes()) {
                        *slot = byte;
                    }
                }
                4 => bytes.truncate(at),
                _ => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len());
                    let to = (from + self.below(64)).min(other.len());
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
            }
        }
        bytes
    }
}

fn cases() -> usize {
    std::env::var("FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60_000)
}

/// Memory beside the bytes themselves: a decoder that trusts a stored length would exceed it.
const fn bound(bytes: usize) -> usize {
    (1 << 20) + 64 * bytes
}

/// Whether the decoder read `bytes`; fails where it held too much for them.
fn read_within_bound(decoder: &Decoder, bytes: &[u8], what: &str) -> bool {
    let mut read = false;
    let peak = peak_of(|| read = (decoder.read)(bytes));
    assert!(peak <= bound(bytes.len()), "{what}: {peak} bytes of memory for {}", bytes.len());
    read
}

/// Mutations of real bytes: some of them leave what can be read.
fn try_mutations(name: &str, number: u64) {
    let decoder = DECODERS.iter().find(|decoder| decoder.name == name).unwrap();
    let (corpus, mut chance) = ((decoder.examples)(), Chance::of(number));
    let cases = 0..cases();
    let read = cases.filter(|case| {
        let bytes = chance.mutate(&corpus);
        read_within_bound(decoder, &bytes, &format!("{name}, case {case}"))
    });
    assert!(read.count() > 0);
}

#[test]
fn a_log_entry_of_any_bytes_is_read_or_refused_in_bounded_memory() {
    quiet_arrow();
    try_mutations("log_entry", 1);
}

#[test]
fn an_entry_with_a_checksum_never_reaches_the_decoder_damaged() {
    let mut sealed = (DECODERS[0].examples)();
    sealed.retain(|entry| entry[..entry.len() - 8].ends_with(b"lmemcrc1"));
    assert_eq!(sealed.len(), 5);
    let mut chance = Chance::of(2);
    for _ in 0..cases() {
        let bytes = chance.mutate(&sealed);
        let whole = sealed.contains(&bytes);
        let has_magic = bytes.len() > 16 && bytes[bytes.len() - 16..].starts_with(b"lmemcrc1");
        if has_magic && !whole {
            assert!(wal_entry::decode(&Bytes::from(bytes), "e").is_err());
        }
    }
}

#[test]
fn examples_of_log_entries_are_rows_of_the_table_that_they_are_taken_for() {
    let rows_of = |entry: &Vec<u8>| {
        let entry = wal_entry::decode(&Bytes::copy_from_slice(entry), "e");
        let batches = entry.map(|entry| entry.batches).unwrap_or_default();
        batches.iter().filter_map(|batch| ROWS.conform(batch).ok()).count()
    };
    let rows: Vec<usize> = (DECODERS[0].examples)().iter().map(rows_of).collect();
    assert_eq!(
        rows,
        [0, 3, 0, 1, 1, 1, 3, 0, 1, 1],
        "but for transaction ids without a checksum, and sentinels"
    );
}

#[test]
fn a_manifest_of_any_bytes_is_read_or_refused_and_names_no_path_outside_its_shard() {
    try_mutations("manifest", 3);
}

#[test]
fn a_publication_of_the_record_index_of_any_bytes_is_read_or_refused() {
    try_mutations("record_index", 5);
}

#[test]
fn deletion_vectors_of_any_bytes_are_read_or_refused() {
    try_mutations("run_vectors", 6);
}

#[test]
fn a_bitmap_of_deletion_vectors_of_any_bytes_is_read_or_refused() {
    try_mutations("bitmap", 7);
}

#[test]
fn a_version_hint_of_any_bytes_is_a_version_or_none() {
    try_mutations("version_hint", 8);
}

#[test]
fn a_file_name_of_any_bytes_is_a_position_or_none() {
    try_mutations("file_name", 4);
}

#[test]
fn a_merge_rule_of_any_bytes_is_a_rule_with_one_text_or_none() {
    try_mutations("merge_rule", 9);
}

#[test]
fn every_input_that_the_fuzzer_kept_is_read_or_refused_in_bounded_memory() {
    quiet_arrow();
    let fuzzer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let files = |folder: &str, decoder: &Decoder| {
        let files = std::fs::read_dir(fuzzer.join(folder).join(decoder.name)).into_iter().flatten();
        files.map(|file| file.unwrap().path()).collect::<Vec<_>>()
    };
    for decoder in &DECODERS {
        let inputs = [files("corpus", decoder), files("found", decoder)].concat();
        let (read, refused): (Vec<bool>, Vec<bool>) = inputs
            .iter()
            .map(|path| {
                let input = std::fs::read(path).unwrap();
                read_within_bound(decoder, &input, &path.display().to_string())
            })
            .partition(|read| *read);
        assert!(!read.is_empty() && !refused.is_empty(), "{}", decoder.name);
    }
}
