//! An argument on the command line.

use serde_json::value::RawValue;

/// One `k=v`. The value is sent as the JSON that it is, else as a string.
#[derive(Debug, Clone)]
pub(in crate::commands) struct Pair {
    pub(super) name: String,
    pub(super) value: Box<RawValue>,
}

impl std::str::FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(
                "write name=value; a value that is JSON is sent as JSON, else as text".into(),
            );
        };
        let value = match serde_json::from_str::<&RawValue>(value) {
            Ok(json) => json.to_owned(),
            Err(_text) => {
                serde_json::value::to_raw_value(value).map_err(|wrong| wrong.to_string())?
            }
        };
        Ok(Self {
            name: name.to_owned(),
            value,
        })
    }
}
