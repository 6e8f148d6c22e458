//! The bearer token of an endpoint.
//!
//! Owns: generating a token, comparing tokens in constant time, and keeping them out of all output.
//! Does not own: how a token travels; that is gRPC metadata, over TLS where the network is not
//! trusted.

use std::fmt;
use std::hint::black_box;

use lancemem_core::store::hide;
use lancemem_core::types::{Error, Result};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// The metadata key of the token in a call.
pub(crate) const HEADER: &str = "authorization";
/// Hexadecimal digits of a generated token: 256 bits.
const DIGITS: usize = 64;
/// A shorter token could be guessed.
const MIN_CHARACTERS: usize = 16;
/// A longer token does not fit into the headers that a server accepts.
const MAX_CHARACTERS: usize = 4_096;

/// The secret that gives access to a job's rows.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A new token with 256 random bits.
    #[must_use]
    pub fn generate() -> Self {
        let mut digits = String::with_capacity(3 * 30);
        while digits.len() < DIGITS {
            #[expect(clippy::disallowed_methods, reason = "a secret must not be seeded")]
            let random = uuid::Uuid::new_v4().simple().to_string();
            // Without the two digits for version and variant, which are not random.
            digits.push_str(&random[..12]);
            digits.push_str(&random[13..16]);
            digits.push_str(&random[17..]);
        }
        digits.truncate(DIGITS);
        hide(&digits);
        Self(digits)
    }

    /// The token with the given text.
    ///
    /// # Errors
    /// An input error, which does not show the text, for less than 16 characters, more than 4,096,
    /// or characters that are not visible ASCII.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let fits = (MIN_CHARACTERS..=MAX_CHARACTERS).contains(&text.len());
        if !fits || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::input(format!(
                "a token has at least {MIN_CHARACTERS} characters and at most {MAX_CHARACTERS}, all of them visible \
                 ASCII"
            )));
        }
        hide(&text);
        Ok(Self(text))
    }

    /// The token as text, to hand it to a reader.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The token as a call carries it.
    pub(crate) fn header(&self) -> Result<MetadataValue<Ascii>> {
        let mut value = MetadataValue::try_from(format!("Bearer {}", self.0))
            .map_err(|_| Error::input("the token cannot be sent as a header"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Whether a call carries this token. The time of the comparison does not depend on the token's
    /// bytes, so a caller cannot guess them one by one.
    pub(crate) fn is_carried_by(&self, metadata: &MetadataMap) -> bool {
        let Some(value) = metadata.get(HEADER) else { return false };
        let Some((scheme, given)) = value.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && self.equals(given)
    }

    fn equals(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        if own.len() != given.len() {
            return false;
        }
        let difference = own.iter().zip(given).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
        difference == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(******)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carrying(value: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert(HEADER, value.parse().unwrap());
        metadata
    }

    #[test]
    fn two_generated_tokens_differ_and_none_is_shown() {
        let (one, two) = (Token::generate(), Token::generate());
        assert_eq!(one.reveal().len(), DIGITS);
        assert!(one.reveal().bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(one.reveal(), two.reveal());
        assert!(!format!("{one:?}").contains(one.reveal()));
        assert!(
            !lancemem_core::store::scrub(&format!("a {} b", one.reveal())).contains(one.reveal())
        );
    }

    #[test]
    fn only_the_whole_token_opens() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is_carried_by(&carrying("Bearer 0123456789abcdef")));
        assert!(token.is_carried_by(&carrying("bearer 0123456789abcdef")));
        for wrong in ["", "Bearer", "Bearer ", "Bearer 0123456789abcdeF", "Basic  0123456789abcdef"]
        {
            assert!(!token.is_carried_by(&carrying(wrong)), "{wrong}");
        }
        assert!(!token.is_carried_by(&carrying("Bearer 0123456789abcdef0")));
        assert!(!token.is_carried_by(&MetadataMap::new()));
        let error = Token::new("short-secret").unwrap_err().to_string();
        assert!(!error.contains("short-secret"), "{error}");
        assert!(Token::new("x".repeat(MAX_CHARACTERS)).is_ok());
        assert!(Token::new("x".repeat(MAX_CHARACTERS + 1)).is_err());
    }
}
