//! Damage of the bytes of a file on a disk.
//!
//! Owns: six kinds of damage, and the positions at which they are done.
//! Does not own: the code that has to notice.

use bytes::Bytes;

/// Most positions of one file that are damaged.
pub const POSITIONS: usize = 200;
/// As many of them are the last bytes of the file, each of which is damaged.
const LAST: usize = 16;
/// Bytes that a disk loses at once.
const SECTOR: usize = 64;

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit is flipped.
    Bit,
    /// It ends here.
    Cut,
    /// Some bytes are zero.
    Zeros,
    /// All bytes from here on are zero.
    ZeroTail,
    /// Some bytes are replaced.
    Foreign,
    /// A byte is inserted here.
    Inserted,
}

/// Each kind.
pub const DAMAGES: [Damage; 6] =
    [Damage::Bit, Damage::Cut, Damage::Zeros, Damage::ZeroTail, Damage::Foreign, Damage::Inserted];

impl Damage {
    /// `bytes`, damaged at `at`; the same bytes where this kind leaves them alone there.
    #[must_use]
    pub fn done(self, bytes: &[u8], at: usize) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        let sector = at..(at + SECTOR).min(bytes.len());
        match self {
            Self::Bit => damaged[at] ^= 1 << (at % 8),
            Self::Cut => damaged.truncate(at),
            Self::Zeros => damaged[sector].fill(0),
            Self::ZeroTail => damaged[at..].fill(0),
            Self::Foreign => damaged[sector].iter_mut().for_each(|byte| *byte ^= 0x5a),
            Self::Inserted => damaged.insert(at, 0x41),
        }
        damaged
    }
}

/// Up to [`POSITIONS`] positions over `length`, the first and last ones among them; every one
/// where the environment has `LANCEMEM_POSITIONS=all`.
#[must_use]
pub fn positions(length: usize) -> Vec<usize> {
    if is_everywhere() {
        return (0..length).collect();
    }
    if length <= POSITIONS {
        return (0..length).collect();
    }
    let (last, spread) = (length - LAST, POSITIONS - LAST);
    let mut positions: Vec<usize> = (0..spread).map(|number| number * last / spread).collect();
    positions.extend(last..length);
    positions
}

/// A tenth of [`positions`], for what takes long; every one where all are asked for.
#[must_use]
pub fn few_positions(length: usize) -> Vec<usize> {
    let step = if is_everywhere() { 1 } else { 10 };
    positions(length).into_iter().step_by(step).collect()
}

fn is_everywhere() -> bool {
    std::env::var_os("LANCEMEM_POSITIONS").is_some_and(|most| most == "all")
}

/// `bytes` after each kind of damage at each of `positions` that changes anything.
pub fn damages(
    bytes: &[u8],
    positions: impl IntoIterator<Item = usize>,
) -> impl Iterator<Item = (usize, Damage, Bytes)> {
    let everywhere = positions.into_iter().flat_map(|at| DAMAGES.map(|kind| (at, kind)));
    let damaged = everywhere.map(move |(at, kind)| (at, kind, kind.done(bytes, at)));
    damaged
        .filter(move |(_, _, damaged)| damaged != bytes)
        .map(|(at, kind, damaged)| (at, kind, damaged.into()))
}
