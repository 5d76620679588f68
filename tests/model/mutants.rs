//! The protocol with one rule left out: the checker must notice. What it would not notice, it does not prove.

use std::time::Instant;

use fleet::call::Effect;
use stateright::{Checker as _, HasDiscoveries, Model as _, Path};

use crate::{
    actions::Action,
    graph,
    properties::{
        AT_MOST_ONCE, CANCELLED, DEFINITE, FENCE, NOT_APPLIED, ONE_PER_REQUEST, OWNER, PRESENT,
    },
    protocol::Protocol,
    report::{self, Size},
    rules::{Config, Mutant, Mutant::*, Rules},
};

/// Not a promise that a world breaks: a world without a way on.
const DECIDED: &str = "every call is decided in the end";

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

/// Leaves the rules out one by one, and prints the shortest way to each accident.
fn all_are_caught(cases: impl IntoIterator<Item = Case>) {
    for Case { protocol, breaks } in cases {
        let began = Instant::now();
        let rule = protocol
            .config
            .rules
            .without
            .map_or("Assumption".to_owned(), |rule| format!("{rule:?}"));
        let Some(way) = counterexample(&protocol, breaks) else {
            panic!("without {rule}, nothing breaks: {breaks}");
        };
        let (steps, took) = (way.len(), began.elapsed().as_secs_f64());
        println!(
            "model | {rule:<28} | {breaks:<56} | {steps:>2} steps | {took:>4.1} s | {}",
            report::line(&way)
        );
    }
}

fn counterexample(protocol: &Protocol, breaks: &'static str) -> Option<Vec<Action>> {
    if breaks == DECIDED {
        return graph::walk(protocol).to_stuck;
    }
    let first = HasDiscoveries::AnyOf([breaks].into());
    let checker = Protocol::new(protocol.config)
        .checker()
        .finish_when(first)
        .spawn_bfs()
        .join();
    let way = checker.discovery(breaks).map(Path::into_actions)?;
    let condition = protocol.property(breaks).condition;
    Some(graph::shorten(protocol, &way, |world| {
        !condition(protocol, world)
    }))
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
    all_are_caught([
        case(SettleUnfenced, once, NOT_APPLIED),
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
