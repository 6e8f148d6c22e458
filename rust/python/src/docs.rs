//! What `help` says: the docstrings of the stub.
//!
//! Owns: how a function, method or class names its docstring. Does not own: the text, which is the
//! stub's (`build.rs`).

/// The docstring of the function `f`, of the method `C.m` or of the class `C`.
macro_rules! docstring {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/docstrings/", $name))
    };
}

pub(crate) use docstring;
