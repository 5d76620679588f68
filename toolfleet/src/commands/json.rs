//! JSON for people: formatted token by token, so that numbers keep their digits and members their order.
//!
//! JSON may contain a bidirectional override or a C1 control; here they become `\u` escapes, which mean the same to a program
//! and nothing to a terminal.

use std::{fmt::Write, str::Chars};

use serde_json::value::RawValue;

use super::plain::{hides, steers};

/// Deeper levels stay on the line of the deepest level that is broken into lines.
const LEVELS_MAX: usize = 32;

/// Valid JSON, one member per line.
pub(super) fn pretty(json: &str) -> String {
    layout(json, Looks::Broken, steers)
}

/// Valid JSON without white space.
pub(super) fn compact(json: &str) -> String {
    layout(json, Looks::Compact, steers)
}

/// The same JSON without white space, as a value to be sent.
pub(super) fn raw(json: &str) -> Box<RawValue> {
    let text = compact(json);
    RawValue::from_string(text).expect("JSON stays JSON without its white space")
}

/// Pretty JSON, with all lines but the first indented.
pub(super) fn indented(json: &str, by: usize) -> String {
    pretty(json).replace('\n', &format!("\n{:by$}", ""))
}

/// As [`indented`], with everything as escapes that cannot be told from something else: for who has to know exactly what stands there.
pub(super) fn exact_indented(json: &str, by: usize) -> String {
    let text = layout(json, Looks::Broken, hides);
    text.replace('\n', &format!("\n{:by$}", ""))
}

/// As [`compact`], with the same as escapes.
pub(super) fn exact_compact(json: &str) -> String {
    layout(json, Looks::Compact, hides)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// One member per line.
    Broken,
    /// Without white space.
    Compact,
}

/// Whether a character, behind the one before it, becomes an escape.
type Escapes = fn(Option<char>, char) -> bool;

fn layout(json: &str, looks: Looks, escapes: Escapes) -> String {
    let broken = looks == Looks::Broken;
    let (mut text, mut level) = (String::with_capacity(json.len()), 0_usize);
    let line = |text: &mut String, level: usize| {
        if broken && level <= LEVELS_MAX {
            write!(text, "\n{:1$}", "", 2 * level).expect("a String takes everything");
        }
    };
    let mut letters = json.chars();
    let mut empty = false;
    while let Some(letter) = letters.next() {
        if letter.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(letter, '}' | ']');
        if std::mem::take(&mut empty) && !closes {
            line(&mut text, level);
        } else if closes && !text.ends_with(['{', '[']) {
            line(&mut text, level.saturating_sub(1));
        }
        match letter {
            '"' => string(&mut letters, &mut text, escapes),
            '{' | '[' => {
                text.push(letter);
                level += 1;
                empty = true;
            }
            '}' | ']' => {
                text.push(letter);
                level = level.saturating_sub(1);
            }
            ',' => {
                text.push(',');
                line(&mut text, level);
            }
            ':' => text.push_str(if broken { ": " } else { ":" }),
            letter => text.push(letter),
        }
    }
    text
}

/// Copies a string whose opening quote has been read.
fn string(letters: &mut Chars<'_>, text: &mut String, escapes: Escapes) {
    text.push('"');
    let (mut escaped, mut before) = (false, None);
    for letter in letters {
        if escapes(before.replace(letter), letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                write!(text, "\\u{unit:04x}").expect("a String takes everything");
            }
        } else {
            text.push(letter);
        }
        if letter == '"' && !escaped {
            return;
        }
        escaped = letter == '\\' && !escaped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_order_stay_and_every_member_has_its_line() {
        let json = r#"{"b":9007199254740993,"a":[1.50,{}, [] ,"x\"]{,:\\"],"c":{"d":null}}"#;
        let expected = r#"{
  "b": 9007199254740993,
  "a": [
    1.50,
    {},
    [],
    "x\"]{,:\\"
  ],
  "c": {
    "d": null
  }
}"#;
        assert_eq!(pretty(json), expected);
        assert_eq!(compact(expected), json.replace(", [] ,", ",[],"));
        assert_eq!(indented("[1]", 4), "[\n      1\n    ]");
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_and_means_the_same() {
        let json = "{\"k\u{202e}\":\"\u{9b}2J\u{7f}苏\"}";
        let shown = compact(json);
        assert_eq!(shown, r#"{"k\u202e":"\u009b2J\u007f苏"}"#);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(json));
        assert_eq!(value(&pretty(json)), value(json));
    }

    #[test]
    fn blanks_that_look_like_spaces_are_escaped_for_who_has_to_know() {
        let blanks = "\u{a0}\u{1680}\u{2000}\u{200a}\u{202f}\u{205f}\u{3000}";
        let json = format!("[\"a b{blanks}\"]");
        assert_eq!(compact(&json), json);
        assert_eq!(exact_compact(r#"["a   b"]"#), r#"["a \u0020\u0020b"]"#);
        let escaped = r"\u00a0\u1680\u2000\u200a\u202f\u205f\u3000";
        assert_eq!(exact_compact(&json), format!("[\"a b{escaped}\"]"));
        assert_eq!(
            exact_indented(&json, 2),
            format!("[\n    \"a b{escaped}\"\n  ]")
        );
    }

    #[test]
    fn deep_nesting_does_not_grow_without_bound() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(pretty(&deep).len() < 2 * deep.len());
    }
}
