//! `toolfleet dev` and the servers under it, with real servers and real kills.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod clients;
mod first_tool;
mod identity;
mod kept;
mod lifecycle;
mod offered;
mod servers;
mod supervision;
mod support;
