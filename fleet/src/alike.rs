//! **Are these two JSON values the same?** A receiver may read `7`, `7.0` and `70e-1` as one number, so they are one here.
//!
//! Numbers are compared as the decimals that they are, without rounding; texts by their characters, objects whatever the order of
//! their members. It stops at the first difference.
//!
//! The ledger keeps a number in the scope of a control in one spelling for all of them (`toolfleet.plain_number`), so that it is
//! found again in another one. What stands within an array or an object is kept as it was written, and compared here.

use serde_json::Value;

/// Whether both are the same value.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.to_string(), other.to_string());
            one == other || Decimal::of(&one).is_some_and(|one| Decimal::of(&other) == Some(one))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in_other = |(name, value): (&String, &Value)| {
                other.get(name).is_some_and(|found| is_same(value, found))
            };
            one.len() == other.len() && one.iter().all(is_in_other)
        }
        (one, other) => one == other,
    }
}

/// One spelling for all numbers that are [the same](is_same) as this one, from its text.
pub(crate) fn spelling(number: &str) -> String {
    match Decimal::of(number) {
        Some(decimal) => {
            let sign = if decimal.is_negative { "-" } else { "" };
            format!("{sign}{}e{}", decimal.digits, decimal.power)
        }
        None => number.to_owned(),
    }
}

/// A number as its digits, without zeros at either end, and the power of ten of the last of them.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    power: i64,
}

impl Decimal {
    /// Of a number's text; `None`: its exponent is beyond every number that is kept.
    fn of(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_end_matches('0');
        if digits.trim_start_matches('0').is_empty() {
            return Some(Self {
                is_negative: false,
                digits: String::new(),
                power: 0,
            });
        }
        let count = |digits: usize| i64::try_from(digits).ok();
        let power = exponent.parse::<i64>().ok()?;
        let power = power.checked_sub(count(fraction.len())?)?;
        Some(Self {
            is_negative,
            digits: digits.trim_start_matches('0').to_owned(),
            power: power.checked_add(count(all.len() - digits.len())?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(one: &str, other: &str) -> bool {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        is_same(&value(one), &value(other))
    }

    #[test]
    fn numbers_are_compared_by_what_they_are_and_nothing_is_rounded() {
        for spelling in ["7", "7.0", "7e0", "70e-1", "0.7E1", "7.00", "0.0007e4"] {
            assert!(same("7", spelling) && same(spelling, "7"), "{spelling}");
            let (one, other) = (
                format!("{{\"a\":[{spelling}],\"b\":1}}"),
                "{\"b\":1.0,\"a\":[7]}",
            );
            assert!(same(&one, other), "{one}");
        }
        for zero in ["0", "-0", "0.0", "0e5", "-0.00e-3"] {
            assert!(same("0", zero), "{zero}");
        }
        for (one, other) in [
            ("7", "-7"),
            ("7", "70"),
            ("7", "0.7"),
            ("7", "\"7\""),
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.10000000000000001"),
            ("1", "true"),
            ("0", "null"),
            ("[1,2]", "[2,1]"),
            ("[1]", "[1,1]"),
            ("{\"a\":1}", "{\"a\":1,\"b\":1}"),
            ("{\"a\":1}", "{\"b\":1}"),
            ("\"a\"", "\"A\""),
        ] {
            assert!(!same(one, other) && !same(other, one), "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn moving_the_point_changes_nothing(whole in -1_000_000_i64..1_000_000, by in 0_usize..12) {
            let (zeros, plain) = ("0".repeat(by), whole.to_string());
            let (longer, moved) = (format!("{whole}.{zeros}0"), format!("{whole}{zeros}e-{by}"));
            prop_assert!(same(&plain, &longer));
            prop_assert!(whole == 0 || same(&plain, &moved));
            prop_assert_eq!(spelling(&plain), spelling(&longer));
            prop_assert_eq!(spelling(&plain), spelling(&moved));
            let larger = format!("{whole}e{by}");
            prop_assert_eq!(same(&plain, &larger), by == 0 || whole == 0);
        }
    }
}
