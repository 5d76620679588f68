//! Numbers as texts.

use serde_json::Number;

use crate::{limits::Limits, number::NumberShape};

/// The number in a text by the grammar of JSON, without white space around it, if it can be kept exactly.
pub(crate) fn number(text: &str) -> Option<Number> {
    let token = text.trim_matches([' ', '\t', '\n', '\r']);
    let fits = token.len() <= Limits::DEFAULT.number_chars
        && NumberShape::of(token)?.is_kept_exactly(token);
    fits.then(|| Number::from_string_unchecked(token.to_owned()))
}

/// Whether a number is written without fraction and exponent.
pub(crate) fn is_integer(number: &Number) -> bool {
    !number.as_str().contains(['.', 'e', 'E'])
}

/// The integer value of a number: `5` for `5.0`, `5e0` and `50e-1`. `None` beyond 64 bits.
pub(crate) fn integer(number: &Number) -> Option<Number> {
    if is_integer(number) {
        return Some(number.clone());
    }
    let token = number.as_str();
    let (sign, unsigned) = match token.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", token),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i64 = exponent.parse().ok()?;

    // The digits, and how many of them stand before the point; the point may be outside them.
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let point = i64::try_from(whole.len()).ok()? + exponent;
    if significant.is_empty() {
        return self::number("0");
    }
    let zeros = point - i64::try_from(significant.len()).ok()?;
    // Twenty digits are more than 64 bits hold.
    let zeros = usize::try_from(zeros).ok().filter(|zeros| *zeros <= 20)?;
    let all = format!("{significant}{}", "0".repeat(zeros));
    self::number(&format!("{sign}{}", all.trim_start_matches('0')))
}

/// Whether a number is written like an integer with groups of three digits: `1.000`, but not `0.125`.
pub(crate) fn may_be_grouped(number: &Number) -> bool {
    let unsigned = number.as_str().trim_start_matches('-');
    unsigned.split_once('.').is_some_and(|(whole, fraction)| {
        (1..=3).contains(&whole.len())
            && !whole.starts_with('0')
            && fraction.len() == 3
            && fraction.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether two numbers are equal, however they are written.
pub(crate) fn equal(a: &Number, b: &Number) -> bool {
    a == b || integer(a).is_some_and(|a| Some(a) == integer(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_found_in_any_spelling() {
        let rows = [
            ("5", Some("5")),
            ("5.0", Some("5")),
            ("5e0", Some("5")),
            ("5E+2", Some("500")),
            ("50e-1", Some("5")),
            ("1.50e1", Some("15")),
            ("0.5e1", Some("5")),
            ("0.05e2", Some("5")),
            ("-2.0", Some("-2")),
            ("0.0", Some("0")),
            ("-0.0", Some("0")),
            ("0e99", Some("0")),
            ("9007199254740993.0", Some("9007199254740993")),
            ("18446744073709551615.0", Some("18446744073709551615")),
            ("18446744073709551616.0", None),
            ("1e19", Some("10000000000000000000")),
            ("1e20", None),
            ("1e300", None),
            ("5.5", None),
            ("5e-1", None),
            ("0.1", None),
            ("1.05e1", None),
            ("9007199254740993.5", None),
        ];
        for (token, expected) in rows {
            let found = integer(&number(token).unwrap());
            assert_eq!(found.as_ref().map(Number::as_str), expected, "{token}");
        }
    }

    #[test]
    fn a_point_may_stand_between_thousands() {
        for token in ["1.000", "-1.000", "12.500", "999.999"] {
            assert!(may_be_grouped(&number(token).unwrap()), "{token}");
        }
        for token in [
            "1.0", "1.00", "1.0000", "0.000", "1000.000", "1000", "1.0e3", "1.000e0",
        ] {
            assert!(!may_be_grouped(&number(token).unwrap()), "{token}");
        }
    }

    #[test]
    fn only_the_grammar_of_json_makes_a_number() {
        for text in ["5", " 5\n", "-0", "0.10", "1e308", "18446744073709551615"] {
            assert_eq!(number(text).unwrap().as_str(), text.trim(), "{text:?}");
        }
        let refused = [
            "",
            " ",
            "+5",
            "05",
            ".5",
            "5.",
            "1,000",
            "1_000",
            "50%",
            "$5",
            "0x10",
            "NaN",
            "Infinity",
            "-",
            "--5",
            "5 5",
            "5\u{a0}",
            "\u{ff15}",
            "five",
            "1e",
            "1e400",
            "18446744073709551616",
            "٥",
            "5kg",
            "1/2",
            "½",
        ];
        for text in refused {
            assert_eq!(number(text), None, "{text:?}");
        }
        assert_eq!(number(&"1".repeat(65)), None);
        assert_eq!(number(&format!("0.{}", "1".repeat(63))), None);
    }
}
