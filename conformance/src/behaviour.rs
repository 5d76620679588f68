//! The promises of an executor, each with the tool that tests it.

macro_rules! behaviours {
    ($($(#[$doc:meta])+ $variant:ident = ($name:literal, $tool:literal),)+) => {
        /// A promise of every executor.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Behaviour {
            $($(#[$doc])+ $variant,)+
        }

        impl Behaviour {
            /// Every promise, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The promise in a few words: the row's heading.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What the tool does that tests it: a rig supplies such a tool.
            pub const fn tool(self) -> &'static str {
                match self {
                    $(Self::$variant => $tool,)+
                }
            }
        }
    };
}

behaviours! {
    /// Arguments arrive and answers come back exactly: integers beyond 2^53, decimals, any text.
    CarriesValuesExactly = (
        "carries values exactly",
        "answers with the arguments that it was called with"
    ),
    /// Nothing outside the worker is touched before the claim.
    PreparesQuietly = (
        "touches nothing before the claim",
        "any; it is prepared and not run"
    ),
    /// The tool is told the tenant, the deadline and the key.
    TellsTheFacts = (
        "tells the tool the facts",
        "answers with an object of texts: call_id, attempt, tenant, session, deadline_ms, traceparent, idempotency_key"
    ),
    /// The same key with every attempt of a call.
    KeepsTheKey = (
        "tells each attempt the same key",
        "answers with an object of texts: attempt, idempotency_key"
    ),
    /// The key also goes where the manifest says.
    PutsTheKeyIntoAnArgument = (
        "puts the key into an argument",
        "answers with its arguments; `idempotency.argument` of its manifest is `key`"
    ),
    /// The tool's no is a business error with the tool's own words.
    PassesOnRefusals = (
        "passes on that the tool said no",
        "says no, with the message and, where it can, the code of the suite"
    ),
    /// *Not started* is said where nothing can have started.
    ProvesNotStarted = (
        "says what cannot have started",
        "cannot be reached or found"
    ),
    /// A crash in the middle is unknown, and nothing is sent twice.
    DoubtsCrashes = (
        "doubts what broke off, and sends it once",
        "begins, and breaks off without an answer"
    ),
    /// The deadline holds, whatever the tool does.
    KeepsTheDeadline = (
        "ends at the deadline",
        "begins, and never answers"
    ),
    /// A cancelled call ends its attempt, and the tool learns of it.
    ObeysCancel = (
        "ends when its call is taken back",
        "begins, and never answers"
    ),
    /// A worker that must leave ends its attempts too.
    ObeysDrain = (
        "ends when its worker goes",
        "begins, and never answers"
    ),
    /// A slow tool is waited for.
    WaitsForSlowAnswers = (
        "waits for a slow answer",
        "answers after a second with anything"
    ),
    /// An answer cannot grow without end.
    BoundsAnswers = (
        "bounds the answer",
        "answers with more than the suite's output limit, without end if it can; that limit is in its manifest"
    ),
    /// An answer that cannot be read is no reason to forget that the tool did it.
    FlagsGarbage = (
        "says that an answer is garbage",
        "says that it did it, with an answer that is not JSON although it should be"
    ),
    /// A tool may have nothing to say.
    TakesSilence = (
        "takes an empty answer",
        "says that it did it, with nothing more"
    ),
    /// Characters that Postgres cannot store are replaced.
    MendsText = (
        "mends NUL and half characters",
        "answers with texts that hold NUL and half a surrogate pair"
    ),
    /// The worker's environment contains secrets of others.
    HidesTheWorker = (
        "hides the worker's environment",
        "answers with everything that it was given, environment or headers, but for PATH, HOME and LANG"
    ),
    /// Tools like to repeat the secret that they refuse.
    VeilsSecrets = (
        "masks secrets in failures",
        "is given the suite's secret, and repeats it in saying no"
    ),
    /// What the tool has started does not outlive it.
    LeavesNothing = (
        "leaves nothing behind",
        "answers, and leaves something at work"
    ),
}
