//! The protocol with one rule left out: the checker must notice. What it would not notice, it does not prove.

use std::time::Instant;

use fleet::call::Effect;
use stateright::{Checker as _, Model as _};

use crate::{
    graph::{self, Walked},
    properties::{
        AT_MOST_ONCE, CANCELLED, DEFINITE, FENCE, NOT_APPLIED, ONE_PER_REQUEST, OWNER, PRESENT,
    },
    protocol::Protocol,
    report::{self, Size},
    rules::{Config, Mutant, Mutant::*, Rules},
};

/// Not a promise that a world breaks: a world without a way on.
const DECIDED: &str = <Protocol as Walked>::DECIDED;

/// A rule that is left out, where that shows, and what it breaks.
struct Case {
    protocol: Protocol,
    breaks: &'static str,
}

fn case(rule: Mutant, config: Config, breaks: &'static str) -> Case {
    Case {
        protocol: Protocol::new(config.without(rule)),
        breaks,
    }
}

fn of(effect: Effect) -> Config {
    Config::of("mutant", effect)
}

fn cancelled(effect: Effect) -> Config {
    Config {
        cancel: true,
        ..of(effect)
    }
}

fn falling_back(effect: Effect) -> Config {
    Config {
        failover: true,
        late_claims: false,
        ..of(effect)
    }
}

/// Leaves the rules out one by one.
fn all_are_caught(cases: impl IntoIterator<Item = Case>) {
    for Case { protocol, breaks } in cases {
        let rules = protocol.config.rules;
        let rule = rules.without.map(|rule| format!("{rule:?}"));
        let config = protocol.config;
        is_caught(
            rule.as_deref().unwrap_or("Assumption"),
            || Protocol::new(config),
            breaks,
        );
    }
}

/// Looks for an accident, and prints the shortest way to it.
pub(crate) fn is_caught<M>(rule: &str, model: impl Fn() -> M, breaks: &'static str)
where
    M: Walked,
{
    let began = Instant::now();
    let Some(way) = counterexample(model, breaks) else {
        panic!("without {rule}, nothing breaks: {breaks}");
    };
    let (steps, took) = (way.len(), began.elapsed().as_secs_f64());
    println!(
        "model | {rule:<28} | {breaks:<64} | {steps:>2} steps | {took:>4.1} s | {}",
        report::line(&way)
    );
}

fn counterexample<M>(model: impl Fn() -> M, breaks: &'static str) -> Option<Vec<M::Action>>
where
    M: Walked,
{
    if breaks == M::DECIDED {
        return graph::walk(&model()).to_stuck;
    }
    if breaks == M::SETTLED {
        return graph::walk(&model()).to_unsettled;
    }
    let model = model();
    let condition = model.property(breaks).condition;
    graph::shortest(&model, |world| !condition(&model, world))
}

#[test]
fn rules_of_claims_are_needed() {
    let once = of(Effect::Once);
    all_are_caught([
        case(RunOnUnknownClaim, once, AT_MOST_ONCE),
        case(PhantomClaim, once, AT_MOST_ONCE),
        case(ClaimAnyState, once, AT_MOST_ONCE),
        case(ClaimPastFence, once, FENCE),
        case(NoSweep, once, DECIDED),
    ]);
}

#[test]
fn rules_of_endings_are_needed() {
    let once = of(Effect::Once);
    all_are_caught([
        case(RequeueLostOnce, once, AT_MOST_ONCE),
        case(RetryOnceAfterTimeout, once, AT_MOST_ONCE),
        case(ReusedConnectionTrusted, once, AT_MOST_ONCE),
        case(CompleteByState, of(Effect::Idempotent), OWNER),
        case(TransactionUnguarded, of(Effect::Transaction), AT_MOST_ONCE),
        case(UnknownCommitRunAgain, of(Effect::Transaction), AT_MOST_ONCE),
        case(CompleteByState, of(Effect::Transaction), OWNER),
        case(CancelLostByRequeue, cancelled(Effect::Once), CANCELLED),
    ]);
}

#[test]
fn rules_of_settling_are_needed() {
    let once = of(Effect::Once);
    let abandoning = Config {
        unsettled: true,
        ..once
    };
    all_are_caught([
        case(SettleUnfenced, once, NOT_APPLIED),
        case(AbandonedIsNotApplied, abandoning, NOT_APPLIED),
        case(
            AbandonedKeyLapses,
            Config {
                callers: 2,
                keyed: true,
                ..abandoning
            },
            ONE_PER_REQUEST,
        ),
        case(RequeueNotAppliedUnfenced, once, AT_MOST_ONCE),
        case(
            AbandonedCountsAsOver,
            Config {
                abandon: true,
                ..once
            },
            NOT_APPLIED,
        ),
    ]);
}

#[test]
fn rules_of_callers_are_needed() {
    let once = of(Effect::Once);
    all_are_caught([
        case(
            KeyNotUnique,
            Config {
                callers: 2,
                keyed: true,
                ..once
            },
            ONE_PER_REQUEST,
        ),
        case(AcceptRepeatedBlindly, once, ONE_PER_REQUEST),
        case(MoveSeenAsAbsence, cancelled(Effect::Once), PRESENT),
    ]);
}

#[test]
fn rules_after_lost_writes_are_needed() {
    let (once, idempotent) = (falling_back(Effect::Once), falling_back(Effect::Idempotent));
    all_are_caught([
        case(FailoverUnquarantined, once, AT_MOST_ONCE),
        case(CountedAttempts, idempotent, OWNER),
        case(QuarantineTakesLateNo, once, NOT_APPLIED),
        case(QuarantineSparesIdempotent, idempotent, NOT_APPLIED),
        case(QuarantineTrustsFences, idempotent, NOT_APPLIED),
        case(QuarantineKeepsAttempt, idempotent, DEFINITE),
        case(
            TransactionElsewhere,
            falling_back(Effect::Transaction),
            AT_MOST_ONCE,
        ),
    ]);
}

#[test]
fn a_keyed_no_has_to_be_final() {
    let rules = Rules {
        no_is_for_good: false,
        ..Rules::default()
    };
    let protocol = Protocol::new(Config {
        rules,
        ..of(Effect::Idempotent)
    });
    all_are_caught([Case {
        protocol,
        breaks: DEFINITE,
    }]);
}

/// What makes a mutant harmless, and so shows which rule it is that carries the weight.
#[test]
fn controls_hold() {
    let phantom = of(Effect::Once).without(PhantomClaim);
    let read_back = Rules {
        read_back_always: true,
        ..phantom.rules
    };
    let requeued = of(Effect::Once).without(RequeueNotApplied);
    for config in [
        Config {
            name: "phantom claims, but read back",
            rules: read_back,
            ..phantom
        },
        Config {
            name: "not applied runs again, but fenced",
            ..requeued
        },
    ] {
        let began = Instant::now();
        let checker = Protocol::new(config).checker().spawn_bfs().join();
        if let Some((promise, way)) = checker.discoveries().into_iter().next() {
            panic!(
                "{}",
                report::tell(checker.model(), promise, &way.into_actions())
            );
        }
        let size = Size {
            states: checker.unique_state_count(),
            transitions: checker.state_count(),
            depth: checker.max_depth(),
            took: began.elapsed(),
        };
        size.print(config.name, "holds");
    }
}
