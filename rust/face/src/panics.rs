//! Panics below a call, as errors.
//!
//! Owns: the error of a panic. A panic must not unwind into frames of another language.
//! Does not own: the unwinding, which stops where a call is polled (`call`).

use std::any::Any;

use lancemem::{Error, FEW_THREADS, NO_THREAD};

/// The error of a panic. Lance's readers panic on some damaged files.
pub fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    if text.contains(NO_THREAD) {
        return Error::storage("starting a thread", FEW_THREADS);
    }
    Error::internal(format!("panic: {text}; if the call was reading a file, it may be damaged"))
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, panic_any};

    use lancemem::ErrorKind;

    use super::*;

    fn error_of(call: impl FnOnce() + std::panic::UnwindSafe) -> Error {
        panicked(&*catch_unwind(call).expect_err("a call that panics"))
    }

    #[test]
    fn a_panic_is_an_internal_error_with_its_message() {
        let fixed = error_of(|| panic!("page 7"));
        let formatted = error_of(|| panic_any(format!("page {}", 7)));
        let without = error_of(|| panic_any(7));
        assert_eq!(
            fixed.to_string(),
            "internal error: panic: page 7; if the call was reading a file, it may be damaged"
        );
        assert_eq!(formatted.to_string(), fixed.to_string());
        assert!(without.to_string().contains("panic: no message;"), "{without}");
        assert_eq!(fixed.kind(), ErrorKind::Internal);
    }

    #[test]
    fn a_panic_for_want_of_a_thread_asks_for_a_retry() {
        let error = error_of(|| panic_any(format!("{NO_THREAD}: os error 11")));
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(error.to_string().contains(FEW_THREADS), "{error}");
    }
}
