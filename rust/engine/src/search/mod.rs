//! Search: the rows nearest to a vector, over one snapshot of a table.
//!
//! ```text
//!   FilterExec, ProjectionExec   the caller's columns; a filter after the choice of rows
//!     LateColumnsExec            wide columns, of the chosen rows alone
//!       TopKExec                 the nearest rows of each query, ties by key
//!         IndexSearchExec        candidates of the base table or of an SSTable by its index, live
//!                                rows alone
//!         FlatSearchExec         nearest live rows of a MemTable or of a small SSTable, all of whose
//!                                vectors are compared in memory
//!         DistanceExec           exact distances of every row below it
//!           the plan of a scan   newest rows of all other sources (`plan`)
//! ```
//!
//! The exact answer comes first, and an index is an accelerator of it: a source without an index
//! is read to its end, so a missing index costs time and never a row. Every distance of a result
//! is computed from the stored vector by one function, whatever the source.
//!
//! Owns: what a search asks for, the nodes above, and the liveness of an index's candidates.
//! Does not own: which rows are the newest (`visibility`, `lookup`), scans (`plan`), or indexes, which
//! are Lance's: those of the base table, and those that SSTables carry (`sstable`).

mod bounds;
mod distance;
mod distance_exec;
mod flat_search;
mod flat_source;
mod found_rows;
mod hybrid;
mod index_search;
mod indexed_source;
mod late_columns;
mod layout;
mod memory_rows;
mod node;
mod options;
mod planner;
mod query;
mod request;
mod table_index;
mod text;
mod top_k;
mod vector_column;

pub use crate::metric::Metric;
pub use hybrid::{Rerank, Reranker};
pub use options::{QueryVectors, SearchOptions};
pub use text::{TextQuery, TextSearch};

/// The column of a result that holds the distance of its row, as in Lance.
pub const DISTANCE: &str = "_distance";
/// The column of a batch's result that holds the index of the query in the batch, as in Lance.
pub const QUERY_INDEX: &str = "query_index";
