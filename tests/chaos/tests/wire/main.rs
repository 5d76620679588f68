//! The wires of the chaos run, against real servers: every fault does what it says, and nothing else is harmed.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod fleet;
mod nats;
mod postgres;
