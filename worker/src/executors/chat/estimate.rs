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

/// The weights of all characters. A conversation may be a mebibyte, of which most is ASCII or Chinese: both are counted many bytes
/// at a time.
fn weight_of(text: &str) -> u64 {
    /// So few that their sum fits into 16 bits, and that one character of another script keeps few of its neighbours from that.
    const TOGETHER: usize = 64;
    let (bytes, mut sum, mut at) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        let chunk = bytes[at..].first_chunk::<TOGETHER>();
        let chunk =
            chunk.filter(|chunk| chunk.iter().fold(true, |all, byte| all & is_plain(*byte)));
        if let Some(chunk) = chunk {
            let weights = chunk.iter().map(|byte| u16::from(byte_weight(*byte)));
            sum += u64::from(weights.sum::<u16>());
            at += TOGETHER;
        } else {
            // What is left of a character before them has been counted with its first byte.
            let begins = text.ceil_char_boundary(at);
            at = text.ceil_char_boundary(begins + TOGETHER);
            sum += text[begins..at].chars().map(weight).sum::<u64>();
        }
    }
    sum
}

/// Whether [`byte_weight`] knows the byte: one of ASCII, the first of a character from U+3000 to U+9FFF, or a further one.
const fn is_plain(byte: u8) -> bool {
    (byte < 0xc0) | (byte.wrapping_sub(0xe3) < 7)
}

/// The same as [`weight`], without a branch: all of a character for its first byte, nothing for a further one.
const fn byte_weight(byte: u8) -> u8 {
    let is_letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    let is_space = (byte == b' ') | (byte == b'\n') | (byte == b'\t') | (byte == b'\r');
    let is_mark = byte.wrapping_sub(b'!') <= b'~' - b'!';
    let of_others = if is_mark { 8 } else { 10 };
    let of_ascii = if (is_letter | is_space) & (byte < 0x80) {
        5
    } else {
        of_others
    };
    let of_further = if byte < 0x80 { of_ascii } else { 0 };
    if byte >= 0xc0 { 18 } else { of_further }
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
    fn bytes_are_counted_as_their_characters_are() {
        for byte in 0..128_u8 {
            assert_eq!(
                u64::from(byte_weight(byte)),
                weight(char::from(byte)),
                "{byte}"
            );
        }
        for character in ['\u{3000}', '你', '\u{9fff}', 'あ'] {
            let of_bytes = character.to_string().bytes().map(byte_weight).sum::<u8>();
            assert_eq!(u64::from(of_bytes), weight(character), "{character}");
        }
        let mixed = "plain text, 17 marks -- \u{7f}\t你好，世界 привет é \u{2fff}\u{a000}😀 和很长的中文文本一起，没有别的字母和标点符号的文字会一次计算很多字节 ".repeat(40);
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
