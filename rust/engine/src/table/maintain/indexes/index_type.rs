//! The types of indexes that a base table can have.
//!
//! Owns: their names, which are pylance's, and the types of columns that each can index.
//! Does not own: how an index is built or used, which are Lance's.

use std::fmt;
use std::str::FromStr;

use arrow_schema::DataType;
use lance_index::IndexType;
use lancemem_core::types::{Error, Result};

/// A type of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableIndexType {
    /// Partitions of whole vectors.
    IvfFlat,
    /// Partitions of product codes.
    IvfPq,
    /// Partitions of vectors with one byte a number.
    IvfSq,
    /// Partitions of codes with few bits a number.
    IvfRq,
    /// A graph of whole vectors in each partition.
    IvfHnswFlat,
    /// A graph of product codes in each partition.
    IvfHnswPq,
    /// A graph of vectors with one byte a number in each partition.
    IvfHnswSq,
    /// Sorted values, for a column with many different ones.
    BTree,
    /// The rows of each value, for a column with few different ones.
    Bitmap,
    /// The rows of each element, for a column of lists.
    LabelList,
    /// The rows of each word, for full-text search.
    Inverted,
    /// The rows of each three letters, for the SQL function `contains`.
    NGram,
    /// The least and the greatest value of each zone of rows.
    ZoneMap,
    /// A Bloom filter of each zone of rows.
    BloomFilter,
}

impl TableIndexType {
    const ALL: [Self; 14] = [
        Self::IvfFlat,
        Self::IvfPq,
        Self::IvfSq,
        Self::IvfRq,
        Self::IvfHnswFlat,
        Self::IvfHnswPq,
        Self::IvfHnswSq,
        Self::BTree,
        Self::Bitmap,
        Self::LabelList,
        Self::Inverted,
        Self::NGram,
        Self::ZoneMap,
        Self::BloomFilter,
    ];

    /// Its name in pylance.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IvfFlat => "IVF_FLAT",
            Self::IvfPq => "IVF_PQ",
            Self::IvfSq => "IVF_SQ",
            Self::IvfRq => "IVF_RQ",
            Self::IvfHnswFlat => "IVF_HNSW_FLAT",
            Self::IvfHnswPq => "IVF_HNSW_PQ",
            Self::IvfHnswSq => "IVF_HNSW_SQ",
            Self::BTree => "BTREE",
            Self::Bitmap => "BITMAP",
            Self::LabelList => "LABEL_LIST",
            Self::Inverted => "INVERTED",
            Self::NGram => "NGRAM",
            Self::ZoneMap => "ZONEMAP",
            Self::BloomFilter => "BLOOMFILTER",
        }
    }

    /// The name of the type that Lance describes by `name`. A type that cannot be created here
    /// keeps Lance's name.
    pub(super) fn name_of_lance(name: &str) -> String {
        let plain = name.replace('_', "").to_ascii_uppercase();
        let known = Self::ALL.into_iter().find(|it| it.name().replace('_', "") == plain);
        known.map_or_else(|| name.to_ascii_uppercase(), |it| it.name().to_owned())
    }

    pub(super) const fn of_lance(self) -> IndexType {
        match self {
            Self::IvfFlat => IndexType::IvfFlat,
            Self::IvfPq => IndexType::IvfPq,
            Self::IvfSq => IndexType::IvfSq,
            Self::IvfRq => IndexType::IvfRq,
            Self::IvfHnswFlat => IndexType::IvfHnswFlat,
            Self::IvfHnswPq => IndexType::IvfHnswPq,
            Self::IvfHnswSq => IndexType::IvfHnswSq,
            Self::BTree => IndexType::BTree,
            Self::Bitmap => IndexType::Bitmap,
            Self::LabelList => IndexType::LabelList,
            Self::Inverted => IndexType::Inverted,
            Self::NGram => IndexType::NGram,
            Self::ZoneMap => IndexType::ZoneMap,
            Self::BloomFilter => IndexType::BloomFilter,
        }
    }

    /// Whether it is an index of vectors.
    #[must_use]
    pub const fn is_vector(self) -> bool {
        matches!(
            self,
            Self::IvfFlat
                | Self::IvfPq
                | Self::IvfSq
                | Self::IvfRq
                | Self::IvfHnswFlat
                | Self::IvfHnswPq
                | Self::IvfHnswSq
        )
    }

    pub(super) const fn has_graph(self) -> bool {
        matches!(self, Self::IvfHnswFlat | Self::IvfHnswPq | Self::IvfHnswSq)
    }

    pub(super) const fn has_product_codes(self) -> bool {
        matches!(self, Self::IvfPq | Self::IvfHnswPq)
    }

    /// Whether a column of `column` can have such an index.
    pub(super) fn fits(self, column: &DataType) -> bool {
        match self {
            Self::IvfFlat | Self::IvfHnswFlat => {
                vector_element(column).is_some_and(|it| *it == DataType::UInt8 || it.is_floating())
            }
            Self::IvfPq | Self::IvfSq | Self::IvfRq | Self::IvfHnswPq | Self::IvfHnswSq => {
                vector_element(column).is_some_and(DataType::is_floating)
            }
            Self::BTree | Self::Bitmap | Self::ZoneMap => is_ordered(column),
            Self::BloomFilter => {
                is_ordered(column)
                    && !column.is_decimal()
                    && !matches!(
                        column,
                        DataType::Boolean
                            | DataType::Float16
                            | DataType::FixedSizeBinary(_)
                            | DataType::Duration(_)
                    )
            }
            Self::LabelList => {
                list_element(column).is_some_and(|it| !it.is_nested() && !it.is_null())
            }
            Self::Inverted => is_text(column) || list_element(column).is_some_and(is_text),
            Self::NGram => is_text(column),
        }
    }

    /// The columns that can have such an index, in words.
    pub(super) const fn columns(self) -> &'static str {
        match self {
            Self::IvfFlat | Self::IvfHnswFlat => {
                "fixed_size_list of float16, float32, float64 or uint8"
            }
            Self::IvfPq | Self::IvfSq | Self::IvfRq | Self::IvfHnswPq | Self::IvfHnswSq => {
                "fixed_size_list of float16, float32 or float64"
            }
            Self::BTree | Self::Bitmap | Self::ZoneMap => {
                "numbers, booleans, text, binary data, dates or times"
            }
            Self::BloomFilter => {
                "integers, float32, float64, text, binary data, dates or timestamps"
            }
            Self::LabelList => "lists of values that are no lists or structs themselves",
            Self::Inverted => "text, or lists of text",
            Self::NGram => "text",
        }
    }
}

/// The type of the numbers of a column of vectors.
fn vector_element(column: &DataType) -> Option<&DataType> {
    match column {
        DataType::FixedSizeList(element, width) if *width > 0 => Some(element.data_type()),
        _ => None,
    }
}

fn list_element(column: &DataType) -> Option<&DataType> {
    match column {
        DataType::List(element) | DataType::LargeList(element) => Some(element.data_type()),
        _ => None,
    }
}

const fn is_text(column: &DataType) -> bool {
    matches!(column, DataType::Utf8 | DataType::LargeUtf8)
}

fn is_ordered(column: &DataType) -> bool {
    let is_other = matches!(column, DataType::Interval(_) | DataType::Dictionary(..));
    !column.is_nested() && !column.is_null() && !is_other
}

impl fmt::Display for TableIndexType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TableIndexType {
    type Err = Error;

    /// Upper and lower case are the same. `FTS` is `INVERTED`, as in pylance.
    fn from_str(name: &str) -> Result<Self> {
        let upper = name.to_ascii_uppercase();
        let upper = match upper.as_str() {
            "FTS" => "INVERTED",
            "BLOOM_FILTER" => "BLOOMFILTER",
            other => other,
        };
        Self::ALL.into_iter().find(|it| it.name() == upper).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::input(format!("index type: expected one of {known}, got '{name}'"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, TimeUnit};

    use super::*;

    fn vectors(element: DataType) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", element, true)), 8)
    }

    fn list(element: DataType) -> DataType {
        DataType::List(Arc::new(Field::new("item", element, true)))
    }

    #[test]
    fn a_type_is_known_by_its_names_in_any_case() {
        for of in TableIndexType::ALL {
            assert_eq!(of.name().to_lowercase().parse::<TableIndexType>().unwrap(), of);
            assert_eq!(TableIndexType::name_of_lance(&of.of_lance().to_string()), of.name());
        }
        assert_eq!("fts".parse::<TableIndexType>().unwrap(), TableIndexType::Inverted);
        let bloom: TableIndexType = "BLOOM_FILTER".parse().unwrap();
        assert_eq!(bloom, TableIndexType::BloomFilter);
        assert_eq!(TableIndexType::name_of_lance("RTree"), "RTREE");
        let error = "HNSW".parse::<TableIndexType>().unwrap_err().to_string();
        assert!(error.contains("IVF_HNSW_SQ, BTREE"), "{error}");
    }

    #[test]
    fn each_type_has_its_columns() {
        let fitting = |column: &DataType| {
            let all = TableIndexType::ALL.into_iter().filter(|it| it.fits(column));
            all.map(TableIndexType::name).collect::<Vec<_>>()
        };
        let of_values = ["BTREE", "BITMAP", "ZONEMAP"];
        assert_eq!(fitting(&vectors(DataType::UInt8)), ["IVF_FLAT", "IVF_HNSW_FLAT"]);
        assert_eq!(fitting(&vectors(DataType::Float16)).len(), 7);
        assert!(fitting(&vectors(DataType::Int8)).is_empty());
        assert_eq!(fitting(&list(DataType::Int32)), ["LABEL_LIST"]);
        assert_eq!(fitting(&list(DataType::Utf8)), ["LABEL_LIST", "INVERTED"]);
        assert_eq!(fitting(&DataType::Boolean), of_values);
        assert_eq!(fitting(&DataType::Decimal128(9, 2)), of_values);
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(fitting(&time), ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"]);
        assert_eq!(fitting(&DataType::Utf8).len(), 6);
        assert!(fitting(&DataType::Null).is_empty());
    }
}
