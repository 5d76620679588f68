//! Dates, times and spans: RFC 3339 and ISO 8601, from microseconds since the year 2000.
//!
//! Postgres knows years from 4713 BC to 294276 AD; where RFC 3339 has none, the year has more digits or ends with ` BC`.

use std::fmt::Write;

const DAY: i64 = 86_400_000_000;

/// Days since 2000-01-01.
pub(super) fn date(days: i32) -> String {
    match days {
        i32::MAX => "infinity".to_owned(),
        i32::MIN => "-infinity".to_owned(),
        days => {
            let (year, month, day) = civil(days.into());
            if year > 0 {
                format!("{year:04}-{month:02}-{day:02}")
            } else {
                format!("{:04}-{month:02}-{day:02} BC", 1 - year)
            }
        }
    }
}

/// Microseconds since midnight.
pub(super) fn time(micros: i64) -> String {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let mut text = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    push_fraction(&mut text, fraction);
    text
}

/// Microseconds since midnight, and seconds west of Greenwich.
pub(super) fn time_with_zone(micros: i64, west: i32) -> String {
    let sign = if west > 0 { '-' } else { '+' };
    let zone = west.unsigned_abs();
    let mut text = format!(
        "{}{sign}{:02}:{:02}",
        time(micros),
        zone / 3600,
        zone / 60 % 60
    );
    if !zone.is_multiple_of(60) {
        write!(text, ":{:02}", zone % 60).expect("a String takes everything");
    }
    text
}

/// Microseconds since 2000-01-01.
pub(super) fn timestamp(micros: i64, zone: &str) -> String {
    match micros {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        micros => {
            let days = i32::try_from(micros.div_euclid(DAY)).unwrap_or(i32::MAX - 1);
            let (day, time) = (date(days), time(micros.rem_euclid(DAY)));
            match day.strip_suffix(" BC") {
                Some(day) => format!("{day}T{time}{zone} BC"),
                None => format!("{day}T{time}{zone}"),
            }
        }
    }
}

/// Microseconds, days and months, none of which makes up another.
pub(super) fn interval(micros: i64, days: i32, months: i32) -> String {
    let mut text = "P".to_owned();
    let mut part = |amount: i64, unit: char| {
        if amount != 0 {
            write!(text, "{amount}{unit}").expect("a String takes everything");
        }
    };
    part(i64::from(months / 12), 'Y');
    part(i64::from(months % 12), 'M');
    part(i64::from(days), 'D');
    if micros == 0 {
        return if text.len() == 1 {
            "PT0S".to_owned()
        } else {
            text
        };
    }
    text.push('T');
    let mut part = |amount: i64, unit: char| {
        if amount != 0 {
            write!(text, "{amount}{unit}").expect("a String takes everything");
        }
    };
    part(micros / 3_600_000_000, 'H');
    part(micros / 60_000_000 % 60, 'M');
    let (seconds, fraction) = (micros / 1_000_000 % 60, micros % 1_000_000);
    if seconds != 0 || fraction != 0 {
        if micros < 0 {
            text.push('-');
        }
        write!(text, "{}", seconds.abs()).expect("a String takes everything");
        push_fraction(&mut text, fraction.abs());
        text.push('S');
    }
    text
}

fn push_fraction(text: &mut String, micros: i64) {
    if micros != 0 {
        let digits = format!("{micros:06}");
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
    }
}

/// Year, month and day of a day since 2000-01-01, in the Gregorian calendar; the year before 1 is 0.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from the first of March of a year that 400 divides, so that the leap day is the last of its year.
    let since = days + 730_425;
    let (era, day_of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (days, expected) in [
            (0, "2000-01-01"),
            (59, "2000-02-29"),
            (60, "2000-03-01"),
            (366, "2001-01-01"),
            (-1, "1999-12-31"),
            (-10_957, "1970-01-01"),
            (-730_119, "0001-01-01"),
            (-730_120, "0001-12-31 BC"),
            (36_583, "2100-02-28"),
            (36_584, "2100-03-01"),
            (i32::MAX, "infinity"),
            (i32::MIN, "-infinity"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn moments_and_spans_are_those_of_the_standards() {
        assert_eq!(time(0), "00:00:00");
        assert_eq!(time(DAY), "24:00:00");
        assert_eq!(time(45_296_120_000), "12:34:56.12");
        assert_eq!(time_with_zone(0, -7200), "00:00:00+02:00");
        assert_eq!(time_with_zone(0, 12_601), "00:00:00-03:30:01");
        assert_eq!(timestamp(0, "Z"), "2000-01-01T00:00:00Z");
        assert_eq!(timestamp(-1, ""), "1999-12-31T23:59:59.999999");
        assert_eq!(interval(0, 0, 0), "PT0S");
        assert_eq!(interval(3_600_000_000, 3, 14), "P1Y2M3DT1H");
        assert_eq!(interval(-1_500_000, 0, -1), "P-1MT-1.5S");
        assert_eq!(interval(61_000_001, 0, 0), "PT1M1.000001S");
    }
}
