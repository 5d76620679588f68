//! Expiry of calls: here no call expires, so a caller gets its answer from a message or from the poll, or not at all.

use fleet::ids::CallId;

use super::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Expiry;

impl Expiry {
    /// Never worth another look.
    pub(crate) async fn look(&self, _call: CallId) -> Duration {
        std::future::pending().await
    }
}
