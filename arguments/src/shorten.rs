//! A text cut to a number of bytes.

use std::borrow::Cow;

/// At most `bytes_max` bytes of a text, cut at a character boundary and marked with an ellipsis where cut.
pub fn shorten(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8()));
    Cow::Owned(format!("{}…", &text[..end]))
}
