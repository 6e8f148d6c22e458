//! Settings of an object store: the options of a call, and the environment for all others.
//!
//! Owns: which values are secret, and the refusal of values that cannot work.
//! Does not own: the meaning of a setting, or settings that only Lance reads.

use std::collections::{HashMap, HashSet};

use http::Uri;
use lancemem_core::store::hide;
use lancemem_core::types::{Error, Result};
use url::Url;

/// Parts of the names of options whose values are secret.
const SECRET: &[&str] = &["secret", "token", "password", "key", "credential", "sas", "auth"];

/// Hides the values of settings with secret names from all errors and log lines.
pub(super) fn hide_secrets<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, value) in settings {
        let name = name.to_ascii_lowercase();
        if SECRET.iter().any(|part| name.contains(part)) {
            hide(value);
        }
    }
}

/// Refuses settings, from options or from the environment, on which the store's client panics, or
/// which it would retry for seconds in vain. Hides secrets of the environment.
pub(super) fn check_settings(options: &HashMap<String, String>) -> Result<()> {
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        Some((
            name.into_string().ok().filter(|it| it.starts_with("AWS_"))?,
            value.into_string().ok().filter(|it| !it.is_empty())?,
        ))
    });
    let environment: Vec<(String, String)> = environment.collect();
    hide_secrets(environment.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    // An option overrides the environment.
    let named: HashSet<&str> = options.keys().filter_map(|name| setting(name)).collect();
    let others =
        environment.iter().filter(|(name, _)| setting(name).is_some_and(|it| !named.contains(it)));
    let settings: Vec<(&String, &String)> =
        options.iter().chain(others.map(|(name, value)| (name, value))).collect();
    let may_be_http = settings.iter().any(|(name, value)| {
        let value = value.to_ascii_lowercase();
        setting(name) == Some(ALLOW_HTTP)
            && matches!(value.as_str(), "1" | "true" | "on" | "yes" | "y")
    });
    settings.into_iter().try_for_each(|(name, value)| {
        check_setting(setting(name), value, may_be_http)
            .map_err(|why| Error::input(format!("the setting '{name}' of the object store {why}")))
    })
}

const ALLOW_HTTP: &str = "allow_http";
const ENDPOINT: &str = "endpoint";

/// The canonical name of a setting that is checked; `None` for other settings.
fn setting(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    match name.trim_start_matches("aws_") {
        "access_key_id" => Some("access_key_id"),
        "secret_access_key" => Some("secret_access_key"),
        "session_token" | "token" => Some("session_token"),
        "region" | "default_region" => Some("region"),
        "endpoint" | "endpoint_url" | "endpoint_url_s3" => Some(ENDPOINT),
        other => other.contains(ALLOW_HTTP).then_some(ALLOW_HTTP),
    }
}

fn check_setting(
    setting: Option<&str>,
    value: &str,
    may_be_http: bool,
) -> std::result::Result<(), &'static str> {
    if setting.is_some() && (value.chars().any(char::is_control) || value.trim() != value) {
        return Err("has a control character, or a space at its start or end");
    }
    // The value is sent in an HTTP header.
    if setting.is_some() && !value.is_ascii() {
        return Err("has a character outside of ASCII");
    }
    if setting != Some(ENDPOINT) {
        return Ok(());
    }
    let (scheme, address) = value.split_once("://").unwrap_or_default();
    let host = address.split('/').next().unwrap_or_default();
    if let Some((user, _)) = host.rsplit_once('@') {
        hide(user);
        user.split(':').for_each(hide);
    }
    match scheme.to_ascii_lowercase().as_str() {
        "https" | "http" if host.is_empty() => Err("has no host"),
        "https" | "http" if !is_address(value) => Err("must be a URL such as https://host:port"),
        "https" => Ok(()),
        "http" if may_be_http => Ok(()),
        "http" => {
            Err("is without TLS; set 'allow_http' (AWS_ALLOW_HTTP in the environment) to true")
        }
        _ => Err("must be a URL such as https://host:port"),
    }
}

/// Whether both URL parsers of the client accept the value: they panic on a malformed one.
fn is_address(value: &str) -> bool {
    let has_path_only = |url: &Url| url.query().is_none() && url.fragment().is_none();
    Url::parse(value).is_ok_and(|url| url.has_host() && has_path_only(&url))
        && value.parse::<Uri>().is_ok_and(|uri| uri.host().is_some())
}

#[cfg(test)]
mod tests {
    use lancemem_core::store::scrub;

    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_by_their_names() {
        for (name, value, fits) in [
            ("aws_region", "eu-west-1", true),
            ("aws_region", "eu-west-1\n", false),
            ("aws_access_key_id", " key", false),
            ("aws_endpoint", "https://host:9000", true),
            ("AWS_Endpoint", "HTTPS://[::1]:9000/path@x", true),
            ("something_else", "a\nb ", true),
            ("aws_endpoint", "host:9000", false),
            ("aws_endpoint", "https://127.0.0.1:99999", false),
            ("aws_endpoint", "https://127.0.0.1:port", false),
            ("aws_endpoint", "https://a b:1", false),
            ("aws_endpoint", "https://[::1", false),
            ("aws_endpoint", "https://user:pass/word@host:9000", false),
            ("aws_endpoint", "https://user:p\u{e4}ss@host", false),
            ("aws_endpoint", "https://host:9000?a=b", false),
            ("aws_session_token", "t\u{f6}ken", false),
            ("endpoint_url", "", false),
            ("aws_endpoint", "http://user:never-this-one@host", false),
        ] {
            let checked = check_settings(&[(name.to_owned(), value.to_owned())].into());
            assert_eq!(checked.is_ok(), fits, "{name} = {value}");
            assert!(
                checked.map_err(|error| error.to_string()).err().is_none_or(|it| it.contains(name))
            );
        }
        assert_eq!(scrub("never-this-one"), "******");
    }

    #[test]
    fn a_secret_is_hidden_as_servers_repeat_it_too() {
        hide_secrets([("aws_session_token", "FwoGZX/I+v==&<tok>")].into_iter());
        for spelling in [
            "FwoGZX/I+v==&<tok>",
            "FwoGZX%2FI%2Bv%3D%3D%26%3Ctok%3E",
            "FwoGZX%2fI%2bv%3d%3d%26%3ctok%3e",
            "FwoGZX/I%2Bv%3D%3D%26%3Ctok%3E",
            "FwoGZX/I+v==&amp;&lt;tok&gt;",
        ] {
            assert_eq!(scrub(&format!("refused: {spelling}.")), "refused: ******.");
        }
    }
}
