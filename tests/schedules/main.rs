//! What runs beside each other in one process, under thousands of schedules (docs/model.md, "In one process").
//!
//! The sources are the product's own; `weave` only puts shuttle under them. `world` is what they meet: time, Postgres and
//! NATS. A file per part says what must hold under every schedule, and which mistakes it finds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod budgets;
mod check;
mod lane;
mod permits;
mod reports;
mod requests;
mod waiters;
mod world;
mod woven;
