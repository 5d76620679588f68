//! **Which calls of a tool share start times, where each value of an argument has its own?** Those with the same key. Pure.
//!
//! The key is made once, where a call is accepted: from what the tool gets, with the answers that its arguments refer to. It stands
//! in the call's row, so every claim, retry and release finds the same bucket, whatever a message says.

use std::{fmt, str::FromStr};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    alike, canonical,
    controls::LazyArguments,
    ids::{InvalidName, Label},
    wire::message::Message,
};

/// A mark of the tenant, of the place of the argument and of its value, which tells nothing of a value that cannot be guessed.
///
/// Values of different tenants, places or kinds never share one. Equal numbers do, however they are written. Calls without a text, a
/// number, or true or false in that place share one of their own, for each tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RateKey([u8; 16]);

impl RateKey {
    /// Of a call of this tenant with these arguments, by the argument at this JSON pointer.
    pub fn of(tenant: &Label, pointer: &str, arguments: &LazyArguments<'_>) -> Self {
        let value = match arguments.at(pointer) {
            Some(Value::Number(number)) => alike::spelling(&number.to_string()),
            Some(value @ (Value::String(_) | Value::Bool(_))) => canonical::to_text(value),
            // No value has an empty text.
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => String::new(),
        };
        // Neither a tenant nor canonical text has this character, so the parts cannot be confused.
        let hash: [u8; 32] = Sha256::new()
            .chain_update(tenant.as_str())
            .chain_update([0])
            .chain_update(pointer)
            .chain_update([0])
            .chain_update(value)
            .finalize()
            .into();
        let mut key = [0; 16];
        key.copy_from_slice(&hash[..16]);
        Self(key)
    }
}

impl fmt::Display for RateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for RateKey {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let mut key = [0; 16];
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        match hex::decode_to_slice(text, &mut key) {
            Ok(()) if is_lower => Ok(Self(key)),
            Ok(()) | Err(_) => Err(InvalidName {
                what: "key of start times",
                rule: Message::fixed("32 digits of 0-9 and a-f", "是 32 个 0-9 和 a-f 的字符"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(tenant: &str, pointer: &str, arguments: &str) -> String {
        let arguments = LazyArguments::new(arguments);
        RateKey::of(&tenant.parse().unwrap(), pointer, &arguments).to_string()
    }

    #[test]
    fn each_tenant_place_and_value_has_its_own() {
        let all = [
            key("acme", "/id", r#"{"id":"7"}"#),
            key("acme", "/id", r#"{"id":7}"#),
            key("acme", "/id", r#"{"id":-7}"#),
            key("acme", "/id", r#"{"id":70}"#),
            key("acme", "/id", r#"{"id":true}"#),
            key("acme", "/id", r#"{"id":"true"}"#),
            key("acme", "/id", r#"{"id":""}"#),
            key("acme", "/id", r#"{"other":"7"}"#),
            key("beta", "/id", r#"{"id":"7"}"#),
            key("beta", "/id", "{}"),
            key("acme", "/account/id", r#"{"account":{"id":"7"}}"#),
            key("acme", "/account", r#"{"account":"id"}"#),
        ];
        assert_eq!(BTreeSet::from(all.clone()).len(), all.len(), "{all:?}");
        for one in all {
            let read: RateKey = one.parse().unwrap();
            assert_eq!(read.to_string(), one);
        }
    }

    #[test]
    fn one_value_has_one_whatever_else_a_call_says_and_however_a_number_is_written() {
        let seven = key("acme", "/id", r#"{"id":7}"#);
        for arguments in [
            r#"{"id":7.0}"#,
            r#"{"id":70e-1,"b":[1]}"#,
            r#"{"a":1,"id":7}"#,
        ] {
            assert_eq!(key("acme", "/id", arguments), seven, "{arguments}");
        }
        assert_eq!(
            key("acme", "/id", r#"{"id":"\u00e9"}"#),
            key("acme", "/id", r#"{"id":"é"}"#)
        );
        let none = key("acme", "/id", "{}");
        for arguments in [r#"{"id":null}"#, r#"{"id":{"a":1}}"#, r#"{"id":[]}"#, "{"] {
            assert_eq!(key("acme", "/id", arguments), none, "{arguments}");
        }
        // A promise to the rows of every process.
        assert_eq!(seven, "b0022095c44143f4ab7ae14b528810fd");
    }

    #[test]
    fn other_texts_are_no_keys() {
        let key = key("acme", "/id", "{}");
        for text in ["", "7", &key[1..], &key.to_uppercase(), &format!("{key}0")] {
            assert!(text.parse::<RateKey>().is_err(), "{text}");
        }
    }
}
