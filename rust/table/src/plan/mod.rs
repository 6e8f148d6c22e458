//! From a cut and a request to a DataFusion plan.
//!
//! Owns: every decision about how a read is done; nobody else builds plan nodes.
//! Does not own: what the cut contains (`view`), the choice by key (`merge`), or when a plan
//! runs (`table`).

mod condition;
mod filter;
mod memtable_scan;
mod part;
mod planner;
pub mod pushdown;
mod substrait;

pub use condition::Condition;
pub use filter::Filter;
pub use part::ReadPart;
pub use planner::{ScanRequest, plan_scan, session};
