//! Who has signed in: a cookie that names the token and is signed with the ledger's keys, so that every gateway of the fleet reads it and none
//! has to remember it. The token itself is not in it, and is looked at each time: one that is revoked has signed out.

use std::sync::{Mutex, PoisonError};

use axum::http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, HOST},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fleet::wire::file_url::FileKeys;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// The cookie.
const NAME: &str = "toolfleet_console";
/// What is signed.
const WHAT: &str = "toolfleet console session";
/// How long somebody is signed in.
pub(super) const HOLDS: Duration = Duration::hours(12);
/// The most characters of one.
const CHARACTERS_MAX: usize = 512;
/// How many links that sign in once are known at a time.
const LINKS_MAX: usize = 64;

/// The cookie's value for this token, from now on.
pub(super) fn sealed(token_id: &str, keys: &FileKeys, now: OffsetDateTime) -> String {
    let until = (now + HOLDS).unix_timestamp();
    let text = URL_SAFE_NO_PAD.encode(format!("{until} {token_id}"));
    let signature = keys.sign_other(WHAT, &text);
    format!("{text}.{signature}")
}

/// The id of the token that a value names. `None`: no key of this fleet has signed it, or its time is over.
pub(super) fn opened(value: &str, keys: &FileKeys, now: OffsetDateTime) -> Option<String> {
    let (text, signature) = value.split_once('.')?;
    if value.len() > CHARACTERS_MAX || !keys.have_signed_other(WHAT, text, signature) {
        return None;
    }
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (until, token_id) = text.split_once(' ')?;
    let until: i64 = until.parse().ok()?;
    (now.unix_timestamp() < until).then(|| token_id.to_owned())
}

/// The value of this name among the cookies of a request; of several the first.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

/// The value that says who has signed in.
pub(super) fn value(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, NAME)
}

/// The header that signs in, or, with no value, out.
pub(super) fn set_cookie(value: Option<&str>, headers: &HeaderMap) -> HeaderValue {
    let (value, age) = match value {
        Some(value) => (value, HOLDS.whole_seconds()),
        None => ("", 0),
    };
    kept_cookie(NAME, value, age, headers)
}

/// The header that has a browser send this value to the console, for so many seconds.
pub(super) fn kept_cookie(
    name: &str,
    value: &str,
    seconds: i64,
    headers: &HeaderMap,
) -> HeaderValue {
    let secure = if is_loopback(headers) { "" } else { "; Secure" };
    let line = format!(
        "{name}={value}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    );
    HeaderValue::try_from(line).expect("a cookie has only visible characters")
}

/// Whether the console is asked by a name of this machine itself, for which browsers keep cookies without TLS.
pub(super) fn is_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_matches(['[', ']']);
    name == "localhost"
        || name
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// The links that sign in once. Each gateway has its own.
#[derive(Debug, Default)]
pub(super) struct OnceLinks(Mutex<Vec<(String, String)>>);

impl OnceLinks {
    /// A new one for this token: the code at its end. The oldest is forgotten where there are too many.
    pub(super) fn create(&self, token_id: &str) -> String {
        let code = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() >= LINKS_MAX {
            links.remove(0);
        }
        links.push((code.clone(), token_id.to_owned()));
        code
    }

    /// The token of this code, which is used up by that.
    pub(super) fn take(&self, code: &str) -> Option<String> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = links.iter().position(|(known, _)| known == code)?;
        Some(links.remove(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_session_is_of_one_token_for_twelve_hours_and_of_this_fleet() {
        let keys = FileKeys::new(b"first", None);
        let now = OffsetDateTime::UNIX_EPOCH + Duration::days(20_000);
        let value = sealed("abc", &keys, now);
        assert_eq!(opened(&value, &keys, now).as_deref(), Some("abc"));
        assert_eq!(
            opened(&value, &keys, now + HOLDS - Duration::SECOND).as_deref(),
            Some("abc")
        );
        assert_eq!(opened(&value, &keys, now + HOLDS), None);
        assert_eq!(opened(&value, &FileKeys::new(b"other", None), now), None);
        // A key that was replaced reads it as long as it is known.
        let next = FileKeys::new(b"next", Some(b"first"));
        assert_eq!(opened(&value, &next, now).as_deref(), Some("abc"));
        for place in 0..value.len() {
            let mut bytes = value.clone().into_bytes();
            bytes[place] ^= 1;
            if let Ok(text) = String::from_utf8(bytes) {
                assert_eq!(opened(&text, &keys, now), None, "{place}");
            }
            assert_eq!(opened(&value[..place], &keys, now), None);
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let all = headers("cookie", "a=b; toolfleet_console=x.y; toolfleet_console=z");
        assert_eq!(value(&all), Some("x.y"));
        assert_eq!(value(&headers("cookie", "toolfleet_consoles=x")), None);
        assert_eq!(value(&HeaderMap::new()), None);
    }

    #[test]
    fn only_a_name_of_this_machine_does_without_tls() {
        for own in [
            "localhost:8233",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]:8233",
            "[::1]",
        ] {
            assert!(is_loopback(&headers("host", own)), "{own}");
        }
        for other in [
            "toolfleet.example",
            "10.0.0.1:8233",
            "localhost.example:1",
            "127.0.0.1.example",
        ] {
            assert!(!is_loopback(&headers("host", other)), "{other}");
        }
        let line = set_cookie(Some("v"), &headers("host", "fleet.example"));
        assert_eq!(
            line,
            "toolfleet_console=v; Path=/console; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"
        );
    }

    #[test]
    fn a_link_signs_in_once() {
        let links = OnceLinks::default();
        let code = links.create("abc");
        assert_eq!(links.take(&code).as_deref(), Some("abc"));
        assert_eq!(links.take(&code), None);
        let first = links.create("x");
        for _more in 0..LINKS_MAX {
            links.create("y");
        }
        assert_eq!(links.take(&first), None);
    }
}
