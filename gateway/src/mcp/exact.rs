//! Arguments as somebody has to see them who decides about them. Pure.

use std::fmt::Write as _;

use fleet::invisible::{is_invisible, is_other_blank, is_seldom_seen};

use crate::value;

/// The most bytes of arguments that are shown: longer ones nobody reads in a form.
const SHOWN_MAX: usize = 16 * 1024;

/// The arguments as somebody has to see them who decides: what is not seen, or looks like something else, is an escape. `None`: they are
/// too long for anybody to read them, or cannot be read.
pub(super) fn exact(arguments: &[u8]) -> Option<String> {
    let read = value::read(arguments)?;
    let pretty = serde_json::to_string_pretty(&read).ok()?;
    let mut shown = String::with_capacity(pretty.len());
    let mut before = None;
    let mut is_in_text = false;
    let mut is_escaped = false;
    for letter in pretty.chars() {
        let hides = is_invisible(before, letter)
            || is_other_blank(letter)
            || is_seldom_seen(letter)
            || (letter.is_control() && letter != '\n')
            || (is_in_text && letter == ' ' && before == Some(' '));
        if hides {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                write!(shown, "\\u{unit:04x}").expect("a String takes everything");
            }
        } else {
            shown.push(letter);
        }
        match letter {
            '"' if !is_escaped => is_in_text = !is_in_text,
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
        before = Some(letter);
    }
    (shown.len() <= SHOWN_MAX).then_some(shown)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_not_seen_or_looks_like_something_else_is_an_escape() {
        let shown = |text: &str| exact(text.as_bytes()).unwrap();
        assert_eq!(
            shown(r#"{"a":1.10,"b":9007199254740993}"#),
            "{\n  \"a\": 1.10,\n  \"b\": 9007199254740993\n}"
        );
        for (sent, expected) in [
            ("\u{202e}", "\\u202e"),
            ("\u{a0}", "\\u00a0"),
            ("\u{e0041}", "\\udb40\\udc41"),
            ("x  y", "x \\u0020y"),
            ("Z\u{fc}rich", "Z\u{fc}rich"),
            ("\\n", "\\n"),
            ("\\\"  ", "\\\" \\u0020"),
        ] {
            let sent = format!("{{\"a\":\"{sent}\"}}");
            assert!(shown(&sent).contains(expected), "{sent} {}", shown(&sent));
            // It is still the same value.
            let same: Value = serde_json::from_str(&shown(&sent)).unwrap();
            assert_eq!(same, serde_json::from_str::<Value>(&sent).unwrap());
        }
        assert_eq!(exact(b"{"), None);
        assert_eq!(
            exact(format!("\"{}\"", "x".repeat(SHOWN_MAX)).as_bytes()),
            None
        );
    }
}
