//! The names of a turn, all from its tenant, who asks, and the key. Pure: a repetition finds the turn at any gateway.

use std::fmt::Write as _;

use fleet::{
    canonical,
    ids::{CallId, IdempotencyKey, Label},
};
use serde_json::json;

/// With what the name of a turn begins, which is that of its session, too.
const TURN: &str = "turn_";
/// With what the name of a response begins.
const RESPONSE: &str = "resp_";
/// How many bytes of a hash a name has.
const BYTES: usize = 16;

/// A turn, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TurnName(String);

impl TurnName {
    /// The turn with this key of this principal; `None`: nobody is asked for a token.
    pub(crate) fn of(tenant: &Label, principal: Option<&str>, key: &IdempotencyKey) -> Self {
        Self(hash(&json!(["turn", tenant, principal, key]).to_string()))
    }

    /// The turn that a path names.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(TURN)?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let fits = digits.len() == 2 * BYTES && digits.bytes().all(is_hex);
        fits.then(|| Self(digits.to_owned()))
    }

    /// Its id.
    pub(crate) fn id(&self) -> String {
        format!("{TURN}{}", self.0)
    }

    /// The session of its calls.
    pub(crate) fn session(&self) -> Label {
        self.id().parse().expect("the name of a turn is a label")
    }

    /// Its first response.
    pub(crate) fn response(&self) -> String {
        format!("{RESPONSE}{}", self.0)
    }

    /// The response behind another one, for which these outputs of calls were handed in, by their hashes. The same again are the same
    /// response, in whichever order they stand.
    pub(crate) fn response_behind(&self, last: &str, outputs: &[(CallId, &str)]) -> String {
        let mut outputs = outputs.to_vec();
        outputs.sort_unstable();
        let hash = hash(&json!(["response", self.0, last, outputs]).to_string());
        format!("{RESPONSE}{hash}")
    }

    /// The key of its call at this place.
    pub(crate) fn key(&self, place: usize) -> String {
        format!("{TURN}{}-{place}", self.0)
    }
}

fn hash(text: &str) -> String {
    let hash = canonical::hash_text(text);
    let mut digits = String::with_capacity(2 * BYTES);
    for byte in &hash[..BYTES] {
        write!(digits, "{byte:02x}").expect("a text can be written to");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_whom_with_which_key_is_a_turn_and_nothing_else() {
        let (acme, beta): (Label, Label) = ("acme".parse().unwrap(), "beta".parse().unwrap());
        let key = |text: &str| text.parse::<IdempotencyKey>().unwrap();
        let name = TurnName::of(&acme, Some("ann"), &key("k"));
        assert_eq!(name, TurnName::of(&acme, Some("ann"), &key("k")));
        for other in [
            TurnName::of(&beta, Some("ann"), &key("k")),
            TurnName::of(&acme, Some("bob"), &key("k")),
            TurnName::of(&acme, None, &key("k")),
            TurnName::of(&acme, Some("ann"), &key("l")),
        ] {
            assert_ne!(other, name);
        }
        assert_eq!(TurnName::read(&name.id()), Some(name.clone()));
        assert_eq!(name.session().as_str(), name.id());
        assert!(name.key(63).parse::<IdempotencyKey>().is_ok());
        let call = CallId::generate();
        let other = CallId::generate();
        let behind = |last: &str, outputs: &[(CallId, &str)]| name.response_behind(last, outputs);
        let next = behind(&name.response(), &[(call, "a"), (other, "b")]);
        assert_eq!(next, behind(&name.response(), &[(other, "b"), (call, "a")]));
        assert_ne!(next, behind(&name.response(), &[(call, "a"), (other, "c")]));
        assert_ne!(next, behind(&next, &[(call, "a"), (other, "b")]));
    }

    #[test]
    fn what_no_turn_is_called_is_none() {
        let good = format!("turn_{}", "0af".repeat(11).split_off(1));
        assert!(TurnName::read(&good).is_some(), "{good}");
        for bad in [
            "",
            "turn_",
            "turn_0",
            &good[1..],
            &good.to_uppercase(),
            &format!("{good}0"),
        ] {
            assert_eq!(TurnName::read(bad), None, "{bad}");
        }
    }
}
