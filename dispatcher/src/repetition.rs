//! What is counted as a repetition: how a call ended whose caller waited, and a refusal of arguments that do not fit.

use bytes::Bytes;
use fleet::{
    call::{CallOutcome, State},
    store::accept::NewCall,
    telemetry::metrics,
    wire::{code::Code, envelope::EncodedEnvelope, error::Suggestion},
};
use serde::Deserialize;

use crate::{
    admission::{self, Facts},
    check::Submission,
    door::Door,
    refusal::Refusal,
    repeats::Within,
};

/// What an envelope says of its call's end.
#[derive(Deserialize)]
struct CallEnd {
    state: State,
    outcome: CallOutcome,
    error: Option<CallEndError>,
}

#[derive(Deserialize)]
struct CallEndError {
    code: Code,
    suggestion: Suggestion,
}

impl CallEndError {
    /// Whether another equal call may go better: its target was left alone for now, a tool must be called first, or there
    /// will be something to spend again.
    fn says_nothing_of_the_arguments(&self) -> bool {
        match self.code {
            Code::CircuitOpen | Code::BudgetExceeded => true,
            Code::Forbidden => self.suggestion == Suggestion::CheckState,
            _ => false,
        }
    }
}

/// Counts how a call ended whose caller has waited for it.
pub(crate) async fn ended(door: &Door, call: &NewCall, envelope: &EncodedEnvelope) {
    let within = Within::of(&call.tenant, call.run.as_ref(), call.session.as_ref());
    let Some(within) = within else {
        return;
    };
    let Ok(end) = envelope.members::<CallEnd>() else {
        return;
    };
    let key = within.key(&call.tool, &call.args_hash);
    // Another answer stood in, with which its caller can go on.
    if end.outcome == CallOutcome::Fallback {
        return;
    }
    let told = match (end.state, end.error) {
        (State::Succeeded, _) => door.repeats.succeeded(door.dispatcher, key),
        (State::Failed, Some(error)) if !error.says_nothing_of_the_arguments() => {
            metrics().repetitions_are_counted(&call.tool);
            Some(door.repeats.failed(door.dispatcher, key, error.code))
        }
        // It was cancelled or came too late, is in doubt, or its target is left alone for now: that says nothing about the
        // arguments.
        (_, _) => None,
    };
    if let Some(told) = told {
        tell(door, told).await;
    }
}

/// Counts a refusal of arguments that do not fit, and refuses for the repetition where there were too many.
pub(crate) async fn refused(door: &Door, submission: &Submission, refusal: Refusal) -> Refusal {
    if refusal.code != Code::InvalidArguments {
        return refusal;
    }
    let (within, tool) = (
        Within::of_submission(submission),
        door.registry.current(&submission.tool),
    );
    let (Some(within), Some(tool)) = (within, tool) else {
        return refusal;
    };
    let Some(hash) = submission.hash_for(None).await else {
        return refusal;
    };
    let key = within.key(&submission.tool, &hash);
    let (repeats, tenant) = (&door.repeats, &submission.tenant);
    if let Some(repeated) = repeats.at_cap(&door.registry, tenant, &tool.manifest, &key) {
        let facts = Facts {
            repeated: Some(repeated),
            ..Facts::default()
        };
        return admission::comes_in(&facts).err().unwrap_or(refusal);
    }
    metrics().repetitions_are_counted(&submission.tool);
    let told = door.repeats.failed(door.dispatcher, key, refusal.code);
    tell(door, told).await;
    refusal
}

/// Tells the other dispatchers.
async fn tell(door: &Door, told: Bytes) {
    let lost = "a repetition was not told; other dispatchers count without it";
    door.bus.tell(door.bus.subjects.repeats(), told, lost).await;
}
