//! A key of each type, made from a number.
//! Owns these stories only; does not own the engine's rules, which are in the modules under test.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Int8Array, Int32Array, Int64Array, LargeBinaryArray,
    LargeStringArray, RecordBatch, StringArray, UInt16Array, UInt32Array, UInt64Array,
};

/// The type of a table's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Int64,
    Int32,
    UInt32,
    UInt64,
    Utf8,
    LargeUtf8,
    Binary,
    LargeBinary,
    Composite,
    Bool,
}

impl Key {
    /// The types with more than two values.
    pub const NUMEROUS: [Self; 9] = [
        Self::Int64,
        Self::Int32,
        Self::UInt32,
        Self::UInt64,
        Self::Utf8,
        Self::LargeUtf8,
        Self::Binary,
        Self::LargeBinary,
        Self::Composite,
    ];

    pub fn names(self) -> Vec<String> {
        let count = if self == Self::Composite { 3 } else { 1 };
        ["k", "k2", "k3"][..count].iter().map(|name| (*name).to_owned()).collect()
    }

    /// The key columns of `ids`.
    pub fn arrays(self, ids: &[u32]) -> Vec<ArrayRef> {
        let signed = |id: &u32| i64::from(*id) - 5;
        let text = |id: &u32| format!("key-{id}");
        // Zero bytes and prefixes of each other are what an encoding gets wrong.
        let bytes = |id: &u32| id.to_le_bytes()[..2 + (*id % 3) as usize].to_vec();
        let array: ArrayRef = match self {
            Self::Int64 => Arc::new(Int64Array::from_iter_values(ids.iter().map(signed))),
            Self::Int32 => Arc::new(Int32Array::from_iter_values(
                ids.iter().map(|id| i32::try_from(signed(id)).unwrap()),
            )),
            Self::UInt32 => Arc::new(UInt32Array::from(ids.to_vec())),
            Self::UInt64 => Arc::new(UInt64Array::from_iter_values(
                ids.iter().map(|id| u64::MAX - u64::from(*id)),
            )),
            Self::Utf8 => Arc::new(StringArray::from_iter_values(ids.iter().map(text))),
            Self::LargeUtf8 => Arc::new(LargeStringArray::from_iter_values(ids.iter().map(text))),
            Self::Binary => {
                Arc::new(BinaryArray::from_iter_values(ids.iter().map(|id| id.to_be_bytes())))
            }
            Self::LargeBinary => {
                Arc::new(LargeBinaryArray::from_iter_values(ids.iter().map(|id| id.to_be_bytes())))
            }
            Self::Bool => Arc::new(ids.iter().map(|id| Some(*id == 1)).collect::<BooleanArray>()),
            Self::Composite => {
                return vec![
                    Arc::new(Int8Array::from_iter_values(
                        ids.iter().map(|id| i8::try_from(id % 7).unwrap() - 3),
                    )),
                    Arc::new(BinaryArray::from_iter_values(ids.iter().map(bytes))),
                    Arc::new(UInt16Array::from_iter_values(
                        ids.iter().map(|id| u16::try_from(id / 3).unwrap()),
                    )),
                ];
            }
        };
        vec![array]
    }

    /// The key columns of `ids`, under their names and nothing else.
    pub fn batch(self, ids: &[u32]) -> RecordBatch {
        let columns = self.names().into_iter().zip(self.arrays(ids)).map(|(n, a)| (n, a, false));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }
}
