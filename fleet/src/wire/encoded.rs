//! Bytes written as text.

/// Whether a text is base64 as RFC 4648 writes it, with its padding; an empty one is.
pub fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    text.len().is_multiple_of(4) && text.len() - digits.len() <= 2 && digits.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_another_alphabet_or_length_is_none() {
        for text in ["", "aGk=", "aA==", "abcd", "+/+/"] {
            assert!(is_base64(text), "{text:?}");
        }
        for text in [
            "a", "aGk", "aG=k", "a===", "====", "aG k", "-_-_", "aGkä", "aGk=\n",
        ] {
            assert!(!is_base64(text), "{text:?}");
        }
    }
}
