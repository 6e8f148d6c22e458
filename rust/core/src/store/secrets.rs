//! Values that no message may show: keys and tokens of an object store.
//!
//! Owns: the values that this process was given, and their removal from a text, in every spelling
//! that servers use. A store's message can carry them: S3 answers an expired token with that token.
//! Does not own: which settings are secret; the code that takes a secret calls [`hide`].

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Write;
use std::ops::Range;

use parking_lot::RwLock;

use crate::types::PerProcess;

/// Shorter values protect nothing, and texts would lose ordinary words.
const MIN_BYTES: usize = 8;
const SHOWN: &str = "******";
/// Values that are hidden at most, the newest: a process that lives for months is given a new token
/// every hour.
const MAX_SECRETS: usize = 4_000;
/// How many layers of escapes are undone: an answer may quote another answer.
const MAX_ESCAPED: usize = 3;
/// The most bytes of a name or a number in an entity.
const MAX_ENTITY_BYTES: usize = 8;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64_OF_URLS: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static HIDDEN: PerProcess<RwLock<VecDeque<Secret>>> = PerProcess::new(RwLock::default);

/// A value that is hidden, and what else it is written as.
#[derive(Clone)]
struct Secret {
    value: String,
    /// In base64, at each of the three byte alignments that it can have in the encoded text.
    base64: Vec<String>,
    /// In hexadecimal, with small letters.
    hex: String,
}

impl Secret {
    fn new(value: &str) -> Self {
        let mut base64 = Vec::new();
        for before in 0..3 {
            for alphabet in [BASE64, BASE64_OF_URLS] {
                let spelling = base64_within(value.as_bytes(), before, alphabet);
                if !base64.contains(&spelling) {
                    base64.push(spelling);
                }
            }
        }
        let mut hex = String::with_capacity(2 * value.len());
        for byte in value.bytes() {
            // Never fails: a `String` takes everything.
            let _ = write!(hex, "{byte:02x}");
        }
        Self { value: value.to_owned(), base64, hex }
    }
}

/// The base64 of `value` behind `before` bytes, without the characters that depend on its
/// neighbours.
fn base64_within(value: &[u8], before: usize, alphabet: &[u8; 64]) -> String {
    let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(value.iter().copied()).collect();
    let bit = |at: usize| (bytes[at / 8] >> (7 - at % 8)) & 1;
    let characters = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
    characters
        .map(|at| {
            let six = (0..6).fold(0_u8, |six, place| (six << 1) | bit(at * 6 + place));
            char::from(alphabet[usize::from(six)])
        })
        .collect()
}

/// Keeps `value` out of every text that [`scrub`] returns from now on, also in base64, in
/// hexadecimal, and with any of its characters escaped as in addresses, in XML or in JSON.
pub fn hide(value: &str) {
    if value.len() < MIN_BYTES {
        return;
    }
    let mut hidden = HIDDEN.get().write();
    // What is used again is the newest again.
    let known = hidden.iter().position(|known| known.value == value);
    let secret = known.and_then(|place| hidden.remove(place));
    if hidden.len() == MAX_SECRETS {
        hidden.pop_front();
    }
    hidden.push_back(secret.unwrap_or_else(|| Secret::new(value)));
}

/// `text` without hidden values.
pub fn scrub(text: &str) -> Cow<'_, str> {
    let hidden = HIDDEN.get().read();
    if hidden.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut places = Vec::new();
    let mut read = Some(Read::of(text));
    for _ in 0..=MAX_ESCAPED {
        let Some(now) = read else { break };
        now.find(&hidden, &mut places);
        read = now.unescaped();
    }
    without(text, places)
}

/// `text` without what is at `places`.
fn without(text: &str, mut places: Vec<Range<usize>>) -> Cow<'_, str> {
    if places.is_empty() {
        return Cow::Borrowed(text);
    }
    places.sort_by_key(|place| place.start);
    let (mut shown, mut through) = (String::with_capacity(text.len()), 0);
    for place in places {
        if place.start >= through {
            shown.push_str(&text[through..place.start]);
            shown.push_str(SHOWN);
        }
        through = through.max(place.end);
    }
    shown.push_str(&text[through..]);
    Cow::Owned(shown)
}

/// A text some of whose escapes were undone.
struct Read<'a> {
    text: Cow<'a, str>,
    /// For each byte its offset in the original text, then the end of that text; empty for the
    /// original text itself.
    origins: Vec<usize>,
}

impl<'a> Read<'a> {
    const fn of(text: &'a str) -> Self {
        Self { text: Cow::Borrowed(text), origins: Vec::new() }
    }

    fn origin(&self, at: usize) -> usize {
        self.origins.get(at).copied().unwrap_or(at)
    }

    /// Adds the ranges of hidden values in the original text.
    fn find(&self, hidden: &VecDeque<Secret>, places: &mut Vec<Range<usize>>) {
        let small = self.text.to_ascii_lowercase();
        let mut add = |text: &str, spelling: &str| {
            places.extend(
                text.match_indices(spelling)
                    .map(|(from, found)| self.origin(from)..self.origin(from + found.len())),
            );
        };
        for secret in hidden {
            add(&self.text, &secret.value);
            secret.base64.iter().for_each(|spelling| add(&self.text, spelling));
            add(&small, &secret.hex);
        }
    }

    /// The same with each escape undone; nothing where it has none.
    fn unescaped(&self) -> Option<Self> {
        if !self.text.contains(['%', '&', '\\']) {
            return None;
        }
        let (mut text, mut origins) = (String::with_capacity(self.text.len()), Vec::new());
        let (mut rest, mut at) = (&*self.text, 0);
        while let Some(next) = rest.chars().next() {
            let (sign, length) = escaped(rest).unwrap_or((next, next.len_utf8()));
            text.push(sign);
            origins.extend((0..sign.len_utf8()).map(|_| self.origin(at)));
            at += length;
            rest = &rest[length..];
        }
        origins.push(self.origin(at));
        (text.len() != self.text.len()).then_some(Self { text: Cow::Owned(text), origins })
    }
}

/// The ASCII character that `text` begins with in an escaped form, and the length of that form.
fn escaped(text: &str) -> Option<(char, usize)> {
    let number = |digits: &str, radix: u32| {
        let is_number = digits.bytes().all(|digit| char::from(digit).is_digit(radix));
        let number = u8::from_str_radix(digits, radix).ok().filter(|_| is_number);
        number.filter(u8::is_ascii).map(char::from)
    };
    if let Some(rest) = text.strip_prefix('%') {
        return Some((number(rest.get(..2)?, 16)?, 3));
    }
    if let Some(rest) = text.strip_prefix("\\u") {
        let digits = rest.get(..4)?.strip_prefix("00")?;
        return Some((number(digits, 16)?, 6));
    }
    if let Some(rest) = text.strip_prefix('\\') {
        let sign = rest.chars().next().filter(|sign| ['/', '"', '\'', '\\'].contains(sign))?;
        return Some((sign, 2));
    }
    let rest = text.strip_prefix('&')?;
    let end = rest.bytes().take(MAX_ENTITY_BYTES + 1).position(|sign| sign == b';')?;
    let name = &rest[..end];
    let sign = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let digits = name.strip_prefix('#')?;
            let hex = digits.strip_prefix(['x', 'X']);
            let digits = hex.unwrap_or(digits).trim_start_matches('0');
            number(digits, if hex.is_some() { 16 } else { 10 })?
        }
    };
    Some((sign, end + 2))
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

    #[test]
    fn a_hidden_value_is_hidden_however_its_characters_are_escaped() {
        hide("Fwo/GZ+X==&<tok>\"'");
        for spelling in [
            "Fwo%2FGZ%2BX%3D%3D%26%3Ctok%3E%22%27",
            "Fwo%2fGZ%2bX%3d%3d%26%3ctok%3e\"'",
            "Fwo/GZ+X==&amp;&lt;tok&gt;&quot;&apos;",
            "Fwo&#47;GZ&#43;X&#61;&#61;&#38;&#60;tok&#62;&#34;&#39;",
            "Fwo&#x2F;GZ&#x2b;X&#x3D;&#X3d;&#x0026;&#x3c;tok&#x3e;&#x22;&#x27;",
            "&#70;&#119;&#111;&#47;GZ+X==&#38;&#60;tok>\"'",
            "Fwo\\/GZ+X==\\u0026\\u003ctok\\u003E\\\"\\'",
            "Fwo%252FGZ%252BX%253D%253D%2526%253Ctok%253E%2522%2527",
            "Fwo/GZ+X==&amp;amp;&amp;lt;tok&amp;gt;&amp;quot;&amp;#39;",
        ] {
            assert_eq!(scrub(&format!("50 % \u{e4} {spelling}.")), "50 % \u{e4} ******.");
        }
    }

    #[test]
    fn a_hidden_value_is_hidden_in_hexadecimal() {
        hide("FwoGZXIvYXdzEJr/+//");
        for hex in
            ["46776f475a5849765958647a454a722f2b2f2f", "46776F475A5849765958647A454A722F2B2F2F"]
        {
            assert_eq!(scrub(&format!("<Bytes>{hex}</Bytes>")), "<Bytes>******</Bytes>");
        }
    }

    #[test]
    fn a_hidden_value_is_hidden_in_base64_wherever_it_begins() {
        hide("FwoGZXIvYXdzEJr/+//");
        // Of ":", "a:" and "ab:" before it and ":b" behind it.
        for text in [
            "OkZ3b0daWEl2WVhkekVKci8rLy86Yg==",
            "YTpGd29HWlhJdllYZHpFSnIvKy8vOmI=",
            "YWI6RndvR1pYSXZZWGR6RUpyLysvLzpi",
        ] {
            for text in [
                text.to_owned(),
                text.replace('/', "_").replace('+', "-"),
                text.replace('+', "%2B").replace('/', "&#47;"),
            ] {
                let shown = scrub(&text).into_owned();
                assert!(shown.contains(SHOWN) && shown.len() < 16, "{text}: {shown}");
            }
        }
    }

    #[test]
    fn a_text_with_escapes_that_are_none_stays_as_it_is() {
        hide("never-shown-value");
        for text in
            ["100%", "%zz %4", "&amp &; &#; &#x; &unknown; &#9999999;", "\\", "\\u12", "%+4"]
        {
            assert_eq!(scrub(text), text);
        }
    }
}
