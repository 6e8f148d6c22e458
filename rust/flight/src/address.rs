//! The address of an endpoint.
//!
//! Owns: the forms of a Flight location.
//! Does not own: sockets.

use lancemem_core::types::{Error, Result};

/// A Flight location: `grpc://host:port`, `grpc+tcp://host:port` or `grpc+tls://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Whether the location asks for TLS.
    pub tls: bool,
    /// Host and port.
    pub authority: String,
}

impl Address {
    /// Reads a location.
    pub fn parse(location: &str) -> Result<Self> {
        let refused = || {
            Error::input(format!(
                "'{location}' is not a Flight location; use grpc://host:port or \
                 grpc+tls://host:port"
            ))
        };
        let (scheme, rest) = location.split_once("://").ok_or_else(refused)?;
        let tls = match scheme {
            "grpc" | "grpc+tcp" => false,
            "grpc+tls" => true,
            _ => return Err(refused()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').ok_or_else(refused)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
        if host.is_empty() || !host.chars().all(is_plain) || port.parse::<u16>().is_err() {
            return Err(refused());
        }
        Ok(Self { tls, authority: authority.to_owned() })
    }

    /// The location as Flight writes it.
    pub fn location(&self) -> String {
        format!("{}://{}", if self.tls { "grpc+tls" } else { "grpc" }, self.authority)
    }

    /// The same address as an HTTP URL.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_and_anything_else_is_refused_by_name() {
        for (text, tls) in [
            ("grpc://127.0.0.1:0", false),
            ("grpc+tcp://host-1.local:81", false),
            ("grpc+tls://[::1]:443/", true),
        ] {
            assert_eq!(Address::parse(text).unwrap().tls, tls);
        }
        for text in ["", "127.0.0.1:1", "http://a:1", "grpc://a", "grpc://:1", "grpc://a:70000"] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
        assert!(Address::parse("grpc://user@host:1").is_err());
    }
}
