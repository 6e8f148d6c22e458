//! The choice of one row a key among all sources.
//!
//! Owns: [`KeyChoice`], which source holds the newest row of each key, and the plan node
//! [`NewestRowsExec`] that keeps only those rows.
//! Does not own: filters of the user, which run after the choice, or where rows come from.

mod choice;
mod newest_rows;

pub use choice::KeyChoice;
pub use newest_rows::NewestRowsExec;
