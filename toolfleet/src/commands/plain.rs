//! Text that cannot steer a terminal.

use std::fmt::Write as _;

use fleet::invisible::{is_invisible, is_other_blank, is_seldom_seen};

/// The columns of a terminal, after which text for who has to know exactly what stands there is folded.
const COLUMNS: usize = 80;
/// Where that text begins, behind its label.
const LABEL: usize = 14;

/// The text with every character made visible that could move a cursor, colour, hide or reverse other text.
pub(super) fn plain(text: &str) -> String {
    shown(text, steers)
}

/// As [`plain`], with everything as escapes that cannot be told from something else.
pub(super) fn exact(text: &str) -> String {
    shown(text, hides)
}

/// The text with its long lines broken, at a space where there is one, so that no part of a value stands where a line of ours begins.
pub(super) fn folded(text: &str) -> String {
    let lines = text.split('\n').map(folded_line);
    lines.collect::<Vec<_>>().join("\n")
}

fn folded_line(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let indent = " ".repeat((indent + 2).clamp(LABEL, COLUMNS / 2));
    let (mut before, mut last) = (String::new(), String::new());
    for letter in line.chars() {
        if width(&last) + letter_width(letter) > COLUMNS {
            let space = last.rfind(' ').filter(|at| last.len() - at < COLUMNS / 2);
            let rest = space.map(|at| last.split_off(at + 1));
            before.push_str(last.trim_end());
            before.push('\n');
            last = indent.clone() + rest.as_deref().unwrap_or_default();
        }
        last.push(letter);
    }
    before + &last
}

fn width(text: &str) -> usize {
    text.chars().map(letter_width).sum()
}

/// Some letters of other scripts take two columns.
const fn letter_width(letter: char) -> usize {
    if letter.is_ascii() { 1 } else { 2 }
}

/// Whether a character becomes an escape where it has to be known exactly what stands there: what steers, what is hardly seen, blanks that
/// only look like a space, and all but the first of several spaces.
pub(super) fn hides(before: Option<char>, letter: char) -> bool {
    steers(before, letter)
        || is_other_blank(letter)
        || is_seldom_seen(letter)
        || (letter == ' ' && before == Some(' '))
}

fn shown(text: &str, escapes: fn(Option<char>, char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            letter if escapes(before, letter) => {
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
    fn no_part_of_a_long_value_stands_where_a_line_of_ours_begins() {
        let id = "01a22098-043d-7082-a05f-e020ab8629c6";
        let asked =
            format!("preview       get_balance, asked at 2026-11-28T05:19:23.500Z by call {id}");
        assert_eq!(
            folded(&asked),
            asked.replace(&format!(" {id}"), &format!("\n{:14}{id}", ""))
        );
        let value = format!(
            "arguments     \"{}hash          abc",
            "x".repeat(COLUMNS - 15)
        );
        let lines = folded(&value);
        assert!(
            lines.contains("\n              hash          abc"),
            "{lines}"
        );
        assert!(lines.lines().all(|line| line.len() <= COLUMNS), "{lines}");
        let nested = format!("{:70}{}", "", "苏".repeat(60));
        assert!(
            folded(&nested)
                .lines()
                .skip(1)
                .all(|line| line.starts_with("          "))
        );
        assert_eq!(folded("a\nb"), "a\nb");
    }

    #[test]
    fn what_cannot_be_told_from_something_else_is_an_escape() {
        assert_eq!(exact("a b"), "a b");
        assert_eq!(exact("bob   x"), "bob \\u{20}\\u{20}x");
        assert_eq!(
            exact("acc\u{fe0f}ount\u{2800}\u{e000}"),
            "acc\\u{fe0f}ount\\u{2800}\\u{e000}"
        );
    }

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
