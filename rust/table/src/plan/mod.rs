//! From a cut and a request to a DataFusion plan.
//!
//! Owns: every decision about how a read is done; nobody else builds plan nodes.
//! Does not own: what the cut contains (`view`), the choice by key (`merge`), or when a plan
//! runs (`table`).

mod condition;
mod domain;
mod exact;
mod filter;
mod leaf;
mod memtable_scan;
mod narrowing;
mod numerals;
mod part;
mod planner;
mod prune;
pub mod pushdown;
mod run_keys_scan;
mod substrait;
mod turns;
mod values;
mod words;
mod zeros;

pub use condition::Condition;
pub use filter::Filter;
pub use part::ReadPart;
pub use planner::{ScanPlan, ScanRequest, plan_scan, session};
pub use prune::Pruned;
