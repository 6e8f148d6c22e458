//! The roaring bitmaps of deletion vectors: one row of the table in Paimon's PIP-16.
//!
//! Owns: the five figures of one rate and range with the crate `roaring`, which Lance's deletion
//! vectors use.
//! Does not own: `CRoaring`, the published Java figures and the table (`benches/roaring`).
//!
//! `cargo bench --workspace --bench roaring [-- PERCENT MAX]`; without them one small row. Prints
//! percent, max, then milliseconds of add, serialize, deserialize and contains, the bytes, and
//! the values.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use roaring::RoaringBitmap;

/// Rows of one container, and its bytes as a bitmap.
const CONTAINER_ROWS: u64 = 1 << 16;
const BITMAP_BYTES: u64 = 8 << 10;
/// The format's header, and its part a container: key, cardinality, offset.
const HEADER_BYTES: u64 = 8;
const CONTAINER_HEADER_BYTES: u64 = 8;
/// How often a process serializes and deserializes; croaring.c does it as often.
const SHORT_TURNS: usize = 5;

/// `SplitMix64`, reduced to a range: the same numbers as on the other side.
struct Numbers {
    state: u64,
    max: u64,
}

impl Numbers {
    const fn new(seed: u64, max: u64) -> Self {
        Self { state: seed, max }
    }

    #[expect(clippy::cast_possible_truncation, reason = "below a max that has 32 bits")]
    fn draw(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.state;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^= number >> 31;
        ((u128::from(number) * u128::from(self.max)) >> 64) as u32
    }
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|it| it.parse().ok()).collect();
    let (percent, max) = match numbers[..] {
        [percent, max, ..] => (percent, max),
        _ => (20, 2_000_000),
    };
    assert!(max > 0 && u32::try_from(max).is_ok(), "a row position has 32 bits");
    let calls = max * percent / 100;

    let mut numbers = Numbers::new(1, max);
    let mut bitmap = RoaringBitmap::new();
    let started = Instant::now();
    for _ in 0..calls {
        bitmap.insert(numbers.draw());
    }
    let add = started.elapsed();

    let (serialize, written) = short(|| {
        let mut bytes = Vec::with_capacity(bitmap.serialized_size());
        bitmap.serialize_into(&mut bytes).unwrap();
        bytes
    });
    let bytes = written[0].as_slice();
    let (deserialize, copies) = short(|| RoaringBitmap::deserialize_from(bytes).unwrap());
    let read = &copies[0];
    assert_eq!(*read, bitmap);
    check_size(&bitmap, max, bytes.len() as u64);

    let mut numbers = Numbers::new(2, max);
    let mut found = 0_u64;
    let started = Instant::now();
    for _ in 0..calls {
        found += u64::from(read.contains(numbers.draw()));
    }
    let contains = started.elapsed();
    black_box(found);

    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{percent} {max} {:.3} {:.3} {:.3} {:.3} {} {}",
        ms(add),
        ms(serialize),
        ms(deserialize),
        ms(contains),
        bytes.len(),
        bitmap.len()
    );
}

/// The median time of a short step, and all its results. Each repetition uses fresh memory, as a
/// program that reads or writes a bitmap once does.
fn short<T>(mut step: impl FnMut() -> T) -> (Duration, Vec<T>) {
    let mut times = [Duration::ZERO; SHORT_TURNS];
    let mut results = Vec::with_capacity(SHORT_TURNS);
    for time in &mut times {
        let started = Instant::now();
        results.push(step());
        *time = started.elapsed();
    }
    times.sort_unstable();
    (times[SHORT_TURNS / 2], results)
}

/// Every container is a bitmap, whatever the rate, except a last one that is cut too short for
/// 4,096 values.
fn check_size(bitmap: &RoaringBitmap, max: u64, bytes: u64) {
    let containers = max.div_ceil(CONTAINER_ROWS);
    let last = u32::try_from((containers - 1) * CONTAINER_ROWS).unwrap();
    let last_values = bitmap.range_cardinality(last..);
    let saved = if last_values <= 4_096 { BITMAP_BYTES - 2 * last_values } else { 0 };
    let headers = HEADER_BYTES + containers * CONTAINER_HEADER_BYTES;
    assert_eq!(bytes, containers * BITMAP_BYTES - saved + headers, "{containers} containers");
}
