//! The scores of a text query: BM25 with one set of statistics for a whole snapshot.
//!
//! Owns: [`Statistics`], which add up over sources, [`Scorers`], and the score of a tree of leaves.
//! Does not own: the formula, which is Lance's scorer, or counting (`documents`, `index_scores`).

use std::collections::HashMap;

use lance_index::scalar::inverted::query::Operator;
use lance_index::scalar::inverted::{MemBM25Scorer, Scorer};

use super::analysis::{Analysis, Leaf, Node};

/// What a source adds to the statistics of each column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statistics {
    pub columns: Vec<ColumnStatistics>,
}

/// The statistics of one column: only rows with at least one term count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ColumnStatistics {
    /// Terms of all rows.
    pub total_terms: u64,
    /// Rows with a term.
    pub rows: usize,
    /// For each term of the query, the rows that have it.
    pub rows_with: Vec<usize>,
}

impl Statistics {
    /// The statistics of no rows.
    pub fn none(analysis: &Analysis) -> Self {
        let of =
            |terms: usize| ColumnStatistics { total_terms: 0, rows: 0, rows_with: vec![0; terms] };
        Self { columns: analysis.columns.iter().map(|it| of(it.terms.len())).collect() }
    }

    /// Adds the rows of another source.
    pub fn add(&mut self, other: &Self) {
        for (one, other) in self.columns.iter_mut().zip(&other.columns) {
            one.total_terms += other.total_terms;
            one.rows += other.rows;
            for (rows, more) in one.rows_with.iter_mut().zip(&other.rows_with) {
                *rows += more;
            }
        }
    }
}

/// The scorer of each column.
#[derive(Debug)]
pub(super) struct Scorers {
    pub columns: Vec<MemBM25Scorer>,
    /// The weight of each term of all columns.
    weights: Vec<f32>,
}

impl Scorers {
    pub fn new(analysis: &Analysis, statistics: &Statistics) -> Self {
        let (mut columns, mut weights) = (Vec::new(), Vec::new());
        for (column, statistics) in analysis.columns.iter().zip(&statistics.columns) {
            let rows_with = column.terms.iter().cloned().zip(statistics.rows_with.iter().copied());
            let rows_with: HashMap<String, usize> = rows_with.collect();
            let scorer = MemBM25Scorer::new(statistics.total_terms, statistics.rows, rows_with);
            weights.extend(column.terms.iter().map(|term| scorer.query_weight(term)));
            columns.push(scorer);
        }
        Self { columns, weights }
    }

    /// The score of a leaf for a row; `None` where the leaf does not find it. `occurrences` counts
    /// the terms of all columns in the row; for a phrase, `is_phrase` says whether the row has it.
    pub fn leaf(
        &self,
        analysis: &Analysis,
        leaf: &Leaf,
        length: u32,
        occurrences: &[u32],
        is_phrase: bool,
    ) -> Option<f32> {
        let column = &analysis.columns[leaf.column];
        let occurrences = &occurrences[column.first_term..][..column.terms.len()];
        let has = |term: usize| occurrences[term] > 0;
        let finds = match leaf.operator {
            Operator::Or => leaf.terms.iter().any(|(term, _)| has(*term)),
            Operator::And => leaf
                .terms
                .chunk_by(|one, next| one.1 == next.1)
                .all(|alternatives| alternatives.iter().any(|(term, _)| has(*term))),
        };
        if !finds || leaf.terms.is_empty() || (leaf.slop.is_some() && !is_phrase) {
            return None;
        }
        let length = column.scored_length(length);
        let scorer = &self.columns[leaf.column];
        let weights = &self.weights[column.first_term..];
        let scores = leaf
            .terms
            .iter()
            .filter(|(term, _)| has(*term))
            .map(|(term, _)| weights[*term] * scorer.doc_weight(occurrences[*term], length));
        Some(scores.sum())
    }
}

impl Node {
    /// The score of a row whose leaves have these scores; `None` where the query does not find it.
    pub fn score(&self, leaf: &dyn Fn(usize) -> Option<f32>) -> Option<f32> {
        let all = |parts: &[Self]| -> Option<f32> {
            parts.iter().map(|part| part.score(leaf)).sum::<Option<f32>>()
        };
        let some = |parts: &[Self]| -> Option<f32> {
            let scores = parts.iter().filter_map(|part| part.score(leaf));
            scores.reduce(|sum, score| sum + score)
        };
        match self {
            Self::Leaf(number) => leaf(*number),
            Self::Best(parts) => {
                let scores = parts.iter().filter_map(|part| part.score(leaf));
                scores.reduce(f32::max)
            }
            Self::Boost { positive, negative, factor } => {
                let score = positive.score(leaf)?;
                Some(negative.score(leaf).map_or(score, |lost| factor.mul_add(-lost, score)))
            }
            Self::Boolean { must, should, must_not } => {
                if some(must_not).is_some() {
                    return None;
                }
                if must.is_empty() {
                    return some(should);
                }
                Some(all(must)? + some(should).unwrap_or(0.0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(node: &Node, leaves: &[Option<f32>]) -> Option<f32> {
        node.score(&|leaf| leaves[leaf])
    }

    #[test]
    fn a_tree_adds_takes_the_best_and_excludes_as_it_says() {
        let leaf = Node::Leaf;
        let best = Node::Best(vec![leaf(0), leaf(1)]);
        assert_eq!(score(&best, &[Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(score(&best, &[None, None]), None);
        let boost =
            Node::Boost { positive: Box::new(leaf(0)), negative: Box::new(leaf(1)), factor: 0.5 };
        assert_eq!(score(&boost, &[Some(3.0), Some(2.0)]), Some(2.0));
        assert_eq!(score(&boost, &[Some(3.0), None]), Some(3.0));
        assert_eq!(score(&boost, &[None, Some(2.0)]), None);
        let (must, should, must_not) = (vec![leaf(0)], vec![leaf(1)], vec![leaf(2)]);
        let boolean = Node::Boolean { must, should, must_not };
        assert_eq!(score(&boolean, &[Some(1.0), None, None]), Some(1.0));
        assert_eq!(score(&boolean, &[Some(1.0), Some(2.0), None]), Some(3.0));
        assert_eq!(score(&boolean, &[None, Some(2.0), None]), None);
        assert_eq!(score(&boolean, &[Some(1.0), Some(2.0), Some(1.0)]), None);
    }
}
