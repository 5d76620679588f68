//! SQL tools against a real Postgres: what is sent, what each answer means, what cannot be smuggled in.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod bench;
mod cost;

mod commit;
mod meaning;
mod types;

mod bounds;
mod memory;
mod pipeline;
mod rows;
mod tls;
mod wire;

mod leaks;
mod shadows;
mod smuggling;
