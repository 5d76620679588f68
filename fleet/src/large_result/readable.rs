//! JSON without the escapes that it does not need.

use std::borrow::Cow;

use memchr::memmem;

/// The same JSON with every escaped character as itself that may stand so: `"K\u00fcsse"` becomes `"Küsse"`. Many programs escape
/// all that is not ASCII, and nobody would find it by what it says.
///
/// The text must be JSON. What has nothing to change is not copied.
pub fn readable(json: &str) -> Cow<'_, str> {
    let mut read: Option<String> = None;
    // So much is copied, and so much is looked at: behind an escape, or nowhere in one.
    let (mut copied, mut seen) = (0, 0);
    // No other escape stands for a character that may stand as itself.
    for found in memmem::find_iter(json.as_bytes(), NUMBERED) {
        // The second half of a pair is read with the first one.
        if found < seen || is_escaped(&json.as_bytes()[seen..found]) {
            continue;
        }
        let (character, length) = unescaped(&json[found..]);
        seen = found + length;
        if let Some(character) = character {
            let text = read.get_or_insert_with(|| String::with_capacity(json.len()));
            text.push_str(&json[copied..found]);
            text.push(character);
            copied = seen;
        }
    }
    match read {
        Some(mut text) => {
            text.push_str(&json[copied..]);
            Cow::Owned(text)
        }
        None => Cow::Borrowed(json),
    }
}

/// How the escape of a character by its number begins.
const NUMBERED: &str = "\\u";

/// Whether the backslash behind this part, which begins outside of an escape, belongs to an escape that has begun before it.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The character that the number in an escape at the beginning of this text stands for, if it may stand as itself in a string of JSON,
/// and how many bytes the escape has.
fn unescaped(escape: &str) -> (Option<char>, usize) {
    let unit = |at: usize| u16::from_str_radix(escape.get(at..at + 4)?, 16).ok();
    let second = || match escape.get(6..8) {
        Some("\\u") => unit(8),
        Some(_) | None => None,
    };
    let units = match unit(2) {
        Some(first @ 0xd800..=0xdbff) => [Some(first), second()],
        first => [first, None],
    };
    let length = 6 * units.iter().flatten().count().max(1);
    let character = char::decode_utf16(units.into_iter().flatten()).next();
    let character = character.and_then(Result::ok);
    let stands = |c: &char| !c.is_control() && !matches!(c, '"' | '\\');
    match character.filter(stands) {
        Some(character) => (Some(character), length),
        None => (None, escape.len().min(6)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_may_stand_as_itself_does() {
        for (escaped, read) in [
            (
                r#"["K\u00fcsse \u5929 \ud83d\ude00"]"#,
                r#"["Küsse 天 😀"]"#,
            ),
            (
                r#"["\u0022 \u005c \u0000 \u007f \n \\u00fc \/"]"#,
                r#"["\u0022 \u005c \u0000 \u007f \n \\u00fc \/"]"#,
            ),
            (r#"["\ud83d x", "\ude00"]"#, r#"["\ud83d x", "\ude00"]"#),
            (r#"["\ud83d\u0041"]"#, r#"["\ud83dA"]"#),
            (
                r#"["\\u00fc \\\u00fc \\\\u00fc \u005c\u00fc"]"#,
                r#"["\\u00fc \\ü \\\\u00fc \u005cü"]"#,
            ),
        ] {
            assert_eq!(readable(escaped), read, "{escaped}");
        }
        for same in [r#"{"a": [1, "ü"]}"#, r#"["\n \"a\" \\u00fc"]"#] {
            assert!(matches!(readable(same), Cow::Borrowed(_)));
        }
    }

    /// The same, one escape after the other.
    fn read_step_by_step(json: &str) -> String {
        let (mut read, mut rest) = (String::new(), json);
        while let Some((before, _)) = rest.split_once('\\') {
            let escape = &rest[before.len()..];
            let (character, length) = match escape.as_bytes().get(1) {
                Some(b'u') => unescaped(escape),
                _ => (None, 2),
            };
            read.push_str(before);
            match character {
                Some(character) => read.push(character),
                None => read.push_str(&escape[..length]),
            }
            rest = &escape[length..];
        }
        read + rest
    }

    proptest! {
        #[test]
        fn it_finds_every_escape_and_nothing_else(
            parts in prop::collection::vec(
                prop::sample::select(vec![r"\\", r#"\""#, r"\n", "u", "u00fc", "天", r"\u00fc", r"\ud83d", r"\ude00", r"\u005c", r"\u0022"]),
                0..12,
            ),
        ) {
            let json = format!("\"{}\"", parts.concat());
            prop_assert_eq!(readable(&json), read_step_by_step(&json));
        }

        #[test]
        fn it_is_the_same_json(text in any::<String>(), other in "[\\\\\"\u{1}ü天😀a]{0,40}") {
            let value = json!({"text": text, "of": [other]});
            let escaped: String = value
                .to_string()
                .chars()
                .flat_map(|c| {
                    let mut units = [0; 2];
                    let units = c.encode_utf16(&mut units).to_vec();
                    let all = units.iter().map(|unit| format!("\\u{unit:04x}"));
                    if c.is_ascii() { c.to_string() } else { all.collect() }.chars().collect::<Vec<_>>()
                })
                .collect();
            let read: Value = serde_json::from_str(&readable(&escaped)).unwrap();
            prop_assert_eq!(read, value);
        }
    }
}
