//! JSON that a client has written, as a value.

use fleet::arguments::has_reserved_key;
use serde_json::Value;

/// The value of a text; `None`: it is no JSON, nested too deep, or has a key that `serde_json` would read as JSON of its own, which may be
/// nested deeper than any stack.
pub(crate) fn read(json: &[u8]) -> Option<Value> {
    if has_reserved_key(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn json_within_json_is_not_read() {
        assert!(read(br#"{"a":1.10}"#).is_some());
        for json in [
            &br#"{"$serde_json::private::RawValue":"[]"}"#[..],
            br#"[{"\u0024serde_json::private::Number":"1"}]"#,
            b"nope",
        ] {
            assert!(read(json).is_none());
        }
    }
}
