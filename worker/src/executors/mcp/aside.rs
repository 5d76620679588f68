//! Reads what is long on a blocking thread, where it holds up nothing else of the worker.

use fleet::wire::message::Message;
use tokio::task::spawn_blocking;

use super::{
    came::Came,
    message::{self, Incoming, is_id, no_answer},
};

/// The most bytes that are read where they came.
pub(super) const LONG: usize = 64 * 1024;

/// Does the work on a blocking thread; `None`: it panicked.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    spawn_blocking(work).await.ok()
}

/// What the bytes are, as [`message::read`] says it.
///
/// # Errors
///
/// A sentence: they are no message.
pub(super) async fn read(bytes: Vec<u8>) -> Result<Incoming, Message> {
    if bytes.len() <= LONG {
        return message::read(&bytes);
    }
    let read = aside(move || message::read(&bytes)).await;
    read.unwrap_or_else(|| Err(message::no_message()))
}

/// The answer to the request with this id, of bytes that look like one.
pub(super) async fn read_answer(bytes: Vec<u8>, id: u64) -> Came {
    match read(bytes).await {
        Ok(Incoming::Answer {
            id: Some(of),
            answer,
        }) if is_id(of.get(), id) => Came::Answer(answer),
        Ok(_other) => Came::NoAnswer(no_answer(message::no_message())),
        Err(why) => Came::NoAnswer(no_answer(why)),
    }
}
