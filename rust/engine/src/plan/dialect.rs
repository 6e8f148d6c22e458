//! The SQL of conditions and expressions.
//!
//! Owns: how DataFusion reads names, numbers and times in it.
//! Does not own: types (`filter`, `numerals`), or when a text is parsed.

use datafusion::prelude::{SessionConfig, SessionContext};

/// A session whose SQL keeps the case of names, as Arrow and Lance do, and all digits of numbers.
/// In it `now()` and `TIMESTAMPTZ` are instants.
pub fn session() -> SessionContext {
    let config = SessionConfig::new()
        .set_bool("datafusion.sql_parser.enable_ident_normalization", false)
        .set_bool("datafusion.sql_parser.parse_float_as_decimal", true)
        .set_str("datafusion.execution.time_zone", "UTC");
    SessionContext::new_with_config(config)
}
