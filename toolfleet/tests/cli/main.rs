//! The command line as its users meet it: the real program, its output and its exit code, on real servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod approvals;
mod bench;
mod calls;
mod cancel;
mod checks;
mod client_tools;
mod control;
mod decisions;
mod doctor;
mod exits;
mod explain;
mod files;
mod help;
mod hidden;
mod history;
mod interceptors;
mod limit;
mod listing;
mod mcp;
mod migrate;
mod mistakes;
mod settings;
mod support;
mod timeouts;
mod tokens;
mod tools;
mod workers;
