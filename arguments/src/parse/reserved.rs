//! Keys that `serde_json` reads as something else.

/// How they begin. An object with one of them is read as a number or as JSON within a text: that is nested anew, however deep the object
/// itself stands, so no count of the levels of the text bounds the stack that reading it takes.
pub(super) const KEYS: &str = "$serde_json::private::";

/// Whether JSON has a key that `serde_json` would read as something else.
///
/// To be asked before a text from outside becomes a [`Value`](serde_json::Value), unless [`parse`](super::parse) reads it. Of what is no
/// JSON, every key counts up to where it is none.
/// It takes no stack, and one pass.
pub fn has_reserved_key(json: &[u8]) -> bool {
    let bytes = json;
    let mut at = 0;
    while let Some(begin) = bytes[at..].iter().position(|byte| *byte == b'"') {
        let begin = at + begin;
        let Some(end) = end_of_string(bytes, begin + 1) else {
            return false;
        };
        at = end + 1;
        let is_key = bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
        if is_key && begins_reserved(&bytes[begin..at]) {
            return true;
        }
    }
    false
}

/// Where the string ends whose first character stands here.
fn end_of_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// `literal`: a key with its quotes.
fn begins_reserved(literal: &[u8]) -> bool {
    if !literal.contains(&b'\\') {
        return literal[1..].starts_with(KEYS.as_bytes());
    }
    // What is no text here is none for any other reader.
    serde_json::from_slice::<String>(literal).is_ok_and(|key| key.starts_with(KEYS))
}

#[cfg(test)]
mod tests {
    use super::has_reserved_key;

    #[test]
    fn a_reserved_key_is_found_however_it_is_written_and_wherever_it_stands() {
        for json in [
            r#"{"$serde_json::private::RawValue":"[]"}"#,
            r#"{"$serde_json::private::Number" : "1"}"#,
            r#"[{"a\"":{"\u0024serde_json\u003a:private::RawValue"
                :"1"}}]"#,
            r#"{"a":"\\","$serde_json::private::x":1}"#,
        ] {
            assert!(has_reserved_key(json.as_bytes()), "{json}");
        }
        for json in [
            r#"{"a":"$serde_json::private::RawValue","b":["$serde_json::private::Number"]}"#,
            r#"{"x$serde_json::private::RawValue":1,"$serde":2,"\ud800":3}"#,
            r#"{"a":"\"$serde_json::private::Number\":"}"#,
            "7",
            "",
            "\"",
        ] {
            assert!(!has_reserved_key(json.as_bytes()), "{json}");
        }
    }
}
