//! The gateway, by real parts: what callers get over HTTP beside what they get over NATS, and what becomes of calls when a caller, a
//! gateway or a server goes away.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

// In reading order.
mod calls;

mod askers;
mod check;
mod decisions;
mod files;
mod listing;
mod looks;

mod console;
mod control;
mod openapi;
mod operators;

mod reach;
mod rights;
mod tokens;

mod bad_input;
mod bad_wire;
mod connections;
mod edge;
mod every;

mod model_streams;
mod models;

mod streams;

mod turns;

mod turn_outputs;
mod turn_refusals;

mod mcp;

mod gaps;
mod stream_ends;

mod outages;
mod stop;
