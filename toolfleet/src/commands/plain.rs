//! Text that cannot steer a terminal.

use std::fmt::Write as _;

use fleet::invisible::is_invisible;

/// The text with every character made visible that could move a cursor, colour, hide or reverse other text.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            letter if steers(before, letter) => {
                write!(shown, "\\u{{{:x}}}", u32::from(letter)).expect("a String takes everything");
            }
            letter => shown.push(letter),
        }
        before = Some(letter);
    }
    shown
}

/// Control characters (C0, DEL, C1), and what is not seen behind the letter before it, marks of direction among them.
pub(super) fn steers(before: Option<char>, letter: char) -> bool {
    letter.is_control() || is_invisible(before, letter)
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
        assert_eq!(
            plain("pay\u{200b}\u{ad}\u{feff}\u{e0041}!"),
            "pay\\u{200b}\\u{ad}\\u{feff}\\u{e0041}!"
        );
        assert_eq!(plain("Zürich 苏黎世 👩‍🚀"), "Zürich 苏黎世 👩‍🚀");
    }
}
