//! The metrics of distances.
//!
//! Owns: their names, and which of them fit a type of elements.
//! Does not own: distances (`search`), or indexes (`table`).

use std::fmt;
use std::str::FromStr;

use arrow_schema::DataType;
use lance_linalg::distance::DistanceType;
use lancemem_core::types::{Error, Result};

/// How far two vectors are apart. The values are Lance's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The squared Euclidean distance.
    L2,
    /// One minus the cosine of the angle.
    Cosine,
    /// One minus the dot product.
    Dot,
    /// The number of bits that differ, of vectors of `uint8`.
    Hamming,
}

impl Metric {
    const ALL: [Self; 4] = [Self::L2, Self::Cosine, Self::Dot, Self::Hamming];

    /// Its name in pylance.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::Cosine => "cosine",
            Self::Dot => "dot",
            Self::Hamming => "hamming",
        }
    }

    /// The metric of a column without an index.
    pub(crate) fn default_of(element: &DataType) -> Self {
        if *element == DataType::UInt8 { Self::Hamming } else { Self::L2 }
    }

    /// Whether vectors with elements of this type have such a distance.
    pub(crate) fn fits(self, element: &DataType) -> bool {
        (self == Self::Hamming) == (*element == DataType::UInt8)
    }

    pub(crate) const fn of_lance(self) -> DistanceType {
        match self {
            Self::L2 => DistanceType::L2,
            Self::Cosine => DistanceType::Cosine,
            Self::Dot => DistanceType::Dot,
            Self::Hamming => DistanceType::Hamming,
        }
    }
}

impl From<DistanceType> for Metric {
    fn from(metric: DistanceType) -> Self {
        match metric {
            DistanceType::L2 => Self::L2,
            DistanceType::Cosine => Self::Cosine,
            DistanceType::Dot => Self::Dot,
            DistanceType::Hamming => Self::Hamming,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Metric {
    type Err = Error;

    /// Upper and lower case are the same; `euclidean` is `l2`, as in pylance.
    fn from_str(name: &str) -> Result<Self> {
        let lower = name.to_ascii_lowercase();
        let lower = if lower == "euclidean" { "l2" } else { &lower };
        let found = Self::ALL.into_iter().find(|metric| metric.name() == lower);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::input(format!("metric: expected one of {known}, got '{name}'"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_known_by_its_names_in_any_case() {
        for metric in Metric::ALL {
            assert_eq!(metric.name().to_uppercase().parse::<Metric>().unwrap(), metric);
        }
        assert_eq!("euclidean".parse::<Metric>().unwrap(), Metric::L2);
        let error = "manhattan".parse::<Metric>().unwrap_err().to_string();
        assert!(error.contains("l2, cosine, dot, hamming, got 'manhattan'"), "{error}");
    }
}
