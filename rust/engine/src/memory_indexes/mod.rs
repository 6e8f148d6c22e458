//! Indexes of rows in memory, which only save time: a search without them returns the same rows.
//!
//! | index of the base table | index of a MemTable | used from |
//! | --- | --- | --- |
//! | `INVERTED` | words and the rows that have them (`texts`) | 2,000 rows |
//! | `IVF_*` | rows in the partitions of the base table's index (`vectors`) | 64 MiB of vectors |
//! | `BTREE`, `BITMAP` | rows in the order of their values (`scalars`) | 10,000 rows |
//!
//! Owns: these three, their makers, which a table's jobs and searches share (`makers`), their
//! filling beside reads (`filling`), and the bounds from which on they are used (`bounds`).
//! Does not own: which rows are the newest, scores and distances (`search`), or filters (`plan`).

mod bounds;
mod filling;
mod makers;
mod scalars;
mod texts;
mod vectors;

pub use bounds::{min_ordered_rows, min_vector_bytes, set_bounds};
pub use filling::filled_so_far;
pub use makers::{IndexMakers, orders_of};
pub use scalars::{MakeOrder, MemoryOrder, Wanted};
pub use texts::{MakeTexts, MemoryTexts, Terms, is_inverted, is_text, recorded_params};
pub use vectors::{MakeLists, MemoryLists, Probes, has_vector};
