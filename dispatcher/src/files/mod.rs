//! `file`: callers hand in files, in chunks, and look at them, read and delete them.
//!
//! A chunk is a request with the headers `Toolfleet-File` and `Toolfleet-File-Offset` and raw bytes in its body (`chunk`);
//! everything else is a JSON object with `op` (`op`). The ledger decides about both, so every dispatcher may have the next chunk.
//! `named` looks at the files that a call names, `room` bounds how many of these requests are in hand.

mod chunk;
mod forms;
mod headers;
pub(crate) mod named;
mod op;
mod refusals;
pub(crate) mod room;

use crate::{answer::Answer, door::Door, refusal::Refusal, request::Request};

/// Answers one request about files.
///
/// # Errors
///
/// It is refused: nothing was changed.
pub(crate) async fn file(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let place = chunk::Place::read(&request.headers)?;
    let turn = door.file_room.enter(&tenant)?.turn().await;
    let answer = match place {
        Some(place) => Box::pin(chunk::take(door, &tenant, place, request.body)).await?,
        None => Box::pin(op::answer(door, &tenant, request.body)).await?,
    };
    Ok(answer.holding(turn))
}
