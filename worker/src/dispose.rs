//! **What do we tell NATS about a message?** One pure table.
//!
//! A message is only a bell. It is acknowledged once the claim is committed, or once the row says that there is nothing to do.
//! The sweep finds every call whose message is lost that way.

use std::time::Duration;

use fleet::{
    bus::pull::Acker, call::State, delay::SOON, outcome::ToolFailure, telemetry::metrics,
    wire::code::Code,
};

/// Why there are no arguments for the tool of a call.
pub(crate) enum NoArguments {
    /// No worker will have them.
    Never(ToolFailure),
    /// This worker does not have them now.
    Skip(Skip),
}

/// Whether no worker could run the call.
pub(crate) const fn is_final(code: Code) -> bool {
    matches!(
        code,
        Code::ToolError | Code::ToolGone | Code::PayloadTooLarge | Code::InvalidArguments
    )
}

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
    /// The call may not be claimed yet: its pause is not over, its deadline is near, or its row is locked.
    NotYet,
    /// The call's deadline has passed; the sweep ends it.
    Overdue,
    /// A pause covers the call; it is held in the line of that pause.
    Paused,
    /// The breaker of the tool's target is open; the call is ended, or held in the line of the breaker.
    CircuitOpen,
    /// Only this worker, of several, cannot reach the tool's target: another one gets the call.
    OnlyHere,
    /// An equal call had the answer; the call is ended.
    Answered,
    /// An equal call fetches the answer; the call is held in the line of that one.
    Follows,
    /// The tool's limit of attempts at a time, or of starts in a time, is reached; the call is held in its tool's line.
    Limited,
    /// The call has a start time, which is so far away.
    StartsIn(Duration),
    /// Other claims are before it: they have the bucket of the call's start times, or what its policy counts.
    StartsBusy,
    /// This worker does not know the tool's version, or cannot get its secrets. The call waits in the ledger.
    CannotRun,
    /// Every program slot of this worker is taken. The call waits in the ledger.
    NoProgramSlot,
    /// The tool refused the arguments before anything ran; the call is ended.
    Refused,
    /// An interceptor, the policy of its tool or a budget refused the call; it is ended.
    Denied,
    /// An interceptor lets the call wait, or has failed; it waits in the ledger.
    NoConsent,
    /// Other calls have the answers looked up that their arguments refer to.
    NoTurn,
    /// The ledger did not answer.
    StoreSilent,
    /// This worker's lease is not fresh, so it may not start anything.
    NoLease,
}

/// How long after its start time a call's message comes back.
const LATE: Duration = Duration::from_millis(2);
/// How soon a claim is tried again that found its bucket locked: longer than a commit takes.
const BUSY: Duration = Duration::from_millis(20);

/// What NATS is told about the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposal {
    /// It is done with.
    Ack,
    /// Deliver it again after this pause, perhaps to another worker.
    Again(Duration),
    /// Drop it.
    ThrowAway,
}

impl Skip {
    pub(crate) const fn disposal(self) -> Disposal {
        match self {
            Self::Unreadable => Disposal::ThrowAway,
            Self::Gone
            | Self::NotQueued(_)
            | Self::Refused
            | Self::Denied
            | Self::NoConsent
            | Self::Overdue
            | Self::Held
            | Self::Paused
            | Self::CircuitOpen
            | Self::Answered
            | Self::Follows
            | Self::Limited
            | Self::CannotRun
            | Self::NoProgramSlot => Disposal::Ack,
            Self::NotYet | Self::NoTurn => Disposal::Again(Duration::from_millis(500)),
            // Soon, for the other workers are well; not at once, or it would mostly come back here.
            Self::OnlyHere => Disposal::Again(Duration::from_millis(200)),
            // A message that came before its time would find the call not due.
            Self::StartsIn(wait) => Disposal::Again(wait.saturating_add(LATE)),
            Self::StartsBusy => Disposal::Again(BUSY),
            // As often as the lanes try to reach the ledger, so that these calls run first when it is back.
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
            Self::Paused => "paused",
            Self::CircuitOpen => "circuit_open",
            Self::NoTurn => "no_turn",
            Self::Answered => "answered",
            Self::Follows => "follows",
            Self::OnlyHere => "only_here",
            Self::NotYet => "not_yet",
            Self::Overdue => "overdue",
            Self::Limited => "limited",
            Self::StartsIn(_) => "starts_in",
            Self::StartsBusy => "starts_busy",
            Self::CannotRun => "cannot_run",
            Self::NoProgramSlot => "no_program_slot",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::NoConsent => "no_consent",
            Self::StoreSilent => "store_silent",
            Self::NoLease => "no_lease",
        }
    }
}

/// Tells NATS. If this is lost, the message comes again.
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
