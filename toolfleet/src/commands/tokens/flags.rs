//! The flags of `toolfleet tokens` that are not words of a list.

use std::time::Duration;

use fleet::{
    ids::Label,
    manifest::parse_duration,
    tokens::{id_in, is_pattern},
};

use crate::commands::usage::UsageError;

/// A token holds for so long at least, and at most.
const EXPIRES_MIN: Duration = Duration::from_secs(60);
const EXPIRES_MAX: Duration = Duration::from_secs(3_650 * DAY);
const DAY: u64 = 86_400;

/// Reads whose token it is, as the history will name them.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_name = (1..=64).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte));
    if is_name {
        return Ok(text.to_owned());
    }
    Err(
        "the name of a token has 1 to 64 characters of A-Z, a-z, 0-9, ., _, @, + and -, and begins with a letter or a digit: \
         that of a person or a program, such as ann or shop-agent"
            .to_owned(),
    )
}

/// The tenant of a token, or all of them.
#[derive(Debug, Clone)]
pub(super) struct TokenTenant(pub(super) Option<Label>);

/// Reads the tenant of a token.
pub(super) fn tenant(text: &str) -> Result<TokenTenant, String> {
    if text == "*" {
        return Ok(TokenTenant(None));
    }
    let tenant = text.parse().map_err(|_rule| {
        "a tenant has 1 to 64 characters of A-Z, a-z, 0-9, _ and -; '*', in quotes, is every tenant".to_owned()
    })?;
    Ok(TokenTenant(Some(tenant)))
}

/// Reads a pattern of tools' names.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    if is_pattern(text) {
        return Ok(text.to_owned());
    }
    Err(
        "the name of a tool has 1 to 64 characters of a-z, 0-9 and _; * stands for any of them, as in 'pay_*'"
            .to_owned(),
    )
}

/// Reads how long a token holds: as other durations, and in days.
pub(super) fn expires(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse().ok());
    let expires = match days {
        Some(days) => u64::checked_mul(days, DAY).map(Duration::from_secs),
        None => parse_duration(text).ok(),
    };
    expires
        .filter(|expires| (EXPIRES_MIN..=EXPIRES_MAX).contains(expires))
        .ok_or_else(|| "write it such as 90d, 12h or 30m, from 1m to 3650d; without it, the token holds until it is revoked".to_owned())
}

/// Reads the id of a token, out of the token itself, too: so what is wrong with it is said without it.
pub(super) fn id(text: &str) -> Result<&str, UsageError> {
    id_in(text.trim()).ok_or_else(|| {
        UsageError(
            "the id of a token has 12 hexadecimal digits, as `toolfleet tokens list` shows it: those behind tf_ in the token".to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_in_days_and_as_every_duration() {
        let hours = |hours: u64| Ok(Duration::from_secs(hours * 3_600));
        assert_eq!(expires("90d"), hours(90 * 24));
        assert_eq!(expires("12h"), hours(12));
        assert_eq!(expires("3650d"), hours(3_650 * 24));
        assert_eq!(expires("60s"), expires("1m"));
        for wrong in [
            "",
            "d",
            "90",
            "90 d",
            "1.5d",
            "-1d",
            "0d",
            "59s",
            "3651d",
            "18446744073709551615d",
            "soon",
        ] {
            assert!(expires(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_one_that_every_edge_can_carry() {
        for text in [
            "a",
            "ann",
            "7",
            "ann@corp.example",
            "shop-agent.v2+eu",
            &"a".repeat(64),
        ] {
            assert!(name(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "-a",
            ".a",
            "ann smith",
            "änn",
            "a\n",
            "a/b",
            &"a".repeat(65),
        ] {
            assert!(name(text).is_err(), "{text:?}");
        }
    }
}
