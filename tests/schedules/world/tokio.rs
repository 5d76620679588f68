//! tokio, as shuttle has it, but with a time of our own.

pub(crate) use shuttle_tokio::{select, sync, task};

pub(crate) use super::time;

/// What shuttle's receiver does not have.
pub(crate) trait ReceiveMany<T> {
    /// Waits for one, then takes what else is there, up to `limit`.
    async fn recv_many(&mut self, into: &mut Vec<T>, limit: usize) -> usize;
}

impl<T> ReceiveMany<T> for sync::mpsc::Receiver<T> {
    async fn recv_many(&mut self, into: &mut Vec<T>, limit: usize) -> usize {
        let before = into.len();
        into.extend(self.recv().await);
        while into.len() > before
            && into.len() - before < limit
            && let Ok(next) = self.try_recv()
        {
            into.push(next);
        }
        into.len() - before
    }
}
