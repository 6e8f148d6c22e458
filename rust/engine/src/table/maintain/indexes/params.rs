//! Lance's parameters of an index, from a caller's options.
//!
//! Owns: the checks that need only the options and the width of the vectors, and the defaults.
//! Does not own: the rows of the table (`plan`), or the build, which is Lance's.

use lance::index::vector::VectorIndexParams;
use lance_index::IndexParams;
use lance_index::scalar::{InvertedIndexParams, ScalarIndexParams};
use lance_index::vector::bq::RQBuildParams;
use lance_index::vector::hnsw::builder::HnswBuildParams;
use lance_index::vector::ivf::IvfBuildParams;
use lance_index::vector::pq::PQBuildParams;
use lance_index::vector::sq::builder::SQBuildParams;
use lancemem_core::types::{Error, Result};

use super::TableIndexType;
use super::options::{MaxTokenLength, TextIndexOptions, VectorIndexOptions};
use crate::errors::without_path;
use crate::metric::Metric;

/// Fewest edges of a graph's node in Lance.
const MIN_EDGES: usize = 4;
/// Numbers for which one product code is the default, the first that divides the width.
const DEFAULT_SUB_VECTOR_WIDTHS: [usize; 2] = [16, 8];

/// The parameters of one index.
#[derive(Debug)]
pub(super) enum Params {
    Vector(VectorIndexParams),
    Text(InvertedIndexParams),
    /// Lance's defaults.
    Scalar(ScalarIndexParams),
}

impl Params {
    pub fn as_lance(&self) -> &dyn IndexParams {
        match self {
            Self::Vector(params) => params,
            Self::Text(params) => params,
            Self::Scalar(params) => params,
        }
    }

    /// Those of an index that is not of vectors.
    pub fn of_values(of: TableIndexType, options: &TextIndexOptions) -> Result<Self> {
        if of == TableIndexType::Inverted {
            return text_params(options).map(Self::Text);
        }
        Ok(Self::Scalar(ScalarIndexParams::new(of.of_lance().to_string())))
    }

    /// Those of an index of vectors of `width` numbers.
    pub fn of_vectors(
        of: TableIndexType,
        metric: Metric,
        width: usize,
        options: &VectorIndexOptions,
    ) -> Result<Self> {
        let metric = metric.of_lance();
        let ivf = ivf_params(options)?;
        let graph = || graph_params(options);
        let codes = || product_codes(width, options);
        let bytes = || SQBuildParams {
            sample_rate: options.sample_rate.unwrap_or(SQBuildParams::default().sample_rate),
            ..SQBuildParams::default()
        };
        Ok(Self::Vector(match of {
            TableIndexType::IvfPq => VectorIndexParams::with_ivf_pq_params(metric, ivf, codes()?),
            TableIndexType::IvfSq => VectorIndexParams::with_ivf_sq_params(metric, ivf, bytes()),
            TableIndexType::IvfRq => {
                VectorIndexParams::with_ivf_rq_params(metric, ivf, few_bits(width, options)?)
            }
            TableIndexType::IvfHnswFlat => VectorIndexParams::ivf_hnsw(metric, ivf, graph()?),
            TableIndexType::IvfHnswPq => {
                VectorIndexParams::with_ivf_hnsw_pq_params(metric, ivf, graph()?, codes()?)
            }
            TableIndexType::IvfHnswSq => {
                VectorIndexParams::with_ivf_hnsw_sq_params(metric, ivf, graph()?, bytes())
            }
            _ => VectorIndexParams::with_ivf_flat_params(metric, ivf),
        }))
    }
}

fn ivf_params(options: &VectorIndexOptions) -> Result<IvfBuildParams> {
    let usual = IvfBuildParams::default();
    let positive = [
        ("num_partitions", options.num_partitions),
        ("target_partition_size", options.target_partition_size),
        ("max_iters", options.max_iters),
        ("sample_rate", options.sample_rate),
    ];
    if let Some((name, _)) = positive.into_iter().find(|(_, given)| *given == Some(0)) {
        return Err(Error::input(format!("{name}: expected a number from 1, got 0")));
    }
    Ok(IvfBuildParams {
        num_partitions: options.num_partitions,
        target_partition_size: options.target_partition_size,
        max_iters: options.max_iters.unwrap_or(usual.max_iters),
        sample_rate: options.sample_rate.unwrap_or(usual.sample_rate),
        ..usual
    })
}

fn graph_params(options: &VectorIndexOptions) -> Result<HnswBuildParams> {
    let usual = HnswBuildParams::default();
    let m = options.m.unwrap_or(usual.m);
    let ef_construction = options.ef_construction.unwrap_or(usual.ef_construction.max(m));
    let max_level = options.max_level.unwrap_or(usual.max_level);
    if m < MIN_EDGES {
        return Err(Error::input(format!("m: expected a number from {MIN_EDGES}, got {m}")));
    }
    if ef_construction < m {
        return Err(Error::input(format!(
            "ef_construction: expected at least m, which is {m}, got {ef_construction}"
        )));
    }
    if max_level == 0 {
        return Err(Error::input("max_level: expected a number from 1, got 0"));
    }
    Ok(HnswBuildParams { max_level, m, ef_construction, ..usual })
}

fn product_codes(width: usize, options: &VectorIndexOptions) -> Result<PQBuildParams> {
    let usual = PQBuildParams::default();
    let num_bits = options.num_bits.map_or(usual.num_bits, usize::from);
    if num_bits != 4 && num_bits != 8 {
        return Err(Error::input(format!("num_bits: expected 4 or 8, got {num_bits}")));
    }
    let is_even = num_bits == 4;
    let num_sub_vectors =
        options.num_sub_vectors.unwrap_or_else(|| default_sub_vectors(width, is_even));
    if num_sub_vectors == 0 || !width.is_multiple_of(num_sub_vectors) {
        return Err(Error::input(format!(
            "num_sub_vectors: expected a number that divides {width}, the width of the vectors, got \
             {num_sub_vectors}"
        )));
    }
    if is_even && !num_sub_vectors.is_multiple_of(2) {
        return Err(Error::input(format!(
            "num_sub_vectors: expected an even number, because num_bits is 4, got {num_sub_vectors}"
        )));
    }
    Ok(PQBuildParams {
        num_sub_vectors,
        num_bits,
        max_iters: options.max_iters.unwrap_or(usual.max_iters),
        sample_rate: options.sample_rate.unwrap_or(usual.sample_rate),
        ..usual
    })
}

/// As `LanceDB` chooses; pylance has no default.
fn default_sub_vectors(width: usize, is_even: bool) -> usize {
    let part = DEFAULT_SUB_VECTOR_WIDTHS.into_iter().find(|part| width.is_multiple_of(*part));
    let codes = part.map_or(1, |part| width / part);
    if is_even && !codes.is_multiple_of(2) { codes * 2 } else { codes }
}

fn few_bits(width: usize, options: &VectorIndexOptions) -> Result<RQBuildParams> {
    if !width.is_multiple_of(8) {
        return Err(Error::input(format!(
            "an index of type IVF_RQ needs vectors of a multiple of 8 numbers, these have {width}"
        )));
    }
    let num_bits = options.num_bits.unwrap_or(RQBuildParams::default().num_bits);
    if !(1..=9).contains(&num_bits) {
        return Err(Error::input(format!(
            "num_bits: expected a number from 1 to 9, got {num_bits}"
        )));
    }
    Ok(RQBuildParams::new(num_bits))
}

fn text_params(options: &TextIndexOptions) -> Result<InvertedIndexParams> {
    let mut params = InvertedIndexParams::default();
    // First: some tokenizers have other defaults for the options that follow.
    if let Some(tokenizer) = &options.base_tokenizer {
        params = params.base_tokenizer(tokenizer.clone());
    }
    if let Some(language) = &options.language {
        params = params.language(language).map_err(|error| {
            let text = format!(
                "language: Lance knows no language '{language}'; name one in English, such as German"
            );
            Error::input(text).with_source(error)
        })?;
    }
    match options.max_token_length {
        Some(MaxTokenLength::Bytes(most)) => params = params.max_token_length(Some(most)),
        Some(MaxTokenLength::Unlimited) => params = params.max_token_length(None),
        None => {}
    }
    if let Some(words) = &options.custom_stop_words {
        params = params.custom_stop_words(Some(words.clone()));
    }
    if let Some(mebibytes) = options.memory_limit {
        params = params.memory_limit_mb(mebibytes);
    }
    if let Some(workers) = options.num_workers {
        params = params.num_workers(workers);
    }
    if let Some(length) = options.min_ngram_length {
        params = params.ngram_min_length(length);
    }
    if let Some(length) = options.max_ngram_length {
        params = params.ngram_max_length(length);
    }
    let switches = [
        (options.with_position, InvertedIndexParams::with_position as fn(_, bool) -> _),
        (options.lower_case, InvertedIndexParams::lower_case),
        (options.stem, InvertedIndexParams::stem),
        (options.remove_stop_words, InvertedIndexParams::remove_stop_words),
        (options.ascii_folding, InvertedIndexParams::ascii_folding),
        (options.prefix_only, InvertedIndexParams::ngram_prefix_only),
    ];
    for (given, set) in switches {
        if let Some(on) = given {
            params = set(params, on);
        }
    }
    // Lance would read the column before it refuses a tokenizer.
    params.build().map_err(|error| {
        Error::input(format!("full-text options: {}", without_path(&error))).with_source(error)
    })?;
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(of: TableIndexType, width: usize, options: &VectorIndexOptions) -> String {
        Params::of_vectors(of, Metric::L2, width, options).unwrap_err().to_string()
    }

    #[test]
    fn the_default_number_of_product_codes_divides_the_width() {
        for (width, codes) in [(384, 24), (24, 3), (100, 1)] {
            assert_eq!(default_sub_vectors(width, false), codes, "{width}");
        }
        assert_eq!([16, 24, 384].map(|width| default_sub_vectors(width, true)), [2, 6, 24]);
    }

    #[test]
    fn numbers_that_no_index_can_have_are_refused_by_their_name() {
        let none = VectorIndexOptions::default;
        let codes = VectorIndexOptions { num_sub_vectors: Some(5), ..none() };
        let text = refusal(TableIndexType::IvfPq, 16, &codes);
        assert!(text.contains("divides 16, the width of the vectors, got 5"), "{text}");
        let bits = VectorIndexOptions { num_bits: Some(6), ..none() };
        assert!(refusal(TableIndexType::IvfPq, 16, &bits).contains("expected 4 or 8, got 6"));
        let odd = VectorIndexOptions { num_bits: Some(4), num_sub_vectors: Some(1), ..none() };
        assert!(refusal(TableIndexType::IvfPq, 16, &odd).contains("an even number"));
        let bits = VectorIndexOptions { num_bits: Some(10), ..none() };
        assert!(refusal(TableIndexType::IvfRq, 16, &bits).contains("from 1 to 9, got 10"));
        assert!(refusal(TableIndexType::IvfRq, 12, &none()).contains("these have 12"));
        let edges = VectorIndexOptions { m: Some(3), ..none() };
        assert!(refusal(TableIndexType::IvfHnswSq, 16, &edges).contains("from 4, got 3"));
        let few = VectorIndexOptions { m: Some(8), ef_construction: Some(4), ..none() };
        assert!(refusal(TableIndexType::IvfHnswFlat, 16, &few).contains("which is 8, got 4"));
        let empty = VectorIndexOptions { num_partitions: Some(0), ..none() };
        assert!(refusal(TableIndexType::IvfFlat, 16, &empty).contains("num_partitions: "));
    }

    #[test]
    fn unknown_words_of_full_text_options_are_refused_before_a_build() {
        let none = TextIndexOptions::default;
        let refusal = |options: &TextIndexOptions| {
            Params::of_values(TableIndexType::Inverted, options).unwrap_err().to_string()
        };
        let language = TextIndexOptions { language: Some("Klingon".to_owned()), ..none() };
        assert!(refusal(&language).contains("no language 'Klingon'"));
        let tokenizer = TextIndexOptions { base_tokenizer: Some("words".to_owned()), ..none() };
        assert!(refusal(&tokenizer).starts_with("full-text options: "));
        let german = TextIndexOptions { language: Some("German".to_owned()), ..none() };
        Params::of_values(TableIndexType::Inverted, &german).unwrap();
    }
}
