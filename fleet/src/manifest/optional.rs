//! A duration that may be absent.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

use super::duration::{format_duration, parse_duration};

pub(super) fn serialize<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => serializer.serialize_str(&format_duration(*duration)),
        None => serializer.serialize_none(),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| parse_duration(&text).map_err(D::Error::custom))
        .transpose()
}
