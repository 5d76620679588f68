//! A moment on the command line.

use std::{str::FromStr, time::Duration};

use fleet::manifest::parse_duration;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A moment, or a time before now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    At(OffsetDateTime),
    Ago(Duration),
}

impl Moment {
    /// The moment. A time longer ago than the calendar reaches is the first moment of 1970, before every call.
    pub(super) fn at(self, now: OffsetDateTime) -> OffsetDateTime {
        match self {
            Self::At(moment) => moment,
            Self::Ago(ago) => time::Duration::try_from(ago)
                .ok()
                .and_then(|ago| now.checked_sub(ago))
                .map_or(OffsetDateTime::UNIX_EPOCH, |moment| {
                    moment.max(OffsetDateTime::UNIX_EPOCH)
                }),
        }
    }
}

impl Moment {
    /// What was given, in one spelling.
    pub(super) fn spelled(self) -> String {
        match self {
            Self::At(moment) => format!("{} ns", moment.unix_timestamp_nanos()),
            Self::Ago(ago) => format!("{} ms ago", ago.as_millis()),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    /// Accepts RFC 3339 with its offset, and durations as in manifests.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(moment) = OffsetDateTime::parse(text, &Rfc3339) {
            return Ok(Self::At(moment));
        }
        // A text that begins with a year was not meant as a duration.
        if text.get(..5).is_some_and(|year| year.ends_with('-')) {
            return Err(
                "a moment has a date, a time and an offset; write one such as 2026-11-23T08:00:00Z \
                 or 2026-11-23T08:00:00+08:00"
                    .to_owned(),
            );
        }
        parse_duration(text)
            .map(Self::Ago)
            .map_err(|wrong| format!("{wrong}; or a moment such as 2026-11-23T08:00:00Z"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime =
        OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::days(20_000));

    fn at(text: &str) -> OffsetDateTime {
        text.parse::<Moment>().unwrap().at(NOW)
    }

    #[test]
    fn a_duration_counts_back_from_now_and_a_moment_is_itself() {
        assert_eq!(at("2h"), NOW - time::Duration::hours(2));
        assert_eq!(at("500ms"), NOW - time::Duration::milliseconds(500));
        assert_eq!(at("2024-10-04T08:00:00+08:00"), NOW);
        assert_eq!(
            at("2024-10-04T00:00:00.25Z"),
            NOW + time::Duration::milliseconds(250)
        );
    }

    #[test]
    fn what_is_longer_ago_than_any_call_is_the_beginning_of_1970() {
        for long in ["18446744073709551615ms", "5000000h"] {
            assert_eq!(at(long), OffsetDateTime::UNIX_EPOCH, "{long}");
        }
    }

    #[test]
    fn what_is_neither_is_told_what_to_write() {
        for (wrong, advice) in [
            ("2", "write 2s"),
            ("1d", "write 24h"),
            ("yesterday", "2026-11-23T08:00:00Z"),
            ("2026-11-23", "2026-11-23T08:00:00Z"),
            ("2026-11-23T08:00:00", "an offset"),
            ("", "2026-11-23T08:00:00Z"),
        ] {
            let told = wrong.parse::<Moment>().unwrap_err();
            assert!(told.contains(advice), "{wrong}: {told}");
        }
    }
}
