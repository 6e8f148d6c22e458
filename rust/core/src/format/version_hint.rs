//! `version_hint.json`: where to begin to look for the newest manifest of a shard.
//!
//! Owns: the text, as lance 14.0.2 writes it.
//! Does not own: which version is newest. Only the manifests decide that: a hint may be old,
//! missing or wrong.

use crate::types::ManifestVersion;

/// The text of the file.
#[must_use]
pub fn encode(version: ManifestVersion) -> String {
    format!("{{\"version\":{version}}}")
}

/// The version in the bytes of the file; `None` where they hold no number, which costs a listing.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<ManifestVersion> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok().map(ManifestVersion)
}
