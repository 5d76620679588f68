//! The nouns of one call: its effect class, its state, what is known of its effect, where an answer came from.
//!
//! The words are promises: the same snake case is used in Postgres, in JSON and in metric labels.

pub(crate) use ::arguments::words;
pub use ::arguments::{Language, UnknownWord};

words! {
    /// What running a tool again would mean. Declared by the manifest, never guessed.
    Effect {
        /// May run any number of times.
        Read = "read",
        /// May be sent again, always with the same downstream key.
        Idempotent = "idempotent",
        /// Never again after it may have started.
        Once = "once",
        /// A SQL effect that commits together with its outcome.
        Transaction = "transaction",
    }
}

impl Effect {
    /// Whether a call can end with its effect unknown. A transaction cannot: its effect and its
    /// outcome are one commit, so the ledger always knows.
    pub const fn may_doubt(self) -> bool {
        match self {
            Self::Idempotent | Self::Once => true,
            Self::Read | Self::Transaction => false,
        }
    }
}

words! {
    /// The state of a call.
    State {
        /// Waiting for its first or next attempt.
        Queued = "queued",
        /// Claimed by a worker.
        Running = "running",
        /// The effect may have happened and nothing proves it either way.
        InDoubt = "in_doubt",
        /// Waiting for somebody outside the fleet; see [`Awaiting`].
        AwaitingClient = "awaiting_client",
        /// Worked, or was settled as applied.
        Succeeded = "succeeded",
        /// Said no, could not, or was settled as not applied.
        Failed = "failed",
        /// Cancelled before it had an effect.
        Cancelled = "cancelled",
        /// Its deadline passed before it ran.
        Expired = "expired",
    }
}

impl State {
    /// Terminal states and their result bytes never change.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::InDoubt | Self::AwaitingClient => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired => true,
        }
    }

    /// Whether a caller that waits "until it is decided" gets its answer.
    pub const fn answers_waiters(self) -> bool {
        self.is_terminal() || matches!(self, Self::InDoubt)
    }
}

words! {
    /// For whom a call waits that is `awaiting_client`.
    Awaiting {
        /// For people who decide whether it runs.
        Approval = "approval",
        /// For the program of its caller, which runs the tool.
        Client = "client",
        /// For its tool, which has said that it answers later.
        Completion = "completion",
        /// For its caller, of whom the tool wants to know something before it goes on.
        Input = "input",
    }
}

words! {
    /// What a call came to, in the words of its envelope.
    CallOutcome {
        /// The tool did it.
        Success = "success",
        /// The tool, or the door, said no for a reason the caller can act on.
        BusinessError = "business_error",
        /// A degraded answer stands in for the live one.
        Fallback = "fallback",
        /// The platform or the tool could not.
        SystemError = "system_error",
        /// Whether it had its effect is unknown.
        Unknown = "unknown",
    }
}

words! {
    /// Where the answer came from.
    Source {
        /// From the tool.
        Live = "live",
        /// From a cached result of the same call.
        Cache = "cache",
        /// From another tool, which was asked in its place; marked as such.
        Other = "other",
        /// An old result, marked as such.
        Stale = "stale",
        /// A declared stand-in.
        Stub = "stub",
        /// No answer: an error.
        Error = "error",
        /// From the person or the probe that settled the doubt.
        Settled = "settled",
        /// From the program of the caller, which ran the tool.
        Client = "client",
    }
}

words! {
    /// Who settled a call that was in doubt.
    SettledBy {
        /// A person.
        Person = "person",
        /// Its probe.
        Probe = "probe",
    }
}

words! {
    /// What is known about the effect after the call.
    EffectKnown {
        /// There is none: a read, or a refusal at the door.
        None = "none",
        /// It happened.
        Applied = "applied",
        /// It did not happen.
        NotApplied = "not_applied",
        /// It may have happened.
        Unknown = "unknown",
    }
}

words! {
    /// Which calls of a tenant go first.
    Priority {
        /// Before the others.
        High = "high",
        /// The default.
        Normal = "normal",
        /// After the others, never starved.
        Low = "low",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_same_in_json_and_in_text() {
        for state in State::ALL {
            assert_eq!(
                serde_json::to_string(state).unwrap(),
                format!("\"{state}\"")
            );
            assert_eq!(state.as_str().parse::<State>().unwrap(), *state);
        }
        assert!("stuck".parse::<State>().is_err());
    }
}
