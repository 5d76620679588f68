//! Moments and spans, as pages show them.

use maud::{Markup, html};
use time::{
    Duration, OffsetDateTime, UtcOffset, format_description::BorrowedFormatItem,
    macros::format_description,
};

/// How a moment is written before the script writes it in the reader's zone.
#[derive(Debug, Clone, Copy)]
pub(super) enum TimeForm {
    /// The time of the day.
    Time,
    /// With the date.
    Date,
}

/// A moment: UTC in the page and on hover; the script writes it in the reader's zone.
pub(super) fn at(moment: OffsetDateTime, form: TimeForm) -> Markup {
    const TIME: &[BorrowedFormatItem<'_>] = format_description!("[hour]:[minute]:[second]");
    const DATE: &[BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let (shape, word) = match form {
        TimeForm::Time => (TIME, "time"),
        TimeForm::Date => (DATE, "date"),
    };
    let moment = moment.to_offset(UtcOffset::UTC);
    let written = moment
        .format(shape)
        .expect("the shape has only what a moment has");
    let exact = fleet_history::instant(moment);
    let title = format!("{} UTC", exact.trim_end_matches('Z').replace('T', " "));
    html! { time datetime=(exact) title=(title) data-form=(word) { (written) } }
}

/// A span in the two greatest units that it has: `1 h 5 min`, `3.2 s`, `15 ms`.
pub(super) fn span(span: Duration) -> String {
    let span = span.max(Duration::ZERO);
    let (days, hours, minutes) = (span.whole_days(), span.whole_hours(), span.whole_minutes());
    if days > 0 {
        format!("{days} d {} h", hours % 24)
    } else if hours > 0 {
        format!("{hours} h {} min", minutes % 60)
    } else if minutes > 0 {
        format!("{minutes} min {} s", span.whole_seconds() % 60)
    } else if span >= Duration::SECOND {
        format!(
            "{}.{} s",
            span.whole_seconds(),
            span.subsec_milliseconds() / 100
        )
    } else {
        format!("{} ms", span.whole_milliseconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_two_units_at_most() {
        let of = |millis| span(Duration::milliseconds(millis));
        assert_eq!(of(-5), "0 ms");
        assert_eq!(of(999), "999 ms");
        assert_eq!(of(3_250), "3.2 s");
        assert_eq!(of(61_000), "1 min 1 s");
        assert_eq!(of(3_900_000), "1 h 5 min");
        assert_eq!(of(90_000_000), "1 d 1 h");
    }

    #[test]
    fn a_moment_says_utc_on_hover() {
        let moment = OffsetDateTime::UNIX_EPOCH.to_offset(UtcOffset::from_hms(8, 0, 0).unwrap());
        assert_eq!(
            at(moment, TimeForm::Date).into_string(),
            "<time datetime=\"1970-01-01T00:00:00.000Z\" title=\"1970-01-01 00:00:00.000 UTC\" data-form=\"date\">1970-01-01 00:00:00</time>"
        );
    }
}
