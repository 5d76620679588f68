//! How many tokens a request has, where nobody has counted them. Pure.
//!
//! It counts texts only, and neither names of members nor what is no text, such as an image: rather too few than too many, for a
//! request that is taken for too large is not sent.

use serde_json::Value;

/// A text that is longer than this and has only letters of Base64 is taken for data.
const DATA_MIN: usize = 1024;

/// The estimate of all texts in a value.
pub(super) fn tokens(value: &Value) -> u64 {
    let mut open = vec![value];
    let mut twentieths = 0;
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) if is_data(text) => {}
            Value::String(text) => twentieths += text.chars().map(weight).sum::<u64>(),
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    u64::div_ceil(twentieths, 20)
}

/// The estimate of so many bytes of text, as of letters.
pub(super) const fn of_bytes(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

/// How much of a token a character is, in twentieths.
fn weight(character: char) -> u64 {
    match character {
        'a'..='z' | 'A'..='Z' | ' ' | '\n' | '\t' | '\r' => 5,
        '!'..='~' => 8,
        '\u{2e80}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff00}'..='\u{ffef}'
        | '\u{20000}'..='\u{3ffff}' => 18,
        // The rest of Latin.
        '\u{c0}'..='\u{24f}' => 5,
        _others => 10,
    }
}

fn is_data(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte);
    text.starts_with("data:") || (text.len() > DATA_MIN && text.bytes().all(letter))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_counted_by_their_script_and_data_is_not() {
        for (value, expected) in [
            (json!("abcd"), 1),
            (json!("hello world"), 3),
            (json!("12345"), 2),
            (json!("你好，世界"), 5),
            (json!("привет"), 3),
            (
                json!({"content": ["abcd", {"text": "abcd"}], "n": 123_456}),
                2,
            ),
            (json!("data:image/png;base64,AAAA"), 0),
            (json!("A".repeat(5000)), 0),
            (json!("A ".repeat(5000)), 2500),
            (json!(null), 0),
        ] {
            assert_eq!(tokens(&value), expected, "{value}");
        }
    }
}
