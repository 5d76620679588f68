//! Admission: whether a call comes in, and if so, whether it is published at once or waits held.
//!
//! `decision` decides; here its facts are gathered where they are kept, and what a call takes is held. One order, for single
//! calls and batches: the tenant's quota first, then the room, so that what is refused has taken none from others.

mod decision;

use fleet::{
    hold::{HeldWhy, Line},
    ids::{CallId, Label},
    manifest::Manifest,
};

use self::decision::{Decision, decide, line_of};
pub(crate) use self::decision::{Facts, NoSlot};
use crate::{
    door::Door,
    meter::Permit,
    quota::{Admitted, NoQuota},
    refusal::Refusal,
};

/// What was decided about one call, and what it takes of the tenant's quota and of the stream's room: a value that gives
/// both back when it is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Where it waits when it is held.
    pub(crate) line: Line,
    /// Why it is held; `None`: it is published.
    held: Option<HeldWhy>,
    /// Leave to publish it.
    permit: Option<Permit>,
    quota: Admitted,
}

/// Admits a call, now or held.
pub(crate) async fn admit(
    door: &Door,
    tenant: &Label,
    tool: &Manifest,
    call: CallId,
) -> Result<Admission, Refusal> {
    let (quota, no_quota) = match door.quota.admit(tenant, call).await {
        Ok(admitted) => (admitted, None),
        Err(none) => (Admitted::default(), Some(none)),
    };
    let permit = asks_for_room(tool, no_quota)
        .then(|| door.meter.permit(&tool.queue))
        .flatten();
    let facts = Facts {
        no_quota,
        tool: Some(tool),
        no_room: permit.is_none(),
        ..Facts::default()
    };
    let (held, line) = match decide(&facts) {
        Decision::Now => (None, line_of(tool)),
        Decision::Hold(why, line) => (Some(why), line),
        Decision::Refuse(refusal) => return Err(refusal),
    };
    Ok(Admission {
        line,
        held,
        permit,
        quota,
    })
}

/// A permit that is asked for is taken: not by what is refused, and not for a tool whose calls always wait for a place.
const fn asks_for_room(tool: &Manifest, no_quota: Option<NoQuota>) -> bool {
    no_quota.is_none() && tool.concurrency.is_none()
}

/// Whether a request may go on, by what is known before its call is.
///
/// # Errors
///
/// It does not come in.
pub(crate) fn comes_in(facts: &Facts<'_>) -> Result<(), Refusal> {
    match decide(facts) {
        Decision::Refuse(refusal) => Err(refusal),
        Decision::Now | Decision::Hold(..) => Ok(()),
    }
}

impl Admission {
    /// Whether the call waits for its turn instead of being published.
    pub(crate) const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The call is in the ledger: from here on its part of the quota is the ledger's to give back.
    pub(crate) fn committed(&mut self) {
        self.quota.committed();
    }

    /// Leave to publish the call, once.
    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

#[cfg(test)]
impl Admission {
    /// Of a call that waits held, of a tenant without a quota.
    pub(crate) fn held(line: Line) -> Self {
        Self {
            line,
            held: Some(HeldWhy::Room),
            permit: None,
            quota: Admitted::default(),
        }
    }
}
