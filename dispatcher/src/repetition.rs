//! What is counted as a repetition: how a call ended whose caller waited, and a refusal of arguments that do not fit.

use bytes::Bytes;
use fleet::{
    call::State,
    ids::Label,
    manifest::Manifest,
    modes::{Brake, InterceptMode},
    store::accept::NewCall,
    telemetry::metrics,
    wire::{code::Code, envelope::EncodedEnvelope},
};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    admission::{self, Facts},
    check::{Checked, Submission},
    door::Door,
    refusal::Refusal,
    repeats::{RepeatKey, Repeated, Within},
};

/// What an envelope says of its call's end.
#[derive(Deserialize)]
struct CallEnd {
    state: State,
    error: Option<CallEndError>,
}

#[derive(Deserialize)]
struct CallEndError {
    code: Code,
}

/// Whether a call has failed too often already to come in.
pub(crate) fn of(door: &Door, submission: &Submission, checked: &Checked) -> Option<Repeated> {
    let within = Within::of_submission(submission)?;
    let key = within.key(&submission.tool, &checked.arguments.hash);
    at_cap(door, &submission.tenant, &checked.tool.manifest, &key)
}

/// Whether the call of this key has failed too often, and operators let that count.
fn at_cap(door: &Door, tenant: &Label, tool: &Manifest, key: &RepeatKey) -> Option<Repeated> {
    let repeated = door.repeats.at_cap(key, tool.repeat_cap)?;
    let (controls, name) = (door.registry.controls(), &tool.name);
    let modes = controls.modes();
    match modes.of_brake(Brake::RepeatCap, name, Some(tenant), Instant::now()) {
        InterceptMode::Enforce => Some(repeated),
        InterceptMode::Observe => {
            metrics().observed(name, Brake::RepeatCap);
            None
        }
        InterceptMode::Off => None,
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
    let told = match (end.state, end.error) {
        (State::Succeeded, _) => door.repeats.succeeded(door.dispatcher, key),
        (State::Failed, Some(error)) if error.code != Code::CircuitOpen => {
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
    if let Some(repeated) = at_cap(door, &submission.tenant, &tool.manifest, &key) {
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
