//! The ledger against a real Postgres, a file per verb.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]
#![expect(clippy::print_stdout, reason = "a race says how often it was counted")]

mod support;

mod agreement;
mod answers;
mod differential;
mod endings;
mod flight;
mod purges;

mod accept;

mod claim;
mod limited;
mod places;
mod policies;
mod rates;

mod complete;
mod late;
mod transaction;
mod views;

mod approvals;
mod cancel;
mod controls;
mod marks;
mod model_calls;
mod model_spend;
mod modes;
mod parked;
mod settle;
mod todos;

mod breakers;
mod fence;
mod files;
mod held_snapshot;
mod lane;
mod looks;
mod open_counts;
mod outage;
mod pauses;
mod plans;
mod quarantine;
mod release;
mod session;
mod snapshot;

mod sweep;
mod timeouts;

mod partitions;
mod readers;
mod roles;
mod tokens;
mod tools;
