//! What the protocol decides. The decisions are the program's own: `fleet::state::next` and `fleet::retry`.
//!
//! A [`Mutant`] is the protocol with one rule left out. It is here so that the checker can show that the rule is needed.

use std::time::Duration;

use fleet::{
    call::{Effect, Language},
    manifest::RetryPolicy,
    outcome::{Outcome, ToolFailure},
    retry::{self, Known, Loss, RetryDecision, Tries},
    wire::{code::Code, message::Message},
};
use serde_json::value::RawValue;

use crate::state::Ran;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    pub(crate) workers: usize,
    /// How often the request is submitted.
    pub(crate) callers: usize,
    /// Whether the callers give the same key.
    pub(crate) keyed: bool,
    /// Whether a client cancels the call.
    pub(crate) cancel: bool,
    /// Whether Postgres may fall back to an older copy, once.
    pub(crate) failover: bool,
    /// Whether a claim may be committed after its worker gave it up.
    pub(crate) late_claims: bool,
    /// Whether accepts and claims may go unanswered.
    pub(crate) unanswered: bool,
    /// Whether executors may fail to end in time.
    pub(crate) abandon: bool,
    /// Whether people abandon doubts.
    pub(crate) unsettled: bool,
    pub(crate) rules: Rules,
}

impl Config {
    /// One call without a key, two workers.
    pub(crate) const fn of(name: &'static str, effect: Effect) -> Self {
        Self {
            name,
            effect,
            workers: 2,
            callers: 1,
            keyed: false,
            cancel: false,
            failover: false,
            late_claims: true,
            unanswered: true,
            abandon: false,
            unsettled: false,
            rules: Rules {
                without: None,
                read_back_always: false,
                no_is_for_good: true,
            },
        }
    }

    /// The same with one rule left out.
    #[must_use]
    pub(crate) const fn without(mut self, rule: Mutant) -> Self {
        self.rules.without = Some(rule);
        self
    }
}

/// The rules in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) without: Option<Mutant>,
    /// Every claim is read back on a second connection before anything runs, not only one whose answer is missing.
    pub(crate) read_back_always: bool,
    /// What is asked of a downstream that honours keys: its "no" is about the key, not about one request.
    pub(crate) no_is_for_good: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Config::of("", Effect::Once).rules
    }
}

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutant {
    RunOnUnknownClaim,
    PhantomClaim,
    RequeueLostOnce,
    RequeueNotApplied,
    RequeueNotAppliedUnfenced,
    SettleUnfenced,
    AbandonedIsNotApplied,
    AbandonedKeyLapses,
    CompleteByState,
    TransactionUnguarded,
    TransactionElsewhere,
    UnknownCommitRunAgain,
    KeyNotUnique,
    FailoverUnquarantined,
    CountedAttempts,
    NoSweep,
    ClaimAnyState,
    RetryOnceAfterTimeout,
    MoveSeenAsAbsence,
    AcceptRepeatedBlindly,
    ClaimPastFence,
    ReusedConnectionTrusted,
    CancelLostByRequeue,
    AbandonedCountsAsOver,
    QuarantineSparesIdempotent,
    QuarantineTakesLateNo,
    QuarantineTrustsFences,
    QuarantineKeepsAttempt,
}

/// What an attempt knows of its call when its end is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learned {
    /// What tools have spent before it.
    pub(crate) spent_before: u8,
    /// Whether an attempt before it may have had its effect.
    pub(crate) earlier_unknown: bool,
    /// Whether it was cancelled.
    pub(crate) cancelled: bool,
}

/// `fleet::retry`, asked once for every question that can come up.
pub(crate) struct Decisions {
    effect: Effect,
    after: Vec<RetryDecision>,
}

/// How many workers a call of this model may lose before it is set aside: the fewest that show both sides.
const LOSSES: u8 = 1;
/// How many attempts the tools of this model may spend.
pub(crate) const ATTEMPTS_MAX: u8 = 2;
const RAN: [Ran; 5] = [
    Ran::Applied,
    Ran::NotStarted,
    Ran::No,
    Ran::NotNow,
    Ran::Unknown,
];

impl Decisions {
    pub(crate) fn new(effect: Effect) -> Self {
        let policy = RetryPolicy {
            max_attempts: ATTEMPTS_MAX.into(),
            ..RetryPolicy::default()
        };
        let mut after = Vec::new();
        for ran in RAN {
            for spent_before in 0..ATTEMPTS_MAX {
                for (earlier_unknown, cancelled) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let tries = Tries {
                        policy: &policy,
                        spent: u32::from(spent_before) + 1,
                        taken_back: None,
                        pause: Duration::ZERO,
                        remaining: Duration::from_secs(60),
                        key_remaining: None,
                        is_suppressed: false,
                    };
                    let known = Known {
                        effect,
                        language: Language::En,
                        cancelled,
                        earlier_unknown,
                        applied_late: false,
                    };
                    after.push(retry::decide(&outcome(ran), &tries, &known));
                }
            }
        }
        Self { effect, after }
    }

    /// What follows an attempt that a tool ended.
    pub(crate) fn after(&self, ran: Ran, learned: Learned) -> RetryDecision {
        let word = match ran {
            Ran::Abandoned => Ran::Unknown,
            Ran::TakenBack => Ran::NotStarted,
            word => word,
        };
        let word = RAN
            .iter()
            .position(|known| *known == word)
            .expect("all words are listed");
        let spent = usize::from(learned.spent_before.min(ATTEMPTS_MAX - 1));
        let known = usize::from(learned.earlier_unknown) * 2 + usize::from(learned.cancelled);
        self.after[(word * usize::from(ATTEMPTS_MAX) + spent) * 4 + known]
    }

    /// What follows an attempt that was lost with its worker.
    pub(crate) fn after_loss(&self, lost_before: u8, cancelled: bool) -> RetryDecision {
        retry::after_loss(Loss {
            effect: self.effect,
            lost: u32::from(lost_before) + 1,
            allowed: LOSSES.into(),
            cancelled,
        })
    }
}

/// In the words of the executors.
fn outcome(ran: Ran) -> Outcome {
    let failure = |code| ToolFailure::new(code, Message::verbatim("model"));
    match ran {
        Ran::Applied => Outcome::Applied {
            result: RawValue::NULL.to_owned(),
            flaw: None,
        },
        Ran::NotStarted | Ran::TakenBack => Outcome::NotStarted(failure(Code::Unavailable)),
        Ran::No => Outcome::DefiniteFailure(failure(Code::ToolError)),
        Ran::NotNow => Outcome::DefiniteFailure(failure(Code::Unavailable)),
        Ran::Unknown | Ran::Abandoned => Outcome::Unknown(failure(Code::Timeout)),
    }
}
