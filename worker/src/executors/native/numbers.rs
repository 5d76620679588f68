//! Numbers as Rust types read them: to JSON Schema 5.0 and 5e0 are integers, to serde they are not.

use serde_json::{Number, Value};

/// More digits than any integer type has.
const DIGITS_MAX: usize = 40;

/// Rewrites every whole number without point and exponent. Its value stays the same.
pub(super) fn whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(spelled) = respelled(&number.to_string()) {
                *number = spelled;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole),
        Value::Object(members) => members.values_mut().for_each(whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The number without point and exponent, where that is possible and not too long.
fn respelled(text: &str) -> Option<Number> {
    if !text.contains(['.', 'e', 'E']) {
        return None;
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0.into());
    }
    let exponent: i64 = exponent.parse().ok()?;
    let dropped = i64::try_from(digits.len() - significant.len()).ok()?;
    let zeros = exponent
        .checked_sub(i64::try_from(fraction.len()).ok()?)?
        .checked_add(dropped)?;
    let zeros = usize::try_from(zeros)
        .ok()
        .filter(|zeros| *zeros <= DIGITS_MAX)?;
    let significant = significant.trim_start_matches('0');
    if significant.len() + zeros > DIGITS_MAX {
        return None;
    }
    format!("{sign}{significant}{}", "0".repeat(zeros))
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_read_however_it_is_spelled() {
        for (text, expected) in [
            ("5.0", "5"),
            ("5e0", "5"),
            ("-1.50e1", "-15"),
            ("1E2", "100"),
            ("1200e-2", "12"),
            ("0.0", "0"),
            ("-0.0e9", "0"),
            ("18446744073709551615.0", "18446744073709551615"),
        ] {
            let mut value: Value = serde_json::from_str(text).unwrap();
            whole(&mut value);
            assert_eq!(value.to_string(), expected, "{text}");
        }
        for text in [
            "5",
            "1.5",
            "1e-1",
            "1e41",
            "1e999999999999999999999",
            "12e-2",
        ] {
            assert!(respelled(text).is_none(), "{text}");
        }
        let mut nested: Value = serde_json::from_str(r#"{"a": [{"b": 2.0}]}"#).unwrap();
        whole(&mut nested);
        assert_eq!(
            serde_json::to_string(&nested).unwrap(),
            r#"{"a":[{"b":2}]}"#
        );
    }
}
