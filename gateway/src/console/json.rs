//! JSON as people read it: indented, with every number in the digits it came with, and what is not seen as JSON writes it.

use super::text::is_odd;

/// How deep lines are indented; what is deeper stays at that.
const DEPTH_MAX: usize = 40;
/// How many times as long JSON may become on a page, beyond what is free for every one.
const GROWTH_MAX: usize = 4;
const INDENT_FREE: usize = 16 * 1024;

/// The same JSON text over several lines. What is no JSON comes out as it went in, as far as brackets say.
pub(super) fn indented(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let mut depth = 0_usize;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                out.push('"');
                let mut is_escaped = false;
                for inner in characters.by_ref() {
                    out.push(inner);
                    match (is_escaped, inner) {
                        (false, '"') => break,
                        (false, '\\') => is_escaped = true,
                        _ => is_escaped = false,
                    }
                }
            }
            '{' | '[' => {
                out.push(character);
                while characters
                    .next_if(|next| next.is_ascii_whitespace())
                    .is_some()
                {}
                let closing = if character == '{' { '}' } else { ']' };
                if characters.next_if_eq(&closing).is_some() {
                    out.push(closing);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

/// The same JSON, in which every character that is not seen or turns the order of others is written by its number. So it still is JSON when
/// somebody copies it.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_odd(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out
}

/// JSON on a page: indented, where that does not make it many times as long, as it does where lists are deep and short.
pub(super) fn shown(text: &str) -> String {
    let indented = indented(text);
    match indented.len() > GROWTH_MAX * text.len() + INDENT_FREE {
        true => visible(text),
        false => visible(&indented),
    }
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    for _step in 0..depth.min(DEPTH_MAX) {
        out.push_str("  ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_stay_as_they_are() {
        let text =
            r#"{"a": 9007199254740993, "b":[1.50, {}, [ ], "x, {\"y\": \\"], "c":{"d":null}}"#;
        let expected = "{\n  \"a\": 9007199254740993,\n  \"b\": [\n    1.50,\n    {},\n    [],\n    \"x, {\\\"y\\\": \\\\\"\n  ],\n  \"c\": {\n    \"d\": null\n  }\n}";
        assert_eq!(indented(text), expected);
        assert_eq!(indented(&indented(text)), expected);
    }

    #[test]
    fn what_is_not_seen_is_written_as_json_writes_it() {
        let odd = "{\"a\":\"x\u{202e}\u{e0001}y\"}";
        let seen = visible(odd);
        assert_eq!(seen, r#"{"a":"x\u202e\udb40\udc01y"}"#);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&seen), value(odd));
    }

    #[test]
    fn a_deep_one_does_not_grow_without_bound() {
        let deep = "[".repeat(5_000);
        assert!(indented(&deep).len() < deep.len() * (2 * DEPTH_MAX + 3));
        assert!(shown(&deep).len() <= GROWTH_MAX * deep.len() + INDENT_FREE);
        assert_eq!(shown("[1]"), "[\n  1\n]");
    }
}
