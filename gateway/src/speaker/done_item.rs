//! An item that is done, as those who follow its turn share it.

use serde::Serialize;
use serde_json::value::RawValue;

/// An item that is done, as JSON.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct DoneItem(Box<RawValue>);

impl DoneItem {
    pub(super) const fn new(json: Box<RawValue>) -> Self {
        Self(json)
    }
}

impl AsRef<str> for DoneItem {
    fn as_ref(&self) -> &str {
        self.0.get()
    }
}
