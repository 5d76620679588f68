//! Which tokens are JSON numbers, and which of them can be kept exactly.

use crate::limits::Limits;

/// The parts of a number token that decide whether it can be kept exactly.
pub(crate) struct NumberShape<'a> {
    integer: bool,
    /// How many digits stand before the point.
    whole: usize,
    /// The digits of the exponent, without its sign.
    exponent: &'a str,
}

impl<'a> NumberShape<'a> {
    /// `None` when the token is not a number by the grammar of JSON.
    pub(crate) fn of(token: &'a str) -> Option<Self> {
        let bytes = token.as_bytes();
        let digits = |from: usize| {
            let count = bytes[from..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            (count > 0).then_some(from + count)
        };
        let start = usize::from(bytes.first() == Some(&b'-'));
        let point = digits(start)?;
        if bytes[start] == b'0' && point > start + 1 {
            return None;
        }
        let mut end = point;
        if bytes.get(end) == Some(&b'.') {
            end = digits(end + 1)?;
        }
        let mut exponent = "0";
        if let Some(b'e' | b'E') = bytes.get(end) {
            let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let first = end + 1 + signed;
            end = digits(first)?;
            exponent = &token[first..];
        }
        (end == bytes.len()).then_some(Self {
            integer: point == end,
            whole: point - start,
            exponent,
        })
    }

    /// Whether the token, cut off here, may be the beginning of a number.
    pub(crate) fn begins(token: &str) -> bool {
        NumberShape::of(token).is_some() || NumberShape::of(&format!("{token}0")).is_some()
    }

    pub(crate) fn is_kept_exactly(&self, token: &str) -> bool {
        // Every integer with this many digits fits into 64 bits.
        const SURELY: usize = 18;
        if self.integer {
            return self.whole <= SURELY
                || token.parse::<i64>().is_ok()
                || token.parse::<u64>().is_ok();
        }
        let Ok(exponent) = self.exponent.parse::<u32>() else {
            return false;
        };
        let power = self.whole.saturating_add(exponent as usize);
        exponent <= Limits::EXPONENT_MAX
            && (power <= Limits::EXPONENT_MAX as usize
                || token.parse::<f64>().is_ok_and(f64::is_finite))
    }
}
