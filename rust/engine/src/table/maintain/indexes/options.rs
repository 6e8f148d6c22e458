//! What a caller asks of a new index beside its column and its type.
//!
//! Owns: [`TableIndexOptions`], whose names are pylance's, and which options go with which type.
//! Does not own: whether their values fit a table (`plan`).

use lancemem_core::types::{Error, Result};

use super::TableIndexType;
use crate::metric::Metric;

/// How an index is called and built: by default as pylance does.
///
/// ```
/// # use lancemem::{Metric, TableIndexOptions, VectorIndexOptions};
/// let vectors = VectorIndexOptions { metric: Some(Metric::Cosine), ..Default::default() };
/// let options = TableIndexOptions::default().with_replace(true).with_vectors(vectors);
/// assert_eq!((options.replace, options.name), (true, None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableIndexOptions {
    /// The name; `None` for the name of the column and `_idx`.
    pub name: Option<String>,
    /// Whether the index replaces the present one of its name.
    pub replace: bool,
    /// The options of an index of vectors.
    pub vectors: VectorIndexOptions,
    /// The options of an index for full-text search.
    pub text: TextIndexOptions,
}

impl TableIndexOptions {
    /// Sets [`Self::name`].
    #[must_use]
    pub fn with_name(self, name: impl Into<Option<String>>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets [`Self::replace`].
    #[must_use]
    pub fn with_replace(self, replace: bool) -> Self {
        Self { replace, ..self }
    }

    /// Sets [`Self::vectors`].
    #[must_use]
    pub fn with_vectors(self, vectors: VectorIndexOptions) -> Self {
        Self { vectors, ..self }
    }

    /// Sets [`Self::text`].
    #[must_use]
    pub fn with_text(self, text: TextIndexOptions) -> Self {
        Self { text, ..self }
    }

    /// Refuses an option that has no meaning for an index of type `of`.
    pub(super) fn refuse_unused(&self, of: TableIndexType) -> Result<()> {
        let mut all = self.vectors.given().into_iter().chain(self.text.given());
        match all.find(|option| option.is_given && !option.uses.has(of)) {
            None => Ok(()),
            Some(option) => Err(Error::input(format!(
                "{}: an index of type {of} has no such option; leave it out",
                option.name
            ))),
        }
    }
}

/// The options of an index of vectors. `None` is Lance's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorIndexOptions {
    /// The metric; `None` for `l2`, or `hamming` of `uint8`.
    pub metric: Option<Metric>,
    /// Partitions. Fewer are trained where a partition would get too few vectors.
    pub num_partitions: Option<usize>,
    /// Rows of a partition, from which the number of partitions follows.
    pub target_partition_size: Option<usize>,
    /// Product codes of a vector; `None` for one code for each 16 numbers, or for each 8.
    pub num_sub_vectors: Option<usize>,
    /// Bits of a product code, 4 or 8 (`None`: 8), or bits a number of `IVF_RQ` (`None`: 5).
    pub num_bits: Option<u8>,
    /// Most rounds of a training.
    pub max_iters: Option<usize>,
    /// Vectors that train each centroid.
    pub sample_rate: Option<usize>,
    /// Edges of a node of the graph.
    pub m: Option<usize>,
    /// Candidates for the edges of a node while the graph is built.
    pub ef_construction: Option<usize>,
    /// Levels of the graph.
    pub max_level: Option<u16>,
}

/// The options of an index for full-text search. `None` is Lance's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextIndexOptions {
    /// How text is split into words: `simple`, `whitespace`, `raw`, `ngram`, `icu` or `icu/split`.
    pub base_tokenizer: Option<String>,
    /// The language of stems and stop words, by its English name.
    pub language: Option<String>,
    /// Whether positions of words are stored, which phrase queries need.
    pub with_position: Option<bool>,
    /// The longest word that is indexed.
    pub max_token_length: Option<MaxTokenLength>,
    /// Whether words are made lower case.
    pub lower_case: Option<bool>,
    /// Whether words are reduced to their stems.
    pub stem: Option<bool>,
    /// Whether stop words are left out.
    pub remove_stop_words: Option<bool>,
    /// Stop words in the place of the language's.
    pub custom_stop_words: Option<Vec<String>>,
    /// Whether accents are removed.
    pub ascii_folding: Option<bool>,
    /// The fewest letters of an n-gram.
    pub min_ngram_length: Option<u32>,
    /// The most letters of an n-gram.
    pub max_ngram_length: Option<u32>,
    /// Whether only the n-grams at the start of a word are indexed.
    pub prefix_only: Option<bool>,
    /// MiB of memory for the build.
    pub memory_limit: Option<u64>,
    /// Threads of the build.
    pub num_workers: Option<usize>,
}

/// The longest word that is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxTokenLength {
    /// Words of at most so many bytes.
    Bytes(usize),
    /// Words of any length.
    Unlimited,
}

/// An option, and whether the caller set it.
#[derive(Clone, Copy, Debug)]
struct Given {
    name: &'static str,
    is_given: bool,
    uses: Uses,
}

/// The types of indexes that use an option.
#[derive(Clone, Copy, Debug)]
enum Uses {
    Vectors,
    ProductCodes,
    Bits,
    Graph,
    Text,
}

impl Uses {
    const fn has(self, of: TableIndexType) -> bool {
        match self {
            Self::Vectors => of.is_vector(),
            Self::ProductCodes => of.has_product_codes(),
            Self::Bits => of.has_product_codes() || matches!(of, TableIndexType::IvfRq),
            Self::Graph => of.has_graph(),
            Self::Text => matches!(of, TableIndexType::Inverted),
        }
    }
}

impl VectorIndexOptions {
    fn given(&self) -> [Given; 10] {
        let option = |name, is_given, uses| Given { name, is_given, uses };
        [
            option("metric", self.metric.is_some(), Uses::Vectors),
            option("num_partitions", self.num_partitions.is_some(), Uses::Vectors),
            option("target_partition_size", self.target_partition_size.is_some(), Uses::Vectors),
            option("num_sub_vectors", self.num_sub_vectors.is_some(), Uses::ProductCodes),
            option("num_bits", self.num_bits.is_some(), Uses::Bits),
            option("max_iters", self.max_iters.is_some(), Uses::Vectors),
            option("sample_rate", self.sample_rate.is_some(), Uses::Vectors),
            option("m", self.m.is_some(), Uses::Graph),
            option("ef_construction", self.ef_construction.is_some(), Uses::Graph),
            option("max_level", self.max_level.is_some(), Uses::Graph),
        ]
    }
}

impl TextIndexOptions {
    fn given(&self) -> [Given; 14] {
        [
            ("base_tokenizer", self.base_tokenizer.is_some()),
            ("language", self.language.is_some()),
            ("with_position", self.with_position.is_some()),
            ("max_token_length", self.max_token_length.is_some()),
            ("lower_case", self.lower_case.is_some()),
            ("stem", self.stem.is_some()),
            ("remove_stop_words", self.remove_stop_words.is_some()),
            ("custom_stop_words", self.custom_stop_words.is_some()),
            ("ascii_folding", self.ascii_folding.is_some()),
            ("min_ngram_length", self.min_ngram_length.is_some()),
            ("max_ngram_length", self.max_ngram_length.is_some()),
            ("prefix_only", self.prefix_only.is_some()),
            ("memory_limit", self.memory_limit.is_some()),
            ("num_workers", self.num_workers.is_some()),
        ]
        .map(|(name, is_given)| Given { name, is_given, uses: Uses::Text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_another_type_of_index_is_refused_by_its_name() {
        let refusal = |options: &TableIndexOptions, of: TableIndexType| {
            options.refuse_unused(of).unwrap_err().to_string()
        };
        let vectors = VectorIndexOptions { m: Some(8), ..VectorIndexOptions::default() };
        let graph = TableIndexOptions::default().with_vectors(vectors);
        graph.refuse_unused(TableIndexType::IvfHnswSq).unwrap();
        assert!(refusal(&graph, TableIndexType::IvfPq).starts_with("m: an index of type IVF_PQ"));
        let bits = VectorIndexOptions { num_bits: Some(4), ..VectorIndexOptions::default() };
        let bits = TableIndexOptions::default().with_vectors(bits);
        bits.refuse_unused(TableIndexType::IvfRq).unwrap();
        assert!(refusal(&bits, TableIndexType::IvfSq).starts_with("num_bits: "));
        let text = TextIndexOptions { stem: Some(false), ..TextIndexOptions::default() };
        let text = TableIndexOptions::default().with_text(text);
        text.refuse_unused(TableIndexType::Inverted).unwrap();
        assert!(refusal(&text, TableIndexType::BTree).starts_with("stem: an index of type BTREE"));
        TableIndexOptions::default().refuse_unused(TableIndexType::BTree).unwrap();
    }
}
