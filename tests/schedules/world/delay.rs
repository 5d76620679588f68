//! The pauses of a reconnect loop; here all alike.

use super::time::{Duration, sleep};

#[derive(Debug, Default)]
pub(crate) struct Reconnect {}

impl Reconnect {
    pub(crate) async fn pause(&mut self) {
        sleep(Duration::from_millis(100)).await;
    }

    pub(crate) const fn reached(&mut self) {}
}
