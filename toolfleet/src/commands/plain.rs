//! Text that cannot steer a terminal.

use std::fmt::Write as _;

/// The text with every character made visible that could move a cursor, colour, hide or reverse other text.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            letter if steers(letter) => {
                write!(shown, "\\u{{{:x}}}", u32::from(letter)).expect("a String takes everything");
            }
            letter => shown.push(letter),
        }
    }
    shown
}

/// Control characters (C0, DEL, C1), the marks that change the direction of text, and the other line ends.
pub(super) fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_stays() {
        let hostile = "a\u{1b}[31m\u{9b}2J\u{7f}\u{202e}b\u{2066}c\nd\u{200f}\u{2028}";
        assert_eq!(
            plain(hostile),
            "a\\u{1b}[31m\\u{9b}2J\\u{7f}\\u{202e}b\\u{2066}c\\nd\\u{200f}\\u{2028}"
        );
        assert_eq!(plain("Zürich 苏黎世 👩‍🚀"), "Zürich 苏黎世 👩‍🚀");
    }
}
