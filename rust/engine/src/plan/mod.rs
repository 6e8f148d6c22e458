//! From a snapshot and a request to a DataFusion plan.
//!
//! Owns: every decision about how a read is executed; no other module builds the plans of reads.
//! Does not own: what the snapshot contains (`snapshot`), which rows are shown (`visibility`), or when a
//! plan runs (`table`).

mod condition;
mod dialect;
mod exact;
mod expressions;
mod filter;
mod first_rows;
mod key_range;
mod lossy_cast;
mod memory_order;
mod memtable_scan;
mod numerals;
mod order;
mod partition;
mod planner;
mod prune;
pub mod pushdown;
mod row_width;
mod scan_sources;
mod signed_zero;
mod source_exec;
mod sstable_keys_scan;
mod steps;
mod substrait;
mod values;
mod words;

pub use condition::Condition;
pub use dialect::{bounded_session, query_session, session};
pub use expressions::{Expressions, NamedSql, evaluate};
pub use filter::Filter;
pub(crate) use filter::{invalid, refuse_long_text};
pub(crate) use memory_order::{OrderedCandidates, OrderedFilter};
pub use order::OrderBy;
pub use partition::ReadPart;
pub use planner::{ScanPlan, ScanRequest, plan_scan};
pub use prune::Pruned;
pub use scan_sources::ScanSources;
pub(crate) use source_exec::{Leaf, LeafExec};
pub(crate) use steps::{columns_of, filtered, projected};
