//! Durations with their unit: `500ms`, `30s`, `5m`, `24h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Reads `500ms`, `30s`, `5m` or `24h`.
///
/// # Errors
///
/// A sentence that says what a duration looks like.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let refuse = || explain(text);
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

/// What is wrong with a text that is no duration, and what to write: with a unit where only that is missing, in whole numbers,
/// and in known units.
pub(super) fn explain(text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    let (number, unit) = text.trim().split_at(
        text.trim()
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.trim().len()),
    );
    let Ok(amount) = number.parse::<f64>() else {
        return format!("{shown:?} is not a duration; write one such as 500ms, 30s, 5m or 24h");
    };
    let millis = match unit.trim().to_lowercase().as_str() {
        "" if !number.contains('.') => {
            return format!("{shown} has no unit; write {number}s, or {number} with ms, m or h");
        }
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => 1.0,
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1_000.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
        "h" | "hr" | "hour" | "hours" => 3_600_000.0,
        "d" | "day" | "days" => 86_400_000.0,
        "w" | "week" | "weeks" => 604_800_000.0,
        _other => {
            return format!("{shown:?} is not a duration; write one such as 500ms, 30s, 5m or 24h");
        }
    };
    let exact = Duration::try_from_secs_f64(amount * millis / 1_000.0);
    match exact {
        Ok(meant) if !meant.is_zero() && meant.as_secs() < 1_000_000_000 => {
            format!(
                "{shown:?} is not a duration; write {}",
                format_duration(meant)
            )
        }
        _absurd => format!("{shown:?} is not a duration; write one such as 500ms, 30s, 5m or 24h"),
    }
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

    #[test]
    fn what_was_meant_is_said() {
        for (wrong, meant) in [
            ("30", "30 has no unit; write 30s, or 30 with ms, m or h"),
            ("30 seconds", "\"30 seconds\" is not a duration; write 30s"),
            ("1.5s", "\"1.5s\" is not a duration; write 1500ms"),
            ("7d", "\"7d\" is not a duration; write 168h"),
            ("2 Min", "\"2 Min\" is not a duration; write 2m"),
            (
                "-1s",
                "\"-1s\" is not a duration; write one such as 500ms, 30s, 5m or 24h",
            ),
            (
                "99999999999999999999h",
                "\"99999999999999999999h\" is not a duration; write one such as 500ms, 30s, 5m or 24h",
            ),
        ] {
            assert_eq!(parse_duration(wrong), Err(meant.to_owned()));
            if let Some((_, write)) = meant
                .split_once("; write ")
                .filter(|(_, write)| !write.contains(' '))
            {
                assert!(parse_duration(write).is_ok(), "{write}");
            }
        }
    }
}
