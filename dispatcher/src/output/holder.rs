//! As what the sender of a token has a call. Whoever has no token of it learns nothing of the call, not even that it is there.

use fleet::{
    call::Awaiting,
    ids::AttemptId,
    store::{
        awaiting, park,
        read::{CallRow, CallState},
    },
    wire::token::{Handed, HandedAs},
};

use crate::{door::Door, refusal::Refusal};

/// As what the sender has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenHolder {
    /// As the attempt that the call waits for, runs as, is in doubt about, or was decided by.
    Of(Awaiting, AttemptId),
    /// As an earlier attempt of a tool that answers later.
    Earlier(AttemptId),
    /// As a caller of whom its tool wanted to know something at this revision.
    Asked(i32),
}

/// Looks at what the row says, and where that is not it, at what the call was handed out as before.
///
/// # Errors
///
/// It is not a token of this call; or Postgres does not answer.
pub(super) async fn holder(
    door: &Door,
    row: &CallRow,
    token: &str,
) -> Result<TokenHolder, Refusal> {
    let has = |awaiting, turn| {
        let handed = Handed {
            call: row.call_id,
            awaiting,
            turn,
        };
        door.tokens.is_of(token, &handed)
    };
    let of_attempt = |attempt: AttemptId| {
        let kinds = [Awaiting::Client, Awaiting::Completion].into_iter();
        let mut kinds = kinds.filter(|whom| has(*whom, HandedAs::Attempt(attempt)));
        kinds.next().map(|whom| TokenHolder::Of(whom, attempt))
    };
    let current = match &row.state {
        // Nobody was handed what waits for a yes.
        CallState::Awaiting(awaiting) if awaiting.handed.awaiting == Awaiting::Approval => None,
        CallState::Awaiting(awaiting) => match awaiting.handed.turn {
            HandedAs::Attempt(attempt) => of_attempt(attempt),
            HandedAs::Revision(rev) => {
                has(Awaiting::Input, HandedAs::Revision(rev)).then_some(TokenHolder::Asked(rev))
            }
        },
        CallState::Running { attempt, .. } => of_attempt(*attempt),
        CallState::InDoubt(doubtful) => doubtful.attempt.and_then(of_attempt),
        CallState::Ended(_) => {
            let stored = awaiting::stored(&door.pool, row.call_id).await;
            let stored = stored.map_err(|error| Refusal::unreadable(&error))?;
            stored
                .and_then(|stored| stored.attempt_id)
                .and_then(of_attempt)
        }
        CallState::Queued { .. } => None,
    };
    if let Some(current) = current {
        return Ok(current);
    }
    let earlier = park::handed(&door.pool, row.call_id).await;
    let earlier = earlier.map_err(|error| Refusal::unreadable(&error))?;
    let earlier = earlier
        .iter()
        .find(|handed| door.tokens.is_of(token, handed));
    match earlier.map(|handed| handed.turn) {
        Some(HandedAs::Attempt(attempt)) => Ok(TokenHolder::Earlier(attempt)),
        Some(HandedAs::Revision(rev)) => Ok(TokenHolder::Asked(rev)),
        None => Err(Refusal::not_found()),
    }
}
