//! **Does this call need somebody's yes?** Pure.
//!
//! Judged where a call is accepted, on the arguments as the tool gets them. What cannot be judged needs one: a pointer that leads
//! nowhere, a text where a number is compared or meant, numbers that are too close to tell apart.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use crate::{
    alike::is_same,
    controls::LazyArguments,
    manifest::{ApprovalSpec, ApprovedBy, Comparison, Condition},
};

/// What a call waits for, as its row has it: who decides, and the clocks that begin with the last yes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalWanted {
    /// Who may decide.
    pub by: ApprovedBy,
    /// How many have to say yes.
    pub count: u8,
    /// What is told to who decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is mixed into the hash that is shown, in hexadecimal digits, where arguments are sensitive: they could be guessed from a bare
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    /// How long the call may take then.
    pub deadline_ms: i64,
    /// The caller's cap on every call of its run.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "time::serde::rfc3339::option"
    )]
    pub run_deadline: Option<OffsetDateTime>,
    /// How long it may wait for its first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_wait_ms: Option<i64>,
    /// How long the program of its caller has for it, where that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ms: Option<i64>,
}

impl ApprovalWanted {
    /// Something random for [`Self::salt`].
    pub fn new_salt() -> String {
        let parts = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        parts.map(|part| part.simple().to_string()).concat()
    }

    /// What is shown of arguments with this hash, and named by a decision, in hexadecimal digits. `toolfleet.shown_hash` in the ledger
    /// says the same.
    pub fn shown_hash(&self, args_hash: &[u8; 32]) -> String {
        let salt = self.salt.as_ref().and_then(|salt| hex::decode(salt).ok());
        match salt {
            None => hex::encode(args_hash),
            Some(salt) => {
                let salted = Sha256::new().chain_update(salt).chain_update(args_hash);
                hex::encode(salted.finalize())
            }
        }
    }
}

/// Whether a call with these arguments waits for a yes.
pub fn is_needed(spec: &ApprovalSpec, arguments: &LazyArguments<'_>) -> bool {
    spec.when.is_empty() || spec.when.iter().any(|when| may_hold(when, arguments))
}

fn may_hold(when: &Condition, arguments: &LazyArguments<'_>) -> bool {
    let Some(found) = arguments.at(&when.pointer) else {
        return true;
    };
    let ordered = |is_so: fn(Ordering) -> bool| match (found, &when.value) {
        (Value::Number(found), Value::Number(value)) => order(found, value).is_none_or(is_so),
        (_, _) => true,
    };
    match when.op {
        Comparison::Eq => may_be(found, &when.value),
        Comparison::Ne => !is_same(found, &when.value),
        Comparison::Gt => ordered(Ordering::is_gt),
        Comparison::Ge => ordered(Ordering::is_ge),
        Comparison::Lt => ordered(Ordering::is_lt),
        Comparison::Le => ordered(Ordering::is_le),
        Comparison::In => match &when.value {
            Value::Array(values) => values.iter().any(|value| may_be(found, value)),
            _ => true,
        },
    }
}

/// Whether they are the same, or of two types: to its tool the text `"500"` may well be the number 500.
fn may_be(found: &Value, value: &Value) -> bool {
    is_same(found, value) || std::mem::discriminant(found) != std::mem::discriminant(value)
}

/// The order of two numbers, where it is certain: rounding to doubles keeps the order of those that it does not make equal.
fn order(one: &Number, other: &Number) -> Option<Ordering> {
    if is_same(&Value::Number(one.clone()), &Value::Number(other.clone())) {
        return Some(Ordering::Equal);
    }
    let rounded = one.as_f64()?.partial_cmp(&other.as_f64()?)?;
    (rounded != Ordering::Equal).then_some(rounded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn needs(when: &Value, arguments: &str) -> bool {
        let spec: ApprovalSpec = serde_json::from_value(json!({ "when": [when] })).unwrap();
        is_needed(&spec, &LazyArguments::new(arguments))
    }

    #[test]
    fn without_a_condition_every_call_needs_a_yes() {
        assert!(is_needed(
            &ApprovalSpec::default(),
            &LazyArguments::new("{}")
        ));
    }

    #[test]
    fn a_condition_is_judged_by_its_operator() {
        for (op, value, below, equal, above) in [
            ("gt", json!(100), false, false, true),
            ("ge", json!(100), false, true, true),
            ("lt", json!(100), true, false, false),
            ("le", json!(100), true, true, false),
            ("eq", json!(100), false, true, false),
            ("ne", json!(100), true, false, true),
            ("in", json!([1, 100]), false, true, false),
        ] {
            let when = json!({"pointer": "/amount", "op": op, "value": value});
            let judged = ["99.99", "100.0", "1e3"]
                .map(|amount| needs(&when, &format!("{{\"amount\":{amount}}}")));
            assert_eq!(judged, [below, equal, above], "{op}");
        }
    }

    #[test]
    fn what_cannot_be_judged_needs_a_yes() {
        let when = json!({"pointer": "/amount", "op": "gt", "value": 9_007_199_254_740_992_u64});
        for arguments in [
            "{}",
            r#"{"amount":"5"}"#,
            r#"{"amount":null}"#,
            // The same double as the bound.
            r#"{"amount":9007199254740993}"#,
            r#"{"amount":1e999}"#,
            "no json",
        ] {
            assert!(needs(&when, arguments), "{arguments}");
        }
        assert!(!needs(&when, r#"{"amount":5}"#));
        for (op, value) in [("eq", json!(500)), ("in", json!([500, 600]))] {
            let when = json!({"pointer": "/amount", "op": op, "value": value});
            assert!(needs(&when, r#"{"amount":"500"}"#), "{op}");
            assert!(needs(&when, r#"{"amount":[500]}"#), "{op}");
            assert!(!needs(&when, r#"{"amount":501}"#), "{op}");
        }
        let nowhere = json!({"pointer": "/to/country", "op": "eq", "value": "NO"});
        assert!(needs(&nowhere, r#"{"to":"NO"}"#));
        assert!(!needs(&nowhere, r#"{"to":{"country":"SE"}}"#));
    }

    #[test]
    fn one_condition_of_several_is_enough() {
        let spec: ApprovalSpec = serde_json::from_value(json!({"when": [
            {"pointer": "/amount", "op": "gt", "value": 100},
            {"pointer": "/currency", "op": "ne", "value": "EUR"},
        ]}))
        .unwrap();
        let judge = |arguments: &str| is_needed(&spec, &LazyArguments::new(arguments));
        assert!(judge(r#"{"amount":1,"currency":"USD"}"#));
        assert!(judge(r#"{"amount":101,"currency":"EUR"}"#));
        assert!(!judge(r#"{"amount":1,"currency":"EUR"}"#));
    }
}
