//! The ledger against a real Postgres, a file per verb.

mod support;

mod agreement;

mod accept;

mod claim;

mod complete;
mod views;

mod lane;
mod outage;

// mod sweep;

// mod partitions;
// mod tools;
