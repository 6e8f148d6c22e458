//! What `help` says: the docstrings of the stub.
//!
//! Owns: how a function or method names its docstring. Does not own: the text, which is the stub's
//! (`build.rs`).

/// The docstring of the function `f` or of the method `C.m`.
macro_rules! docstring {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/docstrings/", $name))
    };
}

pub(crate) use docstring;
