//! The users of nats-server: what is shipped, what each may do, and a fleet that runs as them.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod fleet;
mod login;
mod matrix;
mod mcp_serve;
mod shipped;
