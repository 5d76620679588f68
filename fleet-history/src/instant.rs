//! A moment, in a form for people.

use time::{
    OffsetDateTime, UtcOffset, format_description::BorrowedFormatItem, macros::format_description,
};

/// A moment in UTC to the millisecond, as short as RFC 3339 allows.
pub fn instant(at: OffsetDateTime) -> String {
    const SHAPE: &[BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let at = at.to_offset(UtcOffset::UTC);
    at.format(SHAPE)
        .expect("the shape uses only what a moment has")
}
