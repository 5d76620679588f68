//! Which tokens are JSON numbers, and which of them are kept exactly.

use super::Limits;

/// The parts of a number token that decide whether it is kept exactly.
pub(super) struct NumberShape<'a> {
    integer: bool,
    /// The digits of the exponent, without its sign.
    exponent: &'a str,
}

impl<'a> NumberShape<'a> {
    /// `None` when the token is not a number by the grammar of JSON.
    pub(super) fn of(token: &'a str) -> Option<Self> {
        let unsigned = token.strip_prefix('-').unwrap_or(token);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                (mantissa, Some(digits))
            }
            None => (unsigned, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let valid = digits(whole)
            && (whole == "0" || !whole.starts_with('0'))
            && fraction.is_none_or(digits)
            && exponent.is_none_or(digits);
        let integer = fraction.is_none() && exponent.is_none();
        valid.then(|| Self {
            integer,
            exponent: exponent.unwrap_or("0"),
        })
    }

    pub(super) fn is_kept_exactly(&self, token: &str) -> bool {
        if self.integer {
            return token.parse::<i64>().is_ok() || token.parse::<u64>().is_ok();
        }
        let exponent = self.exponent.parse::<u32>();
        exponent.is_ok_and(|exponent| exponent <= Limits::EXPONENT_MAX)
            && token.parse::<f64>().is_ok_and(f64::is_finite)
    }
}
