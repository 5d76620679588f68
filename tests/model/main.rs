//! The protocol, looked at in full: every order of every step, with every fault at every moment.
//!
//! Read `state` (what there is), `actions` (what can happen), `ledger`, `worker` and `rulings` (what it does), `properties`
//! (what is promised). `held` is a second model, of calls that wait for each other; `breaker` a third, of a breaker; `waits` one of a call
//! that its caller's program runs, `later` one of a call whose tool answers later. `docs/model.md` says what this proves, what it
//! does not, and how to read a counterexample.

#![expect(
    clippy::print_stdout,
    reason = "how much was looked at belongs into the report of the tests"
)]

mod actions;
mod approvals;
mod breaker;
mod canonical;
mod flight;
mod graph;
mod held;
mod later;
mod ledger;
mod mutants;
mod properties;
mod protocol;
mod report;
mod rules;
mod rulings;
mod state;
mod waits;
mod worker;

use std::time::Instant;

use fleet::call::Effect;
use stateright::{Checker as _, Expectation, Path};

use crate::{
    graph::{Graph, Walked},
    protocol::Protocol,
    report::Size,
    rules::Config,
};

/// Looks at all of a configuration: no promise is broken, every situation comes up, and there is always a way on.
fn hold<M>(model: M)
where
    M: Walked + Send + Sync + 'static,
    M::State: Send + Sync,
    M::Action: Send + Sync,
{
    let began = Instant::now();
    let checker = model.checker().spawn_bfs().join();
    let model = checker.model();
    let mut found = checker.discoveries();
    for property in model.properties() {
        let found = found.remove(property.name).map(Path::into_actions);
        match (property.expectation, found) {
            (Expectation::Always, Some(way)) => {
                let way = graph::shorten(model, &way, |world| !(property.condition)(model, world));
                panic!("{}", report::tell(model, property.name, &way));
            }
            (Expectation::Sometimes, None) => {
                panic!("{}: never comes up: {}", model.name(), property.name)
            }
            _ => {}
        }
    }
    let graph = graph::walk(model);
    assert_eq!(
        graph.states,
        checker.unique_state_count(),
        "both walks see the same worlds"
    );
    assert_always_a_way_on(model, &graph);
    let size = Size {
        states: graph.states,
        transitions: checker.state_count(),
        depth: checker.max_depth(),
        took: began.elapsed(),
    };
    size.print(model.name(), "holds, nothing is stuck");
}

fn assert_always_a_way_on<M: Walked>(model: &M, graph: &Graph<M::Action>) {
    let name = model.name();
    if let Some(way) = &graph.to_stuck {
        panic!("{}", report::tell(model, M::DECIDED, way));
    }
    if let Some(way) = &graph.to_unsettled {
        panic!("{}", report::tell(model, M::SETTLED, way));
    }
    assert_eq!(
        graph.moves,
        model.expected_moves(),
        "{name}: the moves that calls make"
    );
    assert_eq!(graph.never, model.impossible(), "{name}: steps never taken");
}

/// One call, and all that it can meet.
fn holds(config: Config) {
    hold(Protocol::new(config));
}

#[test]
fn a_once_call_holds() {
    let config = Config::of("once, cancel, abandoned tools", Effect::Once);
    holds(Config {
        cancel: true,
        abandon: true,
        ..config
    });
}

#[test]
fn a_once_call_holds_with_three_workers() {
    let config = Config::of("once, three workers", Effect::Once);
    holds(Config {
        workers: 3,
        ..config
    });
}

#[test]
fn a_once_call_holds_after_lost_writes() {
    let config = Config::of("once, lossy failover, unsettled", Effect::Once);
    holds(Config {
        failover: true,
        unsettled: true,
        late_claims: false,
        ..config
    });
}

#[test]
fn a_once_call_that_is_sent_twice_with_a_key_holds() {
    let config = Config::of("once, sent twice with a key, unsettled", Effect::Once);
    holds(Config {
        callers: 2,
        keyed: true,
        unsettled: true,
        ..config
    });
}

#[test]
fn an_idempotent_call_holds() {
    holds(Config::of("idempotent", Effect::Idempotent));
}

#[test]
fn an_idempotent_call_that_is_cancelled_holds() {
    let config = Config::of("idempotent, cancel, abandoned tools", Effect::Idempotent);
    holds(Config {
        cancel: true,
        abandon: true,
        late_claims: false,
        ..config
    });
}

#[test]
fn an_idempotent_call_holds_after_lost_writes() {
    let config = Config::of("idempotent, lossy failover", Effect::Idempotent);
    holds(Config {
        failover: true,
        late_claims: false,
        unanswered: false,
        ..config
    });
}

#[test]
fn a_transaction_holds() {
    let config = Config::of("transaction, cancel", Effect::Transaction);
    holds(Config {
        cancel: true,
        ..config
    });
}

#[test]
fn a_transaction_holds_after_lost_writes() {
    let config = Config::of("transaction, lossy failover", Effect::Transaction);
    holds(Config {
        failover: true,
        late_claims: false,
        ..config
    });
}

#[test]
fn a_read_holds() {
    let config = Config::of("read, cancel", Effect::Read);
    holds(Config {
        cancel: true,
        ..config
    });
}
