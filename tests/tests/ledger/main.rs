//! The ledger against a real Postgres, a file per verb.

mod harness;
