//! Durations and rates as arguments.
//!
//! Owns: their Python forms: a timedelta or a number, or the word for "no limit", for which zero is
//! refused.
//! Does not own: the settings that use them.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDelta;

use crate::arguments::{Given, wrong};
use crate::values::Repr;

/// The word that switches the idle flush off.
const NEVER: &str = "never";
/// The word for a rate without a limit.
const UNLIMITED: &str = "unlimited";

/// A duration in whole milliseconds, in which the settings of a table are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub Duration);

/// How long something was left alone, or is to be kept.
pub struct Span(Duration);

impl Span {
    /// The duration of the argument `name`.
    pub fn of(given: Option<Given<Self>>, name: &str) -> PyResult<Option<Duration>> {
        given.map(|span| span.named(name).map(|span| span.0)).transpose()
    }
}

/// How long a MemTable may get no put before it is flushed; the engine's zero is `NEVER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleInterval(pub Duration);

/// Bytes a second; the engine's zero is `UNLIMITED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

impl FromPyObject<'_, '_> for Given<Span> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if given.cast::<PyDelta>().is_err() {
            return wrong(given, "a timedelta, such as timedelta(hours=1)");
        }
        Ok(Self(positive(given).map(Span)))
    }
}

impl FromPyObject<'_, '_> for Given<Millis> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if given.cast::<PyDelta>().is_err() {
            return wrong(given, "a timedelta, such as timedelta(seconds=5)");
        }
        Ok(Self(millis(given).map(Millis)))
    }
}

impl FromPyObject<'_, '_> for Given<IdleInterval> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(word) = given.extract::<String>() {
            return Ok(Self(if word == NEVER {
                Ok(IdleInterval(Duration::ZERO))
            } else {
                Err(format!("expected a timedelta or '{NEVER}', got '{word}'"))
            }));
        }
        if given.cast::<PyDelta>().is_err() {
            return wrong(given, "a timedelta, such as timedelta(seconds=5), or 'never'");
        }
        Ok(Self(millis(given).and_then(|duration| {
            if duration.is_zero() {
                return Err(format!("expected a duration above 0; '{NEVER}' switches it off"));
            }
            Ok(IdleInterval(duration))
        })))
    }
}

impl FromPyObject<'_, '_> for Given<Rate> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(word) = given.extract::<String>() {
            return Ok(Self(if word == UNLIMITED {
                Ok(Rate(0))
            } else {
                Err(format!("expected a number or '{UNLIMITED}', got '{word}'"))
            }));
        }
        let number = given.extract::<Given<u64>>()?;
        Ok(Self(number.0.and_then(|number| match number {
            0 => Err(format!("expected a number from 1, got 0; '{UNLIMITED}' is no limit")),
            rate => Ok(Rate(rate)),
        })))
    }
}

/// The duration of a timedelta, or the reason why it is refused.
fn positive(given: Borrowed<'_, '_, PyAny>) -> Result<Duration, String> {
    let duration = given.extract::<Duration>();
    duration.map_err(|_| format!("expected a duration from 0, {} is too small", text(given)))
}

/// As [`positive`], in whole milliseconds.
fn millis(given: Borrowed<'_, '_, PyAny>) -> Result<Duration, String> {
    let duration = positive(given)?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(format!("expected whole milliseconds, got {}", text(given)));
    }
    Ok(duration)
}

fn text(given: Borrowed<'_, '_, PyAny>) -> String {
    given.str().map_or_else(|_| "it".to_owned(), |text| text.to_string())
}

impl<'py> IntoPyObject<'py> for &Millis {
    type Target = PyDelta;
    type Output = Bound<'py, PyDelta>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        self.0.into_pyobject(py)
    }
}

impl<'py> IntoPyObject<'py> for &IdleInterval {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        if self.0.is_zero() {
            return Ok(NEVER.into_pyobject(py)?.into_any());
        }
        Ok(self.0.into_pyobject(py)?.into_any())
    }
}

impl<'py> IntoPyObject<'py> for &Rate {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        if self.0 == 0 {
            return Ok(UNLIMITED.into_pyobject(py)?.into_any());
        }
        Ok(self.0.into_pyobject(py)?.into_any())
    }
}

impl Repr for Millis {
    fn repr(&self) -> String {
        const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
        let (days, seconds) =
            (self.0.as_secs() / SECONDS_PER_DAY, self.0.as_secs() % SECONDS_PER_DAY);
        let parts = [
            ("days", days),
            ("seconds", seconds),
            ("microseconds", u64::from(self.0.subsec_micros())),
        ];
        let parts = parts.iter().filter(|(_, value)| *value > 0);
        let parts: Vec<String> = parts.map(|(name, value)| format!("{name}={value}")).collect();
        let parts = if parts.is_empty() { "0".to_owned() } else { parts.join(", ") };
        format!("datetime.timedelta({parts})")
    }
}

impl Repr for IdleInterval {
    fn repr(&self) -> String {
        if self.0.is_zero() { NEVER.to_owned().repr() } else { Millis(self.0).repr() }
    }
}

impl Repr for Rate {
    fn repr(&self) -> String {
        if self.0 == 0 { UNLIMITED.to_owned().repr() } else { self.0.repr() }
    }
}
