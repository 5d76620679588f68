//! What a dispatcher and a worker share: the words, the decisions, the ledger, the bus.
//!
//! The modules stand in reading order.

// The nouns.
pub mod call;
pub mod ids;

// What is read of a text.
pub mod terms;

// The decisions: pure, each with one home.
pub mod state;

pub mod outcome;

pub mod taken_back;

pub mod retry;

pub mod fallback;

pub mod ending;

pub mod delay;

pub mod lease;

pub mod large_result;

pub mod learn;

pub mod probe;

pub mod breaker;
pub mod modes;

pub mod controls;

pub mod approval;
pub mod hold;
pub mod input;
pub mod rate_key;

pub mod lost_writes;

pub mod owner;

pub mod obstacle;

pub mod egress;

// What may come in.
mod alike;
pub mod arguments;
pub mod content;
pub mod files;
pub mod manifest;
pub mod mcp;
pub mod references;
pub mod todo;
pub use ::arguments::{canonical, said};

// What leaves the process.
pub mod definitions;
pub mod wire;

// The two adapters; they do not know each other.
pub mod bus;
pub mod store;

// What a process is made of.
pub mod checkpoint;
pub mod config;
pub mod explain;
pub mod fencing;
pub mod http;
pub mod invisible;
pub mod process;
pub mod processes;
pub mod registry;
pub mod secrets;
pub mod sensitive;
pub mod telemetry;
pub mod tokens;
