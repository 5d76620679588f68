//! **What do we tell NATS about a message?** One pure table.
//!
//! A message is only a bell. Once the claim is committed, or the row says that there is nothing to do, it is acknowledged;
//! whatever is lost that way the sweep finds again.

use std::time::Duration;

use fleet::{bus::pull::Acker, call::State, delay::SOON, telemetry::metrics};

/// Why a message did not become an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skip {
    /// It is not a pointer.
    Unreadable,
    /// The ledger has no open call of this id.
    Gone,
    /// The call is not waiting: it runs, is in doubt or has ended.
    NotQueued(State),
    /// The call waits in the ledger for its turn; its release brings another message.
    Held,
    /// The call waits for a reason of its own: its pause, its deadline, a lock on its row.
    NotYet,
    /// The call's deadline has passed; the sweep ends it.
    Overdue,
    /// As many attempts of its tool run as may at a time; the call is held in its tool's line.
    Limited,
    /// This worker does not know the tool's version, or cannot get its secrets. The call waits in the ledger.
    CannotRun,
    /// As many programs run here as may. The call waits in the ledger.
    NoProgramSlot,
    /// The tool refused the arguments before anything ran; the call is ended.
    Refused,
    /// The ledger did not answer.
    StoreSilent,
    /// This worker may not start anything: its lease is not fresh.
    NoLease,
}

/// What becomes of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposal {
    /// Dealt with.
    Ack,
    /// Again, later, perhaps at another worker.
    Again(Duration),
    /// Thrown away.
    ThrowAway,
}

impl Skip {
    pub(crate) const fn disposal(self) -> Disposal {
        match self {
            Self::Unreadable => Disposal::ThrowAway,
            Self::Gone
            | Self::NotQueued(_)
            | Self::Refused
            | Self::Overdue
            | Self::Held
            | Self::Limited
            | Self::CannotRun
            | Self::NoProgramSlot => Disposal::Ack,
            Self::NotYet => Disposal::Again(Duration::from_millis(500)),
            // As often as the lanes try to reach the ledger: at its return these are the first to run.
            Self::StoreSilent | Self::NoLease => Disposal::Again(SOON),
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Gone => "gone",
            Self::NotQueued(State::Running) => "running",
            Self::NotQueued(_) => "not_queued",
            Self::Held => "held",
            Self::NotYet => "not_yet",
            Self::Overdue => "overdue",
            Self::Limited => "limited",
            Self::CannotRun => "cannot_run",
            Self::NoProgramSlot => "no_program_slot",
            Self::Refused => "refused",
            Self::StoreSilent => "store_silent",
            Self::NoLease => "no_lease",
        }
    }
}

/// Tells NATS. Losing the word only means that the message comes again.
pub(crate) async fn dispose(acker: &Acker, disposal: Disposal) {
    match disposal {
        Disposal::Ack => {
            metrics().disposed_messages("ack");
            acker.ack().await;
        }
        Disposal::Again(pause) => {
            metrics().disposed_messages("nak");
            acker.again_after(pause).await;
        }
        Disposal::ThrowAway => {
            metrics().disposed_messages("term");
            acker.throw_away().await;
        }
    }
}
