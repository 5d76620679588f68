//! Tells an attempt that it must end now, and why.

use fleet::{
    outcome::ToolFailure,
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use tokio_util::sync::CancellationToken;

/// Tells one attempt to end. Clones tell the same attempt.
#[derive(Debug, Clone)]
pub struct Stop {
    /// All attempts of the worker.
    work: CancellationToken,
    /// This attempt alone.
    call: CancellationToken,
}

/// Why an attempt must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The caller cancelled the call.
    Cancelled,
    /// The worker's drain time is over.
    Drained,
}

impl Stop {
    /// Tells its attempt to end when `work` is cancelled, or when [`Self::cancel`] is called.
    pub fn under(work: CancellationToken) -> Self {
        Self {
            work,
            call: CancellationToken::new(),
        }
    }

    /// The caller cancelled the call.
    pub fn cancel(&self) {
        self.call.cancel();
    }

    /// Why the attempt must end, if it must.
    pub fn asked(&self) -> Option<StopReason> {
        if self.call.is_cancelled() {
            Some(StopReason::Cancelled)
        } else {
            self.work.is_cancelled().then_some(StopReason::Drained)
        }
    }

    /// Waits until the attempt must end. Cancel-safe.
    pub async fn told(&self) -> StopReason {
        tokio::select! {
            biased;
            () = self.call.cancelled() => StopReason::Cancelled,
            () = self.work.cancelled() => StopReason::Drained,
        }
    }
}

impl StopReason {
    /// The error code of an attempt that ended because of it.
    pub const fn code(self) -> Code {
        match self {
            Self::Cancelled => Code::Cancelled,
            Self::Drained => Code::Timeout,
        }
    }

    /// What was done to the attempt, for messages.
    pub const fn word(self) -> Message {
        match self {
            Self::Cancelled => Message::fixed("cancelled", "被取消"),
            Self::Drained => Message::fixed("stopped", "被停止"),
        }
    }

    /// Why the platform took the attempt back because of it.
    pub const fn taken_back(self) -> TakenBack {
        match self {
            Self::Cancelled => TakenBack::CancelledBefore,
            Self::Drained => TakenBack::WorkerLeft,
        }
    }

    /// The failure of an attempt that ended because of it and had sent nothing.
    pub fn before_anything_was_sent(self) -> ToolFailure {
        let word = self.word();
        let what = said!(
            "the attempt was {word} before anything was sent",
            "这次尝试还没有发出任何内容就{word}",
            word
        );
        ToolFailure::new(self.code(), what).taken_back(self.taken_back())
    }
}
