//! Admission: whether a call that passed every check may come in, and if so, whether it is published at once or waits held.
//!
//! One order, for single calls and batches: the tenant's quota first, then the line, so that what is refused has taken no
//! room in the stream from others. What was decided is a value: dropped on whatever way, it gives back what it took.

use fleet::{
    hold::Line,
    ids::{CallId, Label},
    manifest::Manifest,
};

use crate::{accept::Door, answer::Refusal, meter::Permit, quota::Admitted};

/// What was decided about one call, and what it takes of the tenant's quota and of the stream's room.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Where it waits when it is held.
    pub(crate) line: Line,
    /// Leave to publish it; `None`: it is held.
    permit: Option<Permit>,
    quota: Admitted,
}

impl Door {
    /// Admits a call, now or held.
    pub(crate) async fn admit(
        &self,
        tenant: &Label,
        tool: &Manifest,
        call: CallId,
    ) -> Result<Admission, Refusal> {
        let quota = self.quota.admit(tenant, call).await?;
        let line = match tool.concurrency {
            Some(_) => Line::Tool(tool.name.clone()),
            None => Line::Queue(tool.queue.clone()),
        };
        Ok(Admission {
            permit: self.meter.permit(&line),
            line,
            quota,
        })
    }
}

impl Admission {
    /// Whether the call waits for its turn instead of being published.
    pub(crate) const fn is_held(&self) -> bool {
        self.permit.is_none()
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
            permit: None,
            quota: Admitted::default(),
        }
    }
}
