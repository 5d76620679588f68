//! Durations with their unit: `500ms`, `30s`, `5m`, `24h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Reads `500ms`, `30s`, `5m` or `24h`.
///
/// # Errors
///
/// A sentence that says what a duration looks like.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is not a duration such as 500ms, 30s, 5m or 24h");
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .ok_or_else(refuse)?,
    );
    let count: u64 = digits.parse().map_err(|_not_a_number| refuse())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(refuse()),
    };
    count
        .checked_mul(millis)
        .map(Duration::from_millis)
        .ok_or_else(refuse)
}

/// Writes a duration as [`parse_duration`] reads it, in the largest unit that is exact.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        m if m % 3_600_000 == 0 => format!("{}h", m / 3_600_000),
        m if m % 60_000 == 0 => format!("{}m", m / 60_000),
        m if m % 1_000 == 0 => format!("{}s", m / 1_000),
        m => format!("{m}ms"),
    }
}

pub(super) fn serialize<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["500ms", "30s", "5m", "24h", "0s", "1500ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        for wrong in [
            "",
            "5",
            "s",
            "5 s",
            "1.5s",
            "-1s",
            "5d",
            "99999999999999999999h",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
