//! JSON without the escapes that it does not need.

use std::borrow::Cow;

/// The same JSON with every escaped character as itself that may stand so: `"K\u00fcsse"` becomes `"Küsse"`. Many programs escape
/// all that is not ASCII, and nobody would find it by what it says.
///
/// The text must be JSON. What has nothing to change is not copied.
pub fn readable(json: &str) -> Cow<'_, str> {
    let mut rest = json;
    let mut read: Option<String> = None;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        let text = read.get_or_insert_with(|| String::with_capacity(json.len()));
        text.push_str(before);
        let (character, length) = unescaped(escape);
        match character {
            Some(character) => text.push(character),
            None => text.push_str(&escape[..length]),
        }
        rest = &escape[length..];
    }
    match read {
        Some(mut text) => {
            text.push_str(rest);
            Cow::Owned(text)
        }
        None => Cow::Borrowed(json),
    }
}

/// The character that an escape at the beginning of this text stands for, if it may stand as itself in a string of JSON, and how many
/// bytes the escape has.
fn unescaped(escape: &str) -> (Option<char>, usize) {
    if escape.as_bytes().get(1) != Some(&b'u') {
        return (None, escape.len().min(2));
    }
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
        ] {
            assert_eq!(readable(escaped), read, "{escaped}");
        }
        assert!(matches!(readable(r#"{"a": [1, "ü"]}"#), Cow::Borrowed(_)));
    }

    proptest! {
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
