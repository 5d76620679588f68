//! Admission: whether a call comes in, and if so, whether it is published at once or held.
//!
//! `decision` decides. This file gathers its facts and takes what the call needs. One order, for single calls and batches: a
//! pause first, then what has failed too often, then the tenant's quota, then its calls under way, then the room, so that a
//! refused call has taken none from others.

mod decision;
mod looks;
mod pause;
mod policy;

use fleet::{
    hold::{HeldWhy, Line},
    ids::CallId,
    rate_key::RateKey,
};

pub(crate) use self::decision::{Facts, NoSlot, line_of};
use self::{
    decision::{Decision, always_waits, decide},
    pause::Paused,
};
use crate::{
    check::{Checked, Submission},
    door::Door,
    meter::Permit,
    quota::Admitted,
    refusal::Refusal,
};

/// The decision about one call, and its share of the tenant's quota, of its calls under way and of the stream's room. Dropping it
/// gives all back.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Where it waits when it is held.
    pub(crate) line: Line,
    /// Which calls of its tool it shares start times with, where each value of an argument has its own.
    pub(crate) rate_key: Option<RateKey>,
    /// Whether it waits for somebody's yes first.
    pub(crate) needs_approval: bool,
    /// Why it is held; `None`: it is published.
    held: Option<HeldWhy>,
    /// The permit to publish it.
    permit: Option<Permit>,
    quota: Admitted,
    /// Its place among the tenant's calls under way; one that is held has none.
    running: Admitted,
}

/// Admits a call, now or held.
pub(crate) async fn admit(
    door: &Door,
    submission: &Submission,
    checked: &Checked,
    call: CallId,
) -> Result<Admission, Refusal> {
    let (tenant, tool) = (&submission.tenant, &checked.tool.manifest);
    let newest = &checked.newest.manifest;
    let pause = Paused::of(door, tenant, checked).await?;
    let repeated = door.repeats.of(&door.registry, submission, checked);
    if pause.is_some() || repeated.is_some() {
        comes_in(&Facts {
            pause: pause.as_ref(),
            repeated,
            ..Facts::default()
        })?;
    }
    policy::judges(submission, checked)?;
    let rate_key = looks::rate_key(tenant, checked).await?;
    let (quota, no_quota) = match door.quota.admit(tenant, call).await {
        Ok(admitted) => (admitted, None),
        Err(none) => (Admitted::default(), Some(none)),
    };
    let needs_approval = looks::needs_approval(checked).await?;
    let shares_slots = door.running.most().is_some();
    if needs_approval || tool.is_run_by_client() {
        comes_in(&Facts {
            no_quota,
            ..Facts::default()
        })?;
        return Ok(Admission {
            rate_key,
            // Where it waits for its turn after the yes.
            line: line_of(newest, &tool.queue, rate_key, shares_slots),
            needs_approval,
            held: None,
            permit: None,
            quota,
            running: Admitted::default(),
        });
    }
    // Who is answered needs nothing of the target; the gate holds the others.
    let shut = match looks::may_be_answered(door, submission, tool) {
        true => None,
        false => looks::shut_breaker(door, tenant, newest, tool),
    };
    let goes_on = pause.is_none() && shut.is_none() && no_quota.is_none();
    let goes_on = (goes_on && !always_waits(newest))
        .then(|| door.running.enter(&tool.queue, tenant, call))
        .flatten();
    let running_share = goes_on.and_then(|place| Some((place, door.meter.permit(&tool.queue)?)));
    let (running, permit) = running_share.unzip();
    let facts = Facts {
        no_quota,
        pause: pause.as_ref(),
        shut,
        rate_key,
        tool: Some((newest, &tool.queue)),
        no_room: permit.is_none(),
        shares_slots,
        ..Facts::default()
    };
    let (held, line) = match decide(&facts) {
        Decision::Now => (None, line_of(newest, &tool.queue, rate_key, shares_slots)),
        Decision::Hold(why, line) => (Some(why), line),
        Decision::Refuse(refusal) => return Err(refusal),
    };
    Ok(Admission {
        line,
        rate_key,
        needs_approval,
        held,
        permit,
        quota,
        running: running.unwrap_or_default(),
    })
}

/// Whether a request may go on, by the facts that are known before its call is read.
///
/// # Errors
///
/// The request is refused.
pub(crate) fn comes_in(facts: &Facts<'_>) -> Result<(), Refusal> {
    match decide(facts) {
        Decision::Refuse(refusal) => Err(refusal),
        Decision::Now | Decision::Hold(..) => Ok(()),
    }
}

impl Admission {
    /// Whether the call is held instead of published.
    pub(crate) const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the call starts as soon as its tool's limit lets it: it waits neither for a yes, nor for the end of a pause, nor for a
    /// breaker.
    pub(crate) const fn starts_now(&self) -> bool {
        !self.needs_approval
            && !matches!(
                self.held,
                Some(HeldWhy::Pause | HeldWhy::Breaker | HeldWhy::Follows)
            )
    }

    /// The call is in the ledger: its shares are given back when the ledger says that it has ended.
    pub(crate) fn committed(&mut self) {
        self.quota.committed();
        self.running.committed();
    }

    /// Takes the permit to publish the call.
    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

#[cfg(test)]
impl Admission {
    /// The admission of a held call, for a tenant without a quota.
    pub(crate) fn held(line: Line) -> Self {
        Self {
            line,
            rate_key: None,
            needs_approval: false,
            held: Some(HeldWhy::Room),
            permit: None,
            quota: Admitted::default(),
            running: Admitted::default(),
        }
    }
}
