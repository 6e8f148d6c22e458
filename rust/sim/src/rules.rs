//! The merge rule of a life, and the row that the oracle expects of a key's events.
//!
//! Owns: the rules, which seed has which, and the fold of the oracle, which shares no code with
//! `lancemem_core::merge`.
//! Does not own: the fold of the core (`sources`), or which events are drawn (`events`).
//!
//! A rule is drawn from the seed alone, beside the draws of the life: a life without a rule does not
//! depend on the rules that there are.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use lancemem_core::format::RowSchema;
use lancemem_core::merge::{
    Aggregate, MergeEngine, MergeFunction, MergeRule, PairFunctions, RuleOptions,
};
use lancemem_testkit::KeyShape;

use crate::chance::Chance;
use crate::rows::{COLUMNS, Cells, Columns, Event, TS};

/// Separates the draw of the rule from the draws of the life. Kept seeds draw no rule with it.
const SALT: u64 = 7 << 56;

/// The columns of the sequence group: `x` and `ts`.
pub const GROUP: Columns = 1 << 2 | 1 << TS;

/// How the events of a key become its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// No rule: the last event.
    Plain,
    /// The put with the greatest `ts`.
    SequenceBy,
    /// The first put.
    FirstRow,
    /// The put with the least `ts`.
    FirstBySequence,
    /// Each column from the last put that gave it.
    PartialUpdate,
    /// The same, but `x` and `ts` from the put with the greatest `ts`.
    SequenceGroup,
    /// Sum of `v`, greatest `w`, last `x` that is not null, greatest `ts`.
    Aggregation,
}

impl Rule {
    /// The rule of a seed: six of ten have none, and the engines are equally frequent.
    pub fn of(seed: u64) -> Self {
        match Chance::new(seed ^ SALT).below(20) {
            0 | 1 => Self::SequenceBy,
            2 => Self::FirstRow,
            3 => Self::FirstBySequence,
            4 => Self::PartialUpdate,
            5 => Self::SequenceGroup,
            6 | 7 => Self::Aggregation,
            _ => Self::Plain,
        }
    }

    /// All rules but [`Self::Plain`].
    #[cfg(test)]
    pub const RULED: [Self; 6] = [
        Self::SequenceBy,
        Self::FirstRow,
        Self::FirstBySequence,
        Self::PartialUpdate,
        Self::SequenceGroup,
        Self::Aggregation,
    ];

    /// What a report counts lives with this rule as; `None` without a rule.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::SequenceBy => Some("rule: sequence_by"),
            Self::FirstRow | Self::FirstBySequence => Some("rule: first_row"),
            Self::PartialUpdate | Self::SequenceGroup => Some("rule: partial_update"),
            Self::Aggregation => Some("rule: aggregation"),
        }
    }

    /// Whether events record which columns they give.
    pub const fn records_given(self) -> bool {
        matches!(self, Self::PartialUpdate | Self::SequenceGroup)
    }

    /// Whether a put may leave columns out.
    pub const fn takes_some_columns(self) -> bool {
        self.records_given() || matches!(self, Self::Aggregation)
    }

    /// The row of a key after one more event.
    pub fn next(self, row: Option<Cells>, event: &Event) -> Option<Cells> {
        let (given, new) = match event {
            Event::Delete => return None,
            Event::Replace(cells) => return Some(*cells),
            Event::Put { given, cells } => (*given, *cells),
        };
        let Some(old) = row else { return Some(new) };
        let picked = |from_new: Columns| -> Cells {
            std::array::from_fn(|at| if from_new >> at & 1 == 1 { new[at] } else { old[at] })
        };
        // A null is less than every value.
        let is_late = new[TS] < old[TS];
        Some(match self {
            Self::Plain => new,
            Self::SequenceBy => {
                if is_late {
                    old
                } else {
                    new
                }
            }
            Self::FirstRow => old,
            // A null comes last, and of equal ones the first is kept.
            Self::FirstBySequence => {
                let sequence = |cells: &Cells| cells[TS].unwrap_or(i64::MAX);
                if sequence(&new) < sequence(&old) { new } else { old }
            }
            Self::PartialUpdate => picked(given),
            Self::SequenceGroup => picked(if is_late { given & !GROUP } else { given }),
            Self::Aggregation => {
                let sum = [old[0], new[0]].into_iter().flatten().reduce(|sum, value| sum + value);
                [sum, old[1].max(new[1]), new[2].or(old[2]), old[TS].max(new[TS])]
            }
        })
    }

    /// The columns of a table with this rule and a key of this shape.
    pub fn row_schema(self, shape: KeyShape) -> Arc<RowSchema> {
        let Some(options) = self.options() else { return shape.row_schema() };
        let key = shape.keys(&[]).schema();
        let names: Vec<String> = key.fields().iter().map(|field| field.name().clone()).collect();
        let values = COLUMNS.map(|name| Arc::new(Field::new(name, DataType::Int64, true)));
        let fields = key.fields().iter().cloned().chain(values).enumerate().map(|(id, field)| {
            let id = HashMap::from([("lance:field_id".to_owned(), id.to_string())]);
            field.as_ref().clone().with_metadata(id)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let rule = MergeRule::new(&options, &schema, &names)
            .unwrap_or_else(|error| unreachable!("{self:?} is no rule: {error}"));
        let rows = RowSchema::with_rule(schema, &names, Some(&rule), &PairFunctions::new())
            .unwrap_or_else(|error| unreachable!("{self:?} has no rows: {error}"));
        Arc::new(rows)
    }

    fn options(self) -> Option<RuleOptions> {
        let ts = || vec!["ts".to_owned()];
        let of = |merge_engine| RuleOptions { merge_engine, ..RuleOptions::default() };
        let (first, partial) = (MergeEngine::FirstRow, MergeEngine::PartialUpdate);
        Some(match self {
            Self::Plain => return None,
            Self::SequenceBy => RuleOptions { sequence_by: ts(), ..of(MergeEngine::Deduplicate) },
            Self::FirstRow => of(first),
            Self::FirstBySequence => RuleOptions { sequence_by: ts(), ..of(first) },
            Self::PartialUpdate => of(partial),
            Self::SequenceGroup => {
                RuleOptions { sequence_groups: vec![(ts(), vec!["x".to_owned()])], ..of(partial) }
            }
            Self::Aggregation => {
                let max = MergeFunction::Max;
                let functions = [("v", MergeFunction::Sum), ("w", max.clone()), ("ts", max)];
                let aggregates = functions
                    .map(|(column, function)| (column.to_owned(), Aggregate::from(function)));
                RuleOptions { aggregates: aggregates.into(), ..of(MergeEngine::Aggregation) }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: Event = Event::Put { given: 0b0101, cells: [Some(1), None, None, None] };

    fn put(cells: Cells) -> Event {
        Event::Put { given: crate::rows::ALL, cells }
    }

    fn fold(rule: Rule, events: &[Event]) -> Option<Cells> {
        events.iter().fold(None, |row, event| rule.next(row, event))
    }

    #[test]
    fn kept_seeds_and_most_others_are_lives_without_a_rule() {
        let kept = include_str!("../seeds.txt").lines();
        let kept = kept.filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let ruled: Vec<u64> = kept.filter(|seed| Rule::of(*seed) != Rule::Plain).collect();
        assert!(ruled.is_empty(), "kept seeds of a life that is another one now: {ruled:?}");
        let of = |rule: Rule| (0..10_000).filter(|seed| Rule::of(*seed) == rule).count();
        assert!((5_500..6_500).contains(&of(Rule::Plain)), "{}", of(Rule::Plain));
        assert!((800..1_200).contains(&of(Rule::Aggregation)), "{}", of(Rule::Aggregation));
    }

    #[test]
    fn the_oracle_orders_events_by_sequence_where_its_rule_has_one() {
        let event = |value, ts| put([Some(value), None, None, ts]);
        let events = [event(1, None), event(2, Some(5)), event(3, Some(4)), event(4, Some(5))];
        let value = |rule| fold(rule, &events).and_then(|cells| cells[0]);
        assert_eq!(value(Rule::SequenceBy), Some(4));
        assert_eq!(value(Rule::FirstRow), Some(1));
        assert_eq!(value(Rule::FirstBySequence), Some(3));
        assert_eq!(value(Rule::Aggregation), Some(10));
    }

    #[test]
    fn the_oracle_takes_the_columns_that_are_given_and_forgets_all_behind_a_delete() {
        let whole = put([Some(9), Some(8), Some(7), Some(6)]);
        let both = [whole, PUT];
        let merged = [Some(1), Some(8), None, Some(6)];
        assert_eq!(fold(Rule::PartialUpdate, &both), Some(merged));
        assert_eq!(
            fold(Rule::PartialUpdate, &[whole, Event::Delete, PUT]),
            fold(Rule::Plain, &[PUT])
        );
        assert_eq!(fold(Rule::PartialUpdate, &[whole, Event::Delete]), None);
        let late = Event::Put { given: GROUP, cells: [None, None, Some(1), Some(5)] };
        assert_eq!(fold(Rule::SequenceGroup, &[whole, late]), fold(Rule::Plain, &[whole]));
        let replace = Event::Replace([Some(1), None, None, None]);
        assert_eq!(
            fold(Rule::Aggregation, &[whole, replace, PUT]),
            Some([Some(2), None, None, None])
        );
    }
}
