//! What a client sends back with its answers: which question of which call it answers, signed, so that any gateway can go on. Pure.
//!
//! It is of one call, one question, one principal and one request, and holds for ten minutes. It has no secret in it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fleet::ids::{CallId, Label};
use fleet::wire::file_url::FileKeys;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use time::{Duration, OffsetDateTime};

use super::derived_key::DerivedKey;

/// What is signed.
const WHAT: &str = "toolfleet mcp request state";
/// How long it holds.
const HOLDS: Duration = Duration::minutes(10);
/// The most characters of one.
const CHARACTERS_MAX: usize = 2_048;

/// Which question is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestState {
    /// Of which call.
    pub(super) call: CallId,
    /// Which of its questions.
    pub(super) round: String,
    /// Whether an earlier request made the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_earlier: bool,
    /// Of which request, and by whom: a hash.
    about: String,
    /// When it is over, in seconds since the Unix epoch by the clock of the keys.
    until: i64,
}

/// The request that a state is about: who asks, for whom, for what.
#[derive(Debug, Clone)]
pub(super) struct StateAbout(String);

impl StateAbout {
    /// Of a request of this tenant. `key`: made of who asks, the tool and the arguments.
    pub(super) fn of(tenant: &Label, key: DerivedKey) -> Self {
        let hash = Sha256::new()
            .chain_update(tenant.as_str())
            .chain_update([0])
            .chain_update(key.hash())
            .finalize();
        Self(hex::encode(&hash[..16]))
    }
}

impl RequestState {
    /// That of a question, from now on.
    pub(super) fn new(
        call: CallId,
        round: String,
        is_earlier: bool,
        about: &StateAbout,
        now: OffsetDateTime,
    ) -> Self {
        Self {
            call,
            round,
            is_earlier,
            about: about.0.clone(),
            until: (now + HOLDS).unix_timestamp(),
        }
    }

    /// As a client gets it.
    pub(super) fn seal(&self, keys: &FileKeys) -> String {
        let text = serde_json::to_vec(self).expect("a state has only string keys");
        let text = URL_SAFE_NO_PAD.encode(text);
        let signature = keys.sign_other(WHAT, &text);
        format!("{text}.{signature}")
    }

    /// Of what a client sends back about this request. `None`: nobody here has signed it, it is about another request or of
    /// somebody else, or its time is over.
    pub(super) fn open(
        sealed: &str,
        keys: &FileKeys,
        about: &StateAbout,
        now: OffsetDateTime,
    ) -> Option<Self> {
        let (text, signature) = sealed.split_once('.')?;
        if sealed.len() > CHARACTERS_MAX || !keys.have_signed_other(WHAT, text, signature) {
            return None;
        }
        let state: Self = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let holds = state.about == about.0 && now.unix_timestamp() < state.until;
        holds.then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn about(tenant: &str, principal: &str, arguments: &'static str) -> StateAbout {
        let arguments = Bytes::from_static(arguments.as_bytes());
        let key = DerivedKey::of(principal, &"charge".parse().unwrap(), &arguments, "");
        StateAbout::of(&tenant.parse().unwrap(), key)
    }

    #[test]
    fn a_state_is_of_one_request_of_one_principal_for_ten_minutes() {
        let keys = FileKeys::new(b"first", None);
        let now = OffsetDateTime::UNIX_EPOCH + Duration::days(20_000);
        let own = about("acme", "ann", r#"{"a":1,"b":2}"#);
        let state = RequestState::new(CallId::generate(), "r".to_owned(), false, &own, now);
        let sealed = state.seal(&keys);
        let open =
            |sealed: &str, about: &StateAbout, now| RequestState::open(sealed, &keys, about, now);
        assert_eq!(open(&sealed, &own, now), Some(state.clone()));
        // The same request, written otherwise.
        let same = about("acme", "ann", r#"{ "b": 2, "a": 1 }"#);
        assert_eq!(
            open(&sealed, &same, now + Duration::minutes(9)),
            Some(state)
        );
        assert_eq!(open(&sealed, &own, now + Duration::minutes(10)), None);
        for other in [
            about("beta", "ann", r#"{"a":1,"b":2}"#),
            about("acme", "bob", r#"{"a":1,"b":2}"#),
            about("acme", "ann", r#"{"a":1,"b":3}"#),
        ] {
            assert_eq!(open(&sealed, &other, now), None);
        }
        for place in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[place] ^= 1;
            if let Ok(text) = String::from_utf8(bytes) {
                assert_eq!(open(&text, &own, now), None, "{place}");
            }
        }
        for wrong in [
            format!("{sealed}-TAMPERED"),
            String::new(),
            ".".to_owned(),
            "x".repeat(100_000),
        ] {
            assert_eq!(open(&wrong, &own, now), None);
        }
        let earlier = RequestState::new(CallId::generate(), "r".to_owned(), true, &own, now);
        let opened = open(&earlier.seal(&keys), &own, now);
        assert!(opened.is_some_and(|opened| opened.is_earlier));
        let renewed = FileKeys::new(b"second", Some(b"first"));
        assert!(RequestState::open(&sealed, &renewed, &own, now).is_some());
        let other_fleet = FileKeys::new(b"other", None);
        assert!(RequestState::open(&sealed, &other_fleet, &own, now).is_none());
    }
}
