//! Docstrings, as `help` shows them: those of the stub.
//!
//! Owns: the macro by which a function, method or class includes its docstring. Does not own: the
//! texts, which `build.rs` extracts from the stub.

/// The docstring of the function `f`, of the method `C.m` or of the class `C`. A macro that has the
/// class as an identifier passes that.
macro_rules! docstring {
    ($name:ident) => {
        include_str!(concat!(env!("OUT_DIR"), "/docstrings/", stringify!($name)))
    };
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/docstrings/", $name))
    };
}

pub(crate) use docstring;
