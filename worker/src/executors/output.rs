//! A tool's answer as one JSON value.

use serde_json::value::RawValue;

/// Reads an answer; the flag says whether it had to be mended.
///
/// # Errors
///
/// A sentence that says why it is not JSON.
pub fn json(bytes: &[u8]) -> Result<(Box<RawValue>, bool), String> {
    let text =
        std::str::from_utf8(bytes).map_err(|_position| "the answer is not UTF-8".to_owned())?;
    let value =
        serde_json::from_str(text).map_err(|_position| "the answer is not JSON".to_owned())?;
    Ok((value, false))
}
