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
            Value::String(text) => twentieths += weight_of(text),
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

/// The weights of all characters. A conversation may be a mebibyte, of which most is ASCII: that is counted many bytes at a time.
fn weight_of(text: &str) -> u64 {
    /// So few that their sum fits into 16 bits, and that one character of another script keeps few of its neighbours from that.
    const TOGETHER: usize = 64;
    let mut sum = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let chunk = rest.as_bytes().first_chunk::<TOGETHER>();
        let chunk = chunk.filter(|chunk| chunk.iter().fold(0, |all, byte| all | byte) < 0x80);
        if let Some(chunk) = chunk {
            let weights = chunk.iter().map(|byte| u16::from(ascii_weight(*byte)));
            sum += u64::from(weights.sum::<u16>());
            rest = &rest[TOGETHER..];
        } else {
            let end = rest.ceil_char_boundary(TOGETHER);
            sum += rest[..end].chars().map(weight).sum::<u64>();
            rest = &rest[end..];
        }
    }
    sum
}

/// The same as [`weight`], without a branch.
const fn ascii_weight(byte: u8) -> u8 {
    let is_letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    let is_space = (byte == b' ') | (byte == b'\n') | (byte == b'\t') | (byte == b'\r');
    let is_mark = byte.wrapping_sub(b'!') <= b'~' - b'!';
    let of_others = if is_mark { 8 } else { 10 };
    if is_letter | is_space { 5 } else { of_others }
}

/// How much of a token a character is, in twentieths.
fn weight(character: char) -> u64 {
    // Most of what is not ASCII, and told from it before all others: conversations in Chinese are as long.
    if ('\u{2e80}'..='\u{9fff}').contains(&character) {
        return 18;
    }
    match character {
        'a'..='z' | 'A'..='Z' | ' ' | '\n' | '\t' | '\r' => 5,
        '!'..='~' => 8,
        '\u{ac00}'..='\u{d7af}'
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
    fn bytes_are_counted_as_their_characters_are() {
        for byte in 0..128_u8 {
            assert_eq!(
                u64::from(ascii_weight(byte)),
                weight(char::from(byte)),
                "{byte}"
            );
        }
        let mixed = "plain text, 17 marks -- \u{7f}\t你好，世界 привет é ".repeat(40);
        for end in (0..mixed.len()).filter(|end| mixed.is_char_boundary(*end)) {
            let text = &mixed[..end];
            assert_eq!(
                weight_of(text),
                text.chars().map(weight).sum::<u64>(),
                "{end}"
            );
        }
    }

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
