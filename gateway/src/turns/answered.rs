//! What becomes of a turn's other calls once the final one has its answer: with `on_final: cancel` they are taken back, whether somebody
//! follows the turn or not.
//!
//! Each gateway that tells the turn does it, and so does the one that was asked to make it. Taking back twice is taking back once.

use std::sync::Arc;

use fleet::{
    ids::{CallId, Label},
    manifest::Manifest,
    wire::envelope::{Envelope, is_error},
};
use fleet_client::{Question, calls::Cancelling};
use tokio::time::Instant;

use crate::{
    refusal::Repeatable,
    speaker::{FinalRow, TurnHeader},
    state::Gateway,
    wait::{WaitUntil, wait},
};

/// The reason of a cancellation in the history.
const ANSWERED: &str = "another call of its turn has the answer";
/// Waits for the answer of a turn's final call, where the others are taken back then.
///
/// Until it is decided, at most as long as a call may
/// take; not where this gateway waits for as many as it may, and not when it stops: then who follows the turn has it done.
pub(crate) fn watch(gateway: &Arc<Gateway>, tenant: &Label, header: &TurnHeader) {
    let Some((answering, others)) = header.taken_back_for_an_answer() else {
        return;
    };
    let Some(place) = gateway.answers_waited.enter() else {
        tracing::debug!("too many turns are waited for; who follows this one takes back its calls");
        return;
    };
    let (gateway, tenant) = (Arc::clone(gateway), tenant.clone());
    let tasks = gateway.tasks.clone();
    tasks.spawn(async move {
        let _place = place;
        let until = Instant::now() + Manifest::DEADLINE_MAX;
        let waiting = wait(&gateway.desk, &tenant, answering, until, WaitUntil::Decided);
        let decided = tokio::select! {
            biased;
            () = gateway.stopping.cancelled() => return,
            decided = waiting => decided,
        };
        let envelope = decided
            .ok()
            .and_then(|answer| answer.read::<Envelope>().ok());
        let row = envelope.as_ref().and_then(FinalRow::of);
        if row.is_some_and(|row| row.state.answers_waiters() && !is_error(row.outcome)) {
            take_back(&gateway, &tenant, &others);
        }
    });
}

/// Takes calls back that are of no use any more. Nothing waits for it.
pub(super) fn take_back(gateway: &Gateway, tenant: &Label, calls: &[CallId]) {
    for call in calls {
        let cancelling = Cancelling {
            call_id: *call,
            reason: Some(ANSWERED),
            actor: None,
        };
        let body = serde_json::to_vec(&cancelling).expect("a question has only string keys");
        let dispatchers = gateway.dispatchers.clone();
        let subject = dispatchers.subjects().cancel(tenant);
        gateway.tasks.spawn(async move {
            let question = Question::new(subject, body);
            if dispatchers.ask(question, Repeatable::Always).await.is_err() {
                tracing::debug!("a call of a turn could not be cancelled");
            }
        });
    }
}
