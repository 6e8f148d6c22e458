//! Known bugs, put back in on demand, so that the tests show that they catch them.
//!
//! Owns: the switch. Does not own: the bugs; each stands at its place, behind `mutant!`.
//!
//! Only a build with `--cfg lancemem_mutants`, or with the feature `mutants`, has them, and there
//! the variable `LANCEMEM_MUTANT` names the active bug. In every other build `mutant!` is the
//! constant `false`, and the code behind it is compiled to nothing. The catalogue is in
//! docs/guarantees.md.

/// Whether the bug of this name is to be back.
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_awake($name)
    };
}

/// Whether `LANCEMEM_MUTANT` names this bug.
#[cfg(any(lancemem_mutants, feature = "mutants"))]
pub fn is_awake(name: &str) -> bool {
    static AWAKE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    AWAKE.get_or_init(|| std::env::var("LANCEMEM_MUTANT").ok()).as_deref() == Some(name)
}

/// No bug is ever back in this build.
#[cfg(not(any(lancemem_mutants, feature = "mutants")))]
pub const fn is_awake(_name: &str) -> bool {
    false
}
