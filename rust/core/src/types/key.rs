//! The bytes of one primary key, held without an allocation where they are short.
//!
//! Owns: storage and order of an encoded key.
//! Does not own: the encoding, which is a format (`format::key`).

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};

const INLINE_BYTES: usize = 22;

/// An encoded primary key; ordered, equal and hashed by its bytes.
///
/// Keys of up to 22 bytes (an integer takes 9) live inside the value, longer ones on the heap.
#[derive(Clone)]
pub struct KeyBytes(Repr);

#[derive(Clone)]
enum Repr {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl KeyBytes {
    /// Copies `key`.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        match u8::try_from(key.len()) {
            Ok(length) if key.len() <= INLINE_BYTES => {
                let mut bytes = [0; INLINE_BYTES];
                bytes[..key.len()].copy_from_slice(key);
                Self(Repr::Inline { length, bytes })
            }
            _ => Self(Repr::Heap(key.into())),
        }
    }

    /// The encoded key.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Bytes that this key holds on the heap beside its own size.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap(bytes) => bytes.len(),
        }
    }
}

impl PartialEq for KeyBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for KeyBytes {}

impl PartialOrd for KeyBytes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBytes {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Hash for KeyBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl Borrow<[u8]> for KeyBytes {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::KeyBytes;

    #[test]
    fn a_key_reads_back_the_same_on_both_sides_of_the_inline_limit() {
        for length in [0, 1, 21, 22, 23, 300] {
            let key: Vec<u8> = (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect();
            assert_eq!(KeyBytes::new(&key).as_slice(), key.as_slice());
        }
    }

    #[test]
    fn order_does_not_depend_on_where_the_bytes_live() {
        let short = KeyBytes::new(&[1; 22]);
        let long = KeyBytes::new(&[1; 23]);
        assert!(short < long);
        assert!(KeyBytes::new(&[2]) > long);
    }
}
