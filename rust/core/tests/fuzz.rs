//! Bytes that nobody wrote, given to every decoder: no panic beyond Arrow's, bounded memory.
//!
//! Owns: the mutations, the kept corpus (real entries and manifests) and the count of bytes that
//! a decoder asks for. Does not own: damage of a shard as a whole (`damage_everywhere`).
//!
//! A binary of its own: its allocator counts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(unsafe_code, reason = "an allocator is an unsafe trait; this one passes all calls on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use lancemem_core::format::{
    FragmentVector, IndexedFragment, OlderRunVector, RecordIndexRun, RunVectors, ShardManifest,
    SsTable, paths, wal_entry,
};
use lancemem_core::types::{Generation, ShardId, WalPosition, WriterEpoch};

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
        // SAFETY: the caller's promises are those of the system's allocator.
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

fn entries() -> Vec<Vec<u8>> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
    ]));
    let batch = |count: i64| {
        let names: StringArray =
            (0..count).map(|id| (id % 3 > 0).then(|| "x".repeat(20))).collect();
        let ids = Int64Array::from_iter_values(0..count);
        RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), Arc::new(names)]).unwrap()
    };
    let encode = |batches: &[RecordBatch]| {
        wal_entry::encode(batches, WriterEpoch(7), Generation(3)).unwrap().to_vec()
    };
    let sealed = [
        encode(&[batch(1)]),
        encode(&[batch(40), batch(3), batch(17)]),
        wal_entry::encode_sentinel(WriterEpoch(2)).unwrap().to_vec(),
    ];
    // Without a checksum, as lance writes them, everything behind it is reached.
    let bare = sealed.iter().map(|entry| entry[..entry.len() - 16].to_vec());
    bare.chain(sealed.clone()).collect()
}

fn manifests() -> Vec<Vec<u8>> {
    let values = BTreeMap::from([("bucket".to_owned(), vec![1, 0, 0, 0])]);
    let first = ShardManifest::initial(ShardId::from_u128(7), 1, values);
    let mut full = first.clone();
    for generation in 1..20 {
        full.sstables.push(SsTable {
            generation: Generation(generation),
            path: paths::sstable_folder(9, Generation(generation)),
            in_memory_bytes: Some(1 << 40),
            physical_rows: None,
            primary_key_bytes: Some(3),
        });
    }
    full.replay_after_wal_entry_position = WalPosition(u64::MAX);
    let sealed = [first.encode(), full.encode()];
    // Without a checksum, as lance writes them, everything behind it is reached.
    let bare = sealed.iter().map(|manifest| manifest[8..manifest.len() - 8].to_vec());
    bare.chain(sealed.clone()).collect()
}

/// Memory beside the bytes themselves: a decoder that believes a length would exceed it.
const fn bound(bytes: usize) -> usize {
    (1 << 20) + 64 * bytes
}

#[test]
fn a_log_entry_of_any_bytes_is_read_or_refused_in_bounded_memory() {
    std::panic::set_hook(Box::new(|_| {}));
    let (corpus, mut chance) = (entries(), Chance::of(1));
    let (mut read, mut panics) = (0, 0);
    for case in 0..cases() {
        let bytes = Bytes::from(chance.mutate(&corpus));
        let peak = peak_of(|| {
            // The Arrow decoder panics on some bytes; both callers in the core expect that.
            let decoded = catch_unwind(AssertUnwindSafe(|| {
                let checked = wal_entry::decode(&bytes, "e").is_ok();
                let _ = wal_entry::decode_unchecked(&bytes, "e");
                checked
            }));
            match decoded {
                Ok(whole) => read += usize::from(whole),
                Err(_) => panics += 1,
            }
        });
        assert!(peak <= bound(bytes.len()), "case {case}: {peak} bytes for {}", bytes.len());
    }
    let _ = std::panic::take_hook();
    assert!(read > 0, "some mutations leave an entry that can be read");
    assert!(panics * 10 < cases(), "{panics} panics of the decoder");
}

#[test]
fn an_entry_with_a_checksum_never_reaches_the_decoder_damaged() {
    let sealed: Vec<Vec<u8>> = entries().split_off(3);
    let mut chance = Chance::of(2);
    for _ in 0..cases() {
        let bytes = chance.mutate(&sealed);
        let whole = sealed
            .iter()
            .any(|entry| entry[..entry.len() - 4] == bytes[..bytes.len().saturating_sub(4)]);
        let has_magic = bytes.len() > 16 && bytes[bytes.len() - 16..].starts_with(b"lmemcrc1");
        if has_magic && !whole {
            assert!(wal_entry::decode(&Bytes::from(bytes), "e").is_err());
        }
    }
}

#[test]
fn a_manifest_of_any_bytes_is_read_or_refused_and_names_no_path_outside_its_shard() {
    let (corpus, mut chance) = (manifests(), Chance::of(3));
    let mut read = 0;
    for case in 0..cases() {
        let bytes = chance.mutate(&corpus);
        let peak = peak_of(|| {
            if let Ok(manifest) = ShardManifest::decode(&bytes, "m") {
                read += 1;
                let plain = |run: &SsTable| paths::is_plain_component(&run.path);
                assert!(manifest.sstables.iter().all(plain));
                let again = ShardManifest::decode(&manifest.encode(), "m").unwrap();
                assert_eq!(again, manifest);
            }
        });
        assert!(peak <= bound(bytes.len()), "case {case}: {peak} bytes for {}", bytes.len());
    }
    assert!(read > 0);
}

/// The same bytes under the checksum that they should have, so that a decoder gets behind it.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len().saturating_sub(4));
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// Whatever becomes of the bytes behind the checksum is read, and then survives a round trip, or is
/// refused, in bounded memory.
fn assert_read_or_refused<T: PartialEq + std::fmt::Debug>(
    seed: u64,
    values: &[T],
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Option<T>,
) {
    let corpus: Vec<Vec<u8>> = values.iter().map(&encode).collect();
    let (mut chance, mut read) = (Chance::of(seed), 0);
    for case in 0..cases() {
        let bytes = resealed(chance.mutate(&corpus));
        let peak = peak_of(|| {
            if let Some(value) = decode(&bytes) {
                read += 1;
                assert_eq!(decode(&encode(&value)).unwrap(), value);
            }
        });
        assert!(peak <= bound(bytes.len()), "case {case}: {peak} bytes for {}", bytes.len());
    }
    assert!(read > 0);
}

#[test]
fn a_publication_of_the_record_index_of_any_bytes_is_read_or_refused() {
    let fragment = |id: u64| IndexedFragment {
        in_run: 3,
        id,
        physical_rows: u64::MAX,
        key_files: vec!["a.lance".to_owned(), String::new()],
    };
    let full = RecordIndexRun {
        base_version: 9,
        key_fields: vec![0, -1, i32::MAX],
        entries: 1 << 40,
        fragments: (0..20).map(fragment).collect(),
    };
    let decode = |bytes: &[u8]| RecordIndexRun::decode(bytes, "r").ok();
    assert_read_or_refused(5, &[full, RecordIndexRun::default()], RecordIndexRun::encode, decode);
}

#[test]
fn deletion_vectors_of_any_bytes_are_read_or_refused() {
    let fragment = |id: u64| FragmentVector {
        id,
        physical_rows: 1_000,
        key_files: vec!["a.lance".to_owned()],
        dead: vec![7; 40],
    };
    let run = |number: u64| OlderRunVector {
        path: paths::sstable_folder(9, Generation(number)),
        dead: Vec::new(),
    };
    let full = RunVectors {
        base_version: 9,
        key_fields: vec![0, 1],
        fragments: (0..10).map(fragment).collect(),
        runs: (1..5).map(run).collect(),
        tombstones: Some(vec![1; 20]),
    };
    let decode = |bytes: &[u8]| RunVectors::decode(bytes, "v").ok();
    assert_read_or_refused(6, &[full, RunVectors::default()], RunVectors::encode, decode);
}

#[test]
fn a_file_name_of_any_bytes_is_a_position_or_none() {
    let shard = ShardId::from_u128(7);
    let name = |path: String| path.rsplit('/').next().unwrap().as_bytes().to_vec();
    let corpus = vec![
        name(paths::wal_entry(shard, WalPosition(1))),
        name(paths::wal_entry(shard, WalPosition(u64::MAX))),
        name(paths::manifest(shard, lancemem_core::types::ManifestVersion(3))),
        b"version_hint.json".to_vec(),
    ];
    let mut chance = Chance::of(4);
    for _ in 0..cases() {
        let bytes = chance.mutate(&corpus);
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        if let Some(position) = paths::parse_wal_entry(text) {
            assert_eq!(name(paths::wal_entry(shard, position)), bytes);
        }
        if let Some(version) = paths::parse_manifest(text) {
            assert_eq!(name(paths::manifest(shard, version)), bytes);
        }
    }
}
