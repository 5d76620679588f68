//! The protocol, looked at in full: every order of every step, with every fault at every moment.
//!
//! Read `state` (what there is), `actions` (what can happen), `ledger`, `worker` and `rulings` (what it does), `properties`
//! (what is promised). `docs/model.md` says what this proves, what it does not, and how to read a counterexample.

#![expect(
    clippy::print_stdout,
    reason = "how much was looked at belongs into the report of the tests"
)]

mod actions;
mod canonical;
mod graph;
mod ledger;
mod mutants;
mod properties;
mod protocol;
mod report;
mod rules;
mod rulings;
mod state;
mod worker;

use std::time::Instant;

use fleet::call::Effect;
use stateright::{Checker as _, Expectation, Model as _, Path};

use crate::{graph::Graph, protocol::Protocol, report::Size, rules::Config};

/// Looks at all of a configuration: no promise is broken, every situation comes up, and there is always a way on.
fn hold(config: Config) {
    let began = Instant::now();
    let checker = Protocol::new(config).checker().spawn_bfs().join();
    let protocol = checker.model();
    let mut found = checker.discoveries();
    for property in protocol.properties() {
        let found = found.remove(property.name).map(Path::into_actions);
        match (property.expectation, found) {
            (Expectation::Always, Some(way)) => {
                let way = graph::shorten(protocol, &way, |world| {
                    !(property.condition)(protocol, world)
                });
                panic!("{}", report::tell(protocol, property.name, &way));
            }
            (Expectation::Sometimes, None) => {
                panic!("{}: never comes up: {}", config.name, property.name)
            }
            _ => {}
        }
    }
    let graph = graph::walk(protocol);
    assert_eq!(
        graph.states,
        checker.unique_state_count(),
        "both walks see the same worlds"
    );
    assert_always_a_way_on(protocol, &graph);
    let size = Size {
        states: graph.states,
        transitions: checker.state_count(),
        depth: checker.max_depth(),
        took: began.elapsed(),
    };
    size.print(config.name, "holds, nothing is stuck");
}

fn assert_always_a_way_on(protocol: &Protocol, graph: &Graph) {
    if let Some(way) = &graph.to_stuck {
        panic!(
            "{}",
            report::tell(protocol, "every call is decided in the end", way)
        );
    }
    if let Some(way) = &graph.to_unsettled {
        panic!(
            "{}",
            report::tell(protocol, "every doubt can be settled", way)
        );
    }
    assert_eq!(
        graph.moves,
        properties::moves(&protocol.config),
        "{}: the moves that calls make",
        protocol.config.name
    );
    assert_eq!(
        graph.never,
        properties::impossible(&protocol.config),
        "{}: steps never taken",
        protocol.config.name
    );
}

#[test]
fn a_once_call_holds() {
    let config = Config::of("once, cancel, abandoned tools", Effect::Once);
    hold(Config {
        cancel: true,
        abandon: true,
        ..config
    });
}

#[test]
fn a_once_call_holds_with_three_workers() {
    let config = Config::of("once, three workers", Effect::Once);
    hold(Config {
        workers: 3,
        ..config
    });
}

#[test]
fn a_once_call_holds_after_lost_writes() {
    let config = Config::of("once, lossy failover", Effect::Once);
    hold(Config {
        failover: true,
        late_claims: false,
        ..config
    });
}

#[test]
fn a_once_call_that_is_sent_twice_with_a_key_holds() {
    let config = Config::of("once, sent twice with a key", Effect::Once);
    hold(Config {
        callers: 2,
        keyed: true,
        ..config
    });
}

#[test]
fn an_idempotent_call_holds() {
    hold(Config::of("idempotent", Effect::Idempotent));
}

#[test]
fn an_idempotent_call_that_is_cancelled_holds() {
    let config = Config::of("idempotent, cancel, abandoned tools", Effect::Idempotent);
    hold(Config {
        cancel: true,
        abandon: true,
        late_claims: false,
        ..config
    });
}

#[test]
fn an_idempotent_call_holds_after_lost_writes() {
    let config = Config::of("idempotent, lossy failover", Effect::Idempotent);
    hold(Config {
        failover: true,
        late_claims: false,
        unanswered: false,
        ..config
    });
}

#[test]
fn a_transaction_holds() {
    let config = Config::of("transaction, cancel", Effect::Transaction);
    hold(Config {
        cancel: true,
        ..config
    });
}

#[test]
fn a_transaction_holds_after_lost_writes() {
    let config = Config::of("transaction, lossy failover", Effect::Transaction);
    hold(Config {
        failover: true,
        late_claims: false,
        ..config
    });
}

#[test]
fn a_read_holds() {
    let config = Config::of("read, cancel", Effect::Read);
    hold(Config {
        cancel: true,
        ..config
    });
}
