//! The encoded primary keys of consecutive rows, in one buffer.
//!
//! Owns: storage of many keys without an allocation each.
//! Does not own: the encoding (`format::key`), or a key that lives on its own (`KeyBytes`).

/// Bytes of a key of one number: a tag and the number.
const NUMBER_WIDTH: usize = 9;

/// Keys of consecutive rows, addressed by their place from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBlock {
    bytes: Vec<u8>,
    lengths: Lengths,
}

/// How long each key is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lengths {
    /// All the same: keys of integers and booleans only.
    Fixed { width: usize, keys: usize },
    /// The end of each key in the buffer.
    Ends(Vec<usize>),
}

impl Default for Lengths {
    fn default() -> Self {
        Self::Ends(Vec::new())
    }
}

impl KeyBlock {
    /// No keys yet, with room for `keys` of `bytes` bytes together.
    #[must_use]
    pub fn with_capacity(keys: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), lengths: Lengths::Ends(Vec::with_capacity(keys)) }
    }

    /// Keys of `width` bytes each, one after the other in `bytes`.
    ///
    /// # Panics
    /// Where `bytes` does not hold a whole number of keys.
    #[must_use]
    pub fn fixed(width: usize, bytes: Vec<u8>) -> Self {
        assert!(width > 0 && bytes.len().is_multiple_of(width), "keys of {width} bytes");
        let keys = bytes.len() / width;
        Self { bytes, lengths: Lengths::Fixed { width, keys } }
    }

    /// Adds a key that `write` appends to the buffer.
    ///
    /// # Panics
    /// On a block of fixed width.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let Lengths::Ends(ends) = &mut self.lengths else { panic!("the block has a fixed width") };
        write(&mut self.bytes);
        ends.push(self.bytes.len());
    }

    /// Adds all keys of `other`, in their order.
    pub fn append(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        if other.is_empty() {
            return;
        }
        match (&mut self.lengths, &other.lengths) {
            (Lengths::Fixed { width, keys }, Lengths::Fixed { width: other_width, .. })
                if width == other_width =>
            {
                *keys += other.len();
            }
            (Lengths::Ends(ends), Lengths::Ends(others)) => {
                let start = self.bytes.len();
                ends.extend(others.iter().map(|end| start + end));
            }
            _ => {
                let mut ends = self.ends();
                let start = self.bytes.len();
                ends.extend(other.ends().iter().map(|end| start + end));
                self.lengths = Lengths::Ends(ends);
            }
        }
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Releases unused capacity.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        if let Lengths::Ends(ends) = &mut self.lengths {
            ends.shrink_to_fit();
        }
    }

    /// The end of each key in the buffer.
    fn ends(&self) -> Vec<usize> {
        match &self.lengths {
            Lengths::Fixed { width, keys } => (1..=*keys).map(|key| key * width).collect(),
            Lengths::Ends(ends) => ends.clone(),
        }
    }

    /// The key at `index`.
    ///
    /// # Panics
    /// Where the block has no such key.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        match &self.lengths {
            Lengths::Fixed { width, .. } => &self.bytes[index * width..][..*width],
            Lengths::Ends(ends) => {
                let start = if index == 0 { 0 } else { ends[index - 1] };
                &self.bytes[start..ends[index]]
            }
        }
    }

    /// Whether the keys rise strictly.
    #[must_use]
    pub fn rise(&self) -> bool {
        match &self.lengths {
            Lengths::Fixed { width: NUMBER_WIDTH, .. } => rise(self.bytes.as_chunks().0),
            Lengths::Fixed { width, .. } => {
                let keys = self.bytes.chunks_exact(*width);
                keys.clone().zip(keys.skip(1)).all(|(before, key)| before < key)
            }
            Lengths::Ends(_) => {
                let keys = self.iter();
                keys.zip(self.iter().skip(1)).all(|(before, key)| before < key)
            }
        }
    }

    /// The keys in row order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.lengths {
            Lengths::Fixed { keys, .. } => *keys,
            Lengths::Ends(ends) => ends.len(),
        }
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the block holds on the heap.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        let lengths = match &self.lengths {
            Lengths::Fixed { .. } => 0,
            Lengths::Ends(ends) => ends.capacity() * size_of::<usize>(),
        };
        self.bytes.capacity() + lengths
    }
}

/// Whether keys of one number each rise strictly. They are compared as integers, because comparing
/// byte slices costs a call per key.
fn rise(keys: &[[u8; NUMBER_WIDTH]]) -> bool {
    let number = |[tag, bytes @ ..]: &[u8; NUMBER_WIDTH]| (*tag, u64::from_be_bytes(*bytes));
    keys.iter().zip(keys.iter().skip(1)).all(|(before, key)| number(before) < number(key))
}

#[cfg(test)]
mod tests {
    use super::KeyBlock;

    #[test]
    fn keys_of_one_width_and_of_many_read_back() {
        let fixed = KeyBlock::fixed(2, vec![1, 2, 3, 4]);
        assert_eq!(fixed.iter().collect::<Vec<_>>(), [&[1, 2], &[3, 4]]);
        let mut varied = KeyBlock::with_capacity(3, 8);
        for key in [&b"a"[..], b"", b"ccc"] {
            varied.push_with(|out| out.extend_from_slice(key));
        }
        assert_eq!(varied.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"ccc"]);
        assert_eq!((varied.len(), varied.get(2)), (3, &b"ccc"[..]));
    }

    #[test]
    fn keys_rise_where_each_is_above_the_one_before_whatever_their_width() {
        for width in [1, 2, 8, 9, 10, 18] {
            let key = |number: u64| {
                let mut key = vec![1; width];
                let bytes = number.to_be_bytes();
                let from = width.saturating_sub(8);
                key[from..].copy_from_slice(&bytes[8 - (width - from)..]);
                key
            };
            let block = |numbers: &[u64]| {
                let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
                let mut varied = KeyBlock::default();
                for key in &keys {
                    varied.push_with(|out| out.extend_from_slice(key));
                }
                let fixed = KeyBlock::fixed(width, keys.concat());
                assert_eq!(fixed.rise(), varied.rise(), "{width} bytes, {numbers:?}");
                fixed.rise()
            };
            assert!(block(&[7]) && block(&[1, 2, 127, 128, 255]));
            assert!(!block(&[1, 2, 2]) && !block(&[2, 1]) && !block(&[1, 200, 3, 201]));
        }
        assert!(!KeyBlock::fixed(9, [[1; 9], [0; 9]].concat()).rise(), "a null is below a number");
    }

    #[test]
    fn blocks_of_one_width_and_of_many_go_together() {
        let fixed = KeyBlock::fixed(2, vec![1, 2, 3, 4]);
        let mut varied = KeyBlock::with_capacity(2, 3);
        for key in [&b""[..], b"ccc"] {
            varied.push_with(|out| out.extend_from_slice(key));
        }
        for parts in [
            [&fixed, &fixed],
            [&fixed, &varied],
            [&varied, &fixed],
            [&varied, &varied],
            [&KeyBlock::default(), &fixed],
            [&fixed, &KeyBlock::default()],
        ] {
            let mut whole = KeyBlock::default();
            for part in &parts {
                whole.append(part);
            }
            let keys: Vec<&[u8]> = parts.iter().flat_map(|part| part.iter()).collect();
            assert_eq!(whole.iter().collect::<Vec<_>>(), keys);
        }
    }
}
