//! The gaps between two steps: their names, the role that has them, and what a process that stops there leaves behind.

use crate::call::words;

words! {
    /// The gap after a step: the step is done, the next one has not begun.
    Checkpoint {
        // A call comes in.
        /// The submission has passed the door; nothing is stored.
        Validated = "validated",
        /// The statement that stores calls is on its way to Postgres; no answer has come.
        CommitSent = "commit_sent",
        /// The call is stored; no caller was told.
        Committed = "committed",
        /// The pointer was handed to NATS; the caller was not told.
        Published = "published",
        /// A waiting caller is about to get the outcome of the call.
        Decided = "decided",
        /// The caller was told.
        Answered = "answered",
        /// What the caller's own program handed in is recorded; neither it nor anybody who waits was told.
        OutputTaken = "output_taken",
        /// What a tool asked for is recorded; neither who gave it nor anybody who releases calls was told.
        InputTaken = "input_taken",
        /// A decision about a call that waits for a yes is recorded; neither who made it nor anybody who waits was told.
        Ruled = "ruled",

        // A worker takes it.
        /// The message is here; nothing was looked at.
        Delivered = "delivered",
        /// The message will not become an attempt: the row says why. It is not acknowledged.
        Skipped = "skipped",
        /// The ledger has said what a kept answer means for the call; it may be held behind the one that fetches the answer.
        Looked = "looked",
        /// The ledger has given out a permit to probe a target; nothing is claimed.
        Permitted = "permitted",
        /// The request is ready to go out; nothing is claimed.
        Gated = "gated",
        /// The claim is on its way to Postgres; no answer has come.
        ClaimSent = "claim_sent",
        /// The call has taken a start time that is to come; its message was not sent back to wait for it.
        Paced = "paced",
        /// The claim is known to be committed; the message is not acknowledged.
        Claimed = "claimed",
        /// The message is acknowledged.
        Acked = "acked",
        /// The lease was looked at once more; the tool is about to be started.
        Starting = "starting",
        /// The tool has answered, or could not be started; nothing is recorded.
        Executed = "executed",
        /// The tool could not answer, and an answer that stands in was found; nothing is recorded.
        FellBack = "fell_back",
        /// The outcome is on its way to Postgres; no answer has come.
        CompleteSent = "complete_sent",
        /// The outcome is recorded; the waiting caller was not told.
        Completed = "completed",
        /// That the call waits for its tool, or for its caller, is recorded; nobody was told.
        Parked = "parked",
        /// The waiting caller was told.
        Replied = "replied",
        /// It was counted how attempts of a tool with a breaker ended; the ledger was not told.
        Counted = "counted",
        /// The ledger was told, and has decided; nobody else was told that a breaker has moved.
        Reported = "reported",

        // The sweep finds what was lost.
        /// Calls whose pause is over were taken; they are not published.
        DueTaken = "due_taken",
        /// Held calls were released; they are not published.
        Released = "released",
        /// Held calls were moved into the line of a pause, or out of it; others are still where they were.
        PauseMoved = "pause_moved",
        /// Calls that followed one which is over were moved to another line, or a part of them; they are held there.
        LineLetGo = "line_let_go",
        /// Calls whose pointer may be lost were found; they are not published.
        LostPointerFound = "lost_pointer_found",
        /// Calls whose deadline has passed were found; they are not ended.
        ExpiredFound = "expired_found",
        /// A silent worker was declared dead; its calls are still its own.
        DeathDeclared = "death_declared",
        /// Running calls that no worker runs were found; nothing was decided about them.
        LossFound = "loss_found",
        /// A call was ended or given back by the sweep; the waiting caller was not told.
        SweepEnded = "sweep_ended",
        /// Calls in doubt whose probe is due were taken; no probe was sent.
        DoubtTaken = "doubt_taken",
        /// A probe was accepted as a call; it is not published.
        ProbeStarted = "probe_started",
        /// A call in doubt was settled by its probe; the waiting caller was not told.
        ProbeSettled = "probe_settled",
    }
}

words! {
    /// The role whose step it is.
    Role {
        /// A dispatcher, while it serves a caller.
        Dispatcher = "dispatcher",
        /// A worker.
        Worker = "worker",
        /// A dispatcher, in its sweep.
        Sweep = "sweep",
    }
}

impl Checkpoint {
    /// The role whose step it is.
    pub const fn role(self) -> Role {
        match self {
            Self::Validated
            | Self::CommitSent
            | Self::Committed
            | Self::Published
            | Self::Decided
            | Self::Answered
            | Self::OutputTaken
            | Self::InputTaken
            | Self::Ruled => Role::Dispatcher,
            Self::Delivered
            | Self::Skipped
            | Self::Looked
            | Self::Permitted
            | Self::Gated
            | Self::ClaimSent
            | Self::Paced
            | Self::Claimed
            | Self::Acked
            | Self::Starting
            | Self::Executed
            | Self::FellBack
            | Self::CompleteSent
            | Self::Completed
            | Self::Parked
            | Self::Replied
            | Self::Counted
            | Self::Reported => Role::Worker,
            Self::DueTaken
            | Self::Released
            | Self::PauseMoved
            | Self::LineLetGo
            | Self::LostPointerFound
            | Self::ExpiredFound
            | Self::DeathDeclared
            | Self::LossFound
            | Self::SweepEnded
            | Self::DoubtTaken
            | Self::ProbeStarted
            | Self::ProbeSettled => Role::Sweep,
        }
    }

    /// Whether a process gets here only now and then: when a target that failed is tried again, a rate is used up, a tool has a
    /// cache or a fallback, or somebody outside is waited for.
    pub const fn is_rare(self) -> bool {
        matches!(
            self,
            Self::Looked
                | Self::Permitted
                | Self::Paced
                | Self::FellBack
                | Self::Parked
                | Self::Counted
                | Self::Reported
                | Self::OutputTaken
                | Self::InputTaken
                | Self::Ruled
        )
    }

    /// Whether a process that stops here leaves an attempt that may have started; `None`: only Postgres can tell. Only such an
    /// attempt puts a `once` call in doubt.
    pub const fn leaves_an_attempt(self) -> Option<bool> {
        match self {
            Self::Claimed | Self::Acked | Self::Starting | Self::Executed => Some(true),
            // With or without one: at a shut breaker no call need be claimed. The last two are not an attempt's: others may be under way.
            Self::FellBack
            | Self::ClaimSent
            | Self::CompleteSent
            | Self::Counted
            | Self::Reported => None,
            Self::Validated
            | Self::CommitSent
            | Self::Committed
            | Self::Published
            | Self::Decided
            | Self::Answered
            | Self::OutputTaken
            | Self::InputTaken
            | Self::Ruled
            | Self::Delivered
            | Self::Skipped
            | Self::Looked
            | Self::Permitted
            | Self::Gated
            | Self::Paced
            | Self::Completed
            | Self::Parked
            | Self::Replied
            | Self::DueTaken
            | Self::Released
            | Self::PauseMoved
            | Self::LineLetGo
            | Self::LostPointerFound
            | Self::ExpiredFound
            | Self::DeathDeclared
            | Self::LossFound
            | Self::SweepEnded
            | Self::DoubtTaken
            | Self::ProbeStarted
            | Self::ProbeSettled => Some(false),
        }
    }
}
