//! Values that no message may show: keys and tokens of an object store.
//!
//! Owns: the values that this process was given, and a text without them. A store's own words
//! can carry them: S3 answers an expired token with that token.
//! Does not own: which settings are secret; who takes them says so.

use std::borrow::Cow;
use std::collections::VecDeque;

use parking_lot::RwLock;

use crate::types::PerProcess;

/// Shorter values protect nothing, and texts would lose ordinary words.
const SHORTEST: usize = 8;
const SHOWN: &str = "******";
/// Values that are hidden at most, the newest: a process that lives for months is given a new token
/// every hour.
const MOST: usize = 4_000;

static HIDDEN: PerProcess<RwLock<VecDeque<String>>> = PerProcess::new(RwLock::default);

/// Keeps `value` out of every text that [`scrub`] returns from now on.
pub fn hide(value: &str) {
    if value.len() < SHORTEST {
        return;
    }
    let mut hidden = HIDDEN.get().write();
    // What is used again is the newest again.
    hidden.retain(|known| known != value);
    if hidden.len() == MOST {
        hidden.pop_front();
    }
    hidden.push_back(value.to_owned());
}

/// `text` without hidden values.
pub fn scrub(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    for value in HIDDEN.get().read().iter() {
        if shown.contains(value.as_str()) {
            shown = Cow::Owned(shown.replace(value.as_str(), SHOWN));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_value_is_in_no_text_and_a_short_one_is_not_hidden() {
        hide("wJalrXUtnFEMI-secret");
        hide("table");
        let text = "table: <Token-0>wJalrXUtnFEMI-secret</Token-0>";
        assert_eq!(scrub(text), "table: <Token-0>******</Token-0>");
        assert!(matches!(scrub("nothing to see"), Cow::Borrowed(_)));
    }
}
