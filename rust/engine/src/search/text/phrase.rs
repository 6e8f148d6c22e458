//! Whether a text has a phrase, by the positions of its terms.
//!
//! Owns: the rule, which is that of Lance's indexes, so that an indexed row and a row without an
//! index are found alike.
//! Does not own: positions.

/// Whether the terms occur in their order. Each term has its positions in the text, ascending, and
/// its position in the phrase, in the order of the phrase. Between two terms may lie as many
/// positions as the phrase has between them, and up to `slop` more.
pub(super) fn is_in(terms: &[(&[u32], u32)], slop: u32) -> bool {
    // Relative to the phrase, the positions of a match are equal, or ascend by up to `slop`.
    let relative = |(positions, place): &(&[u32], u32)| -> Vec<i64> {
        positions.iter().map(|position| i64::from(*position) - i64::from(*place)).collect()
    };
    let mut terms = terms.iter();
    let Some(mut reached) = terms.next().map(relative) else { return false };
    for term in terms {
        let follows = |next: &i64| {
            reached.iter().any(|last| *last <= *next && *next <= *last + i64::from(slop))
        };
        reached = relative(term).into_iter().filter(follows).collect();
    }
    !reached.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_in_order_and_with_its_gaps() {
        let (quick, fox): (&[u32], &[u32]) = (&[1, 7], &[3, 8]);
        assert!(is_in(&[(quick, 0), (fox, 1)], 0), "7 and 8");
        assert!(!is_in(&[(fox, 0), (quick, 1)], 0));
        assert!(is_in(&[(quick, 0), (fox, 2)], 0), "1 and 3");
        assert!(!is_in(&[(&[1], 0), (&[4], 1)], 1));
        assert!(is_in(&[(&[1], 0), (&[4], 1)], 2));
        assert!(!is_in(&[(&[1], 0), (&[], 1)], 9));
        assert!(!is_in(&[], 0));
    }

    #[test]
    fn a_repeated_word_needs_two_places() {
        assert!(!is_in(&[(&[4], 0), (&[4], 1)], 0));
        assert!(is_in(&[(&[4, 5], 0), (&[4, 5], 1)], 0));
    }
}
