//! The ledger against a real Postgres, a file per verb.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod support;

mod agreement;
mod differential;

mod accept;

mod claim;

mod complete;
mod views;

mod lane;
mod outage;

mod sweep;

mod partitions;
mod tools;
