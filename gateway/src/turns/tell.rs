//! Answers with what happens to a turn, as a stream.

use std::sync::Arc;

use axum::response::Response;

use super::{
    kept,
    name::TurnName,
    telling::{TurnTold, TurnWanted},
};
use crate::{
    events::{begin::BeginAt, deliver, pipe::StreamFor, reading::Reading},
    follower::no_reading,
    refusal::Refused,
    state::Gateway,
};

/// Answers with what happens to a turn: 204 to who has had all of it.
///
/// # Errors
///
/// The stream of events cannot be read.
pub(crate) async fn told(
    gateway: Arc<Gateway>,
    whom: StreamFor,
    name: &TurnName,
    wanted: TurnWanted,
) -> Result<Response, Refused> {
    let of = kept::session_of(&wanted.tenant, name);
    let reading = Reading::open(&gateway.sessions, &of, BeginAt::Start).await;
    let reading = reading.map_err(|why| no_reading(&why))?;
    let goes_on = wanted.goes_on();
    let telling = TurnTold::new(Arc::clone(&gateway), wanted);
    let answer = deliver::answer(gateway, whom, reading, telling);
    Ok(match goes_on {
        true => answer.unless_all_is_said().await,
        false => answer.stream(),
    })
}
