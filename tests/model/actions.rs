//! What can happen next, and which steps are no fault.

use fleet::call::Effect;

use crate::{
    protocol::Protocol,
    rules::Mutant,
    state::{Registered, Step, System, is_write},
};

/// One step of a participant. The numbers are callers, calls or workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    /// Commits the call and is answered.
    Accept(u8),
    /// Commits the call; the answer is lost.
    AcceptUnanswered(u8),
    /// Neither commits nor is answered.
    AcceptLost(u8),
    /// Tells a caller without a key that the outcome is unknown.
    Refuse(u8),

    /// The sweep rings for a queued call.
    Publish(u8),
    LosePointer(u8),
    /// A pointer comes back: a lost acknowledgement, a stream that was rolled back.
    RepeatPointer(u8),

    /// A worker takes a pointer and sends a claim.
    Deliver(u8, u8),
    /// Postgres reads and locks the worker's row.
    ClaimReadsWorker(u8),
    /// Postgres moves the call's row; the worker hears of it.
    ClaimCommits(u8),
    /// The same, unheard.
    ClaimCommitsUnanswered(u8),
    /// The worker stops waiting; the statement is still under way.
    ClaimGoesSilent(u8),
    /// The worker's connection says that the claim was committed, and it was not.
    ClaimIsPhantom(u8),
    LateClaimReadsWorker(u8),
    LateClaimCommits(u8),
    LateClaimDies(u8),
    ReadBack(u8),
    /// With a beat: looks for the claim that it gave up and gives it back.
    GiveBack(u8),

    /// The platform has a reason not to start.
    TakeBack(u8),
    ToolApplies(u8),
    /// The effect happens, and the answer breaks off.
    ToolAppliesUnanswered(u8),
    /// Nothing happens, and no answer says so.
    ToolIsSilent(u8),
    ToolNotStarted(u8),
    ToolSaysNo(u8),
    ToolSaysNotNow(u8),
    /// The worker stops waiting for a tool that may still act.
    Abandon(u8),
    OrphanActs(u8),
    OrphanEnds(u8),

    /// Effect and outcome commit together.
    Commit(u8),
    CommitUnanswered(u8),
    CommitLost(u8),
    /// The wire breaks, and the COMMIT is still on its way.
    CommitInFlight(u8),
    /// After an unanswered COMMIT: takes it for unknown, and has the guarded completion find out.
    LookAtCommit(u8),

    /// Records how the attempt ended.
    Complete(u8),
    CompleteUnanswered(u8),

    Crash(u8),
    /// The worker goes, in order or because it was declared dead.
    Leave(u8),
    DeclareDead(u8),
    /// Everything that the worker started is proven gone; a new process takes its slot.
    Fence(u8),

    /// The sweep takes a running call from a worker that is dead, or far too late.
    TakeLost(u8),
    Expire(u8),
    SettleApplied(u8),
    SettleNotApplied(u8),
    /// A person settles a doubt that nobody will ever be able to settle.
    SettleAbandoned(u8),
    /// The time is over for which a key names an abandoned call: only where that rule is left out.
    AbandonedKeyLapses,

    CancelReads,
    CancelActs,
    CancelLooksAgain,

    /// The copy to which Postgres may fall back is made.
    Backup,
    Failover,
}

impl Action {
    /// Everything that can happen in a configuration; whether it can happen now is decided when it is tried.
    pub(crate) fn alphabet(protocol: &Protocol) -> Vec<Self> {
        use Action::*;
        let config = &protocol.config;
        let number = |n: usize| u8::try_from(n).expect("a handful");
        let calls = if config.keyed || config.rules.without == Some(Mutant::AcceptRepeatedBlindly) {
            2
        } else {
            1
        };
        let mut all = Vec::new();
        for caller in 0..number(config.callers) {
            all.push(Accept(caller));
            if config.unanswered {
                all.extend([AcceptUnanswered(caller), AcceptLost(caller)]);
            }
            if config.unanswered && !config.keyed {
                all.push(Refuse(caller));
            }
        }
        for call in 0..calls {
            all.extend([
                Publish(call),
                LosePointer(call),
                RepeatPointer(call),
                TakeLost(call),
                Expire(call),
            ]);
            all.extend([SettleApplied(call), SettleNotApplied(call)]);
            if config.unsettled {
                all.push(SettleAbandoned(call));
            }
            all.extend((0..number(config.workers)).map(|worker| Deliver(worker, call)));
        }
        for w in 0..number(config.workers) {
            all.extend([ClaimReadsWorker(w), ClaimCommits(w)]);
            if config.unanswered {
                all.push(ClaimCommitsUnanswered(w));
            }
            all.extend([
                LateClaimReadsWorker(w),
                LateClaimCommits(w),
                LateClaimDies(w),
            ]);
            if config.late_claims {
                all.extend([ClaimGoesSilent(w), GiveBack(w)]);
            }
            all.extend([ReadBack(w), TakeBack(w), ToolNotStarted(w), ToolSaysNo(w)]);
            all.extend([
                Complete(w),
                CompleteUnanswered(w),
                Crash(w),
                Leave(w),
                DeclareDead(w),
                Fence(w),
            ]);
            if is_write(config.effect) {
                all.extend([OrphanActs(w), OrphanEnds(w)]);
            }
            match config.effect {
                Effect::Transaction => all.extend([
                    Commit(w),
                    CommitUnanswered(w),
                    CommitLost(w),
                    CommitInFlight(w),
                    LookAtCommit(w),
                    ToolSaysNotNow(w),
                ]),
                Effect::Read => all.extend([ToolApplies(w), ToolIsSilent(w), ToolSaysNotNow(w)]),
                Effect::Idempotent => {
                    all.extend([
                        ToolApplies(w),
                        ToolAppliesUnanswered(w),
                        ToolIsSilent(w),
                        ToolSaysNotNow(w),
                    ]);
                }
                Effect::Once => {
                    all.extend([ToolApplies(w), ToolAppliesUnanswered(w), ToolIsSilent(w)])
                }
            }
            if config.abandon {
                all.push(Abandon(w));
            }
            if config.rules.without == Some(Mutant::PhantomClaim) {
                all.push(ClaimIsPhantom(w));
            }
        }
        if config.cancel {
            all.extend([CancelReads, CancelActs, CancelLooksAgain]);
        }
        if config.rules.without == Some(Mutant::AbandonedKeyLapses) {
            all.push(AbandonedKeyLapses);
        }
        if config.failover {
            all.extend([Backup, Failover]);
        }
        all
    }

    /// Whether it happens by itself when nothing fails and no person interferes. What is decided by such steps alone is
    /// what the protocol owes.
    pub(crate) fn is_natural(self, before: &System) -> bool {
        use Action::*;
        let gone = |w: u8| before.workers[usize::from(w)].step == Step::Gone;
        match self {
            Accept(_)
            | Refuse(_)
            | Publish(_)
            | Deliver(..)
            | ClaimReadsWorker(_)
            | ClaimCommits(_)
            | LateClaimReadsWorker(_)
            | LateClaimCommits(_)
            | ReadBack(_)
            | GiveBack(_)
            | ToolApplies(_)
            | ToolSaysNo(_)
            | OrphanEnds(_)
            | Commit(_)
            | LookAtCommit(_)
            | Complete(_)
            | Fence(_)
            | Leave(_)
            | SettleApplied(_)
            | SettleNotApplied(_)
            | CancelActs
            | CancelLooksAgain => true,
            DeclareDead(w) => gone(w),
            // A sweep that takes a call from a live worker is a fault of time; from a dead one it is its duty.
            TakeLost(call) => before.ledger.open[usize::from(call)].is_some_and(|row| {
                let worker = row.worker.map(usize::from);
                let live =
                    worker.and_then(|w| before.ledger.registered.get(w)) == Some(&Registered::Live);
                // After lost writes the row may name an attempt that no worker runs any more: its time will be over.
                let forgotten = || before.lost_writes && !before.is_run(&row);
                !live || forgotten()
            }),
            AcceptUnanswered(_)
            | AcceptLost(_)
            | LosePointer(_)
            | RepeatPointer(_)
            | ClaimCommitsUnanswered(_)
            | ClaimGoesSilent(_)
            | ClaimIsPhantom(_)
            | LateClaimDies(_)
            | TakeBack(_)
            | ToolAppliesUnanswered(_)
            | ToolIsSilent(_)
            | ToolNotStarted(_)
            | ToolSaysNotNow(_)
            | Abandon(_)
            | OrphanActs(_)
            | CommitUnanswered(_)
            | CommitLost(_)
            | CommitInFlight(_)
            | CompleteUnanswered(_)
            | Crash(_)
            | Expire(_)
            | CancelReads
            | SettleAbandoned(_)
            | AbandonedKeyLapses
            | Backup
            | Failover => false,
        }
    }
}
