//! Who has signed in: a cookie that names the token and is signed with the ledger's keys, so that every gateway of the fleet reads
//! it and none has to remember it. The token itself is not in it, and is looked at each time: one that is revoked has signed out.

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, HOST},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fleet::wire::file_url::FileKeys;
use time::{Duration, OffsetDateTime};
use tokio::time::Instant;
use uuid::Uuid;

/// The cookie, where the console is asked over TLS: only this host itself can set one of such a name.
const HOST_NAME: &str = "__Host-toolfleet_console";
/// With what its name begins where it is asked by a name of this machine: the port follows, for the cookies of a host are those of
/// all its ports.
const LOOPBACK_NAME: &str = "toolfleet_console_";
/// What is signed.
const WHAT: &str = "toolfleet console session";
/// How long somebody is signed in.
pub(super) const HOLDS: Duration = Duration::hours(12);
/// The most characters of one.
const CHARACTERS_MAX: usize = 512;
/// How many links that sign in once are known at a time, of each token and of all, and for how long.
const LINKS_OF_EACH_MAX: usize = 4;
const LINKS_MAX: usize = 64;
const LINK_HOLDS: std::time::Duration = std::time::Duration::from_secs(3_600);

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

/// The value of this name among the cookies of a request; of several none, for one of them is not ours.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs
        .filter(|(known, _)| *known == name)
        .map(|(_, value)| value);
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    Some(value)
}

/// The value that says who has signed in.
pub(super) fn value(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, &name(headers))
}

/// The header that signs in, or, with no value, out.
pub(super) fn set_cookie(value: Option<&str>, headers: &HeaderMap) -> HeaderValue {
    let (value, age) = match value {
        Some(value) => (value, HOLDS.whole_seconds()),
        None => ("", 0),
    };
    kept_cookie(&name(headers), value, age, headers)
}

fn name(headers: &HeaderMap) -> String {
    if !is_loopback(headers) {
        return HOST_NAME.to_owned();
    }
    let port = host(headers).rsplit_once(':').map(|(_, port)| port);
    let port = port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    format!("{LOOPBACK_NAME}{}", port.unwrap_or("80"))
}

fn host(headers: &HeaderMap) -> &str {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    host.unwrap_or_default()
}

/// The header that has a browser send this value to the console, for so many seconds.
pub(super) fn kept_cookie(
    name: &str,
    value: &str,
    seconds: i64,
    headers: &HeaderMap,
) -> HeaderValue {
    let secure = if is_loopback(headers) { "" } else { "; Secure" };
    let line =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(line).expect("a cookie has only visible characters")
}

/// Whether the console is asked by a name of this machine itself, for which browsers keep cookies without TLS.
pub(super) fn is_loopback(headers: &HeaderMap) -> bool {
    let host = host(headers);
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
pub(super) struct OnceLinks(Mutex<Vec<OnceLink>>);

#[derive(Debug)]
struct OnceLink {
    code: String,
    token_id: String,
    made_at: Instant,
}

impl OnceLinks {
    /// A new one for this token: the code at its end. Of too many, the oldest of this token or else of all is forgotten.
    pub(super) fn create(&self, token_id: &str, now: Instant) -> String {
        let code = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut links = self.known(now);
        let is_its = |link: &OnceLink| link.token_id == token_id;
        let its = links.iter().filter(|link| is_its(link)).count();
        let spare = match (its >= LINKS_OF_EACH_MAX, links.len() >= LINKS_MAX) {
            (true, _) => links.iter().position(is_its),
            (false, true) => Some(0),
            (false, false) => None,
        };
        if let Some(spare) = spare {
            links.remove(spare);
        }
        links.push(OnceLink {
            code: code.clone(),
            token_id: token_id.to_owned(),
            made_at: now,
        });
        code
    }

    /// The token of this code.
    pub(super) fn peek(&self, code: &str, now: Instant) -> Option<String> {
        let links = self.known(now);
        let link = links.iter().find(|link| link.code == code)?;
        Some(link.token_id.clone())
    }

    /// The same, and the code is used up by that.
    pub(super) fn take(&self, code: &str, now: Instant) -> Option<String> {
        let mut links = self.known(now);
        let place = links.iter().position(|link| link.code == code)?;
        Some(links.remove(place).token_id)
    }

    fn known(&self, now: Instant) -> MutexGuard<'_, Vec<OnceLink>> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| now.duration_since(link.made_at) < LINK_HOLDS);
        links
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
        let of = |cookies: &str, host: &str| {
            let mut headers = headers("cookie", cookies);
            headers.insert("host", host.parse().unwrap());
            value(&headers).map(ToOwned::to_owned)
        };
        let own = "a=b; toolfleet_console_8233=x.y";
        assert_eq!(of(own, "localhost:8233").as_deref(), Some("x.y"));
        assert_eq!(of(own, "localhost:8234"), None, "of another program");
        assert_eq!(of(own, "fleet.example"), None);
        let host = "__Host-toolfleet_console=x.y";
        assert_eq!(of(host, "fleet.example:443").as_deref(), Some("x.y"));
        let twice = format!("{host}; {host}");
        assert_eq!(of(&twice, "fleet.example"), None);
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
            "__Host-toolfleet_console=v; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"
        );
    }

    #[test]
    fn a_link_signs_in_once_within_an_hour() {
        let (links, now) = (OnceLinks::default(), Instant::now());
        let code = links.create("abc", now);
        assert_eq!(links.peek(&code, now).as_deref(), Some("abc"));
        assert_eq!(links.take(&code, now).as_deref(), Some("abc"));
        assert_eq!(links.take(&code, now), None);
        let late = links.create("abc", now);
        assert_eq!(links.peek(&late, now + LINK_HOLDS), None);
        // A token that makes many takes nobody else's.
        let first = links.create("x", now);
        let own: Vec<String> = (0..=LINKS_OF_EACH_MAX)
            .map(|_| links.create("y", now))
            .collect();
        assert_eq!(links.peek(&first, now).as_deref(), Some("x"));
        assert_eq!(links.peek(&own[0], now), None);
    }
}
