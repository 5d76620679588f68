//! What a dispatcher and a worker share: the words, the decisions, the ledger, the bus.
//!
//! In reading order: `ids` and `call` are the nouns; `state`, `outcome` and `retry` are the decisions,
//! pure and each with one home; `arguments`, `canonical` and `manifest` say what may come in;
//! `wire` is what leaves the process; `store` and `bus` are the two adapters, and do not know each other.

pub mod ids;
pub mod call;
pub mod state;
pub mod outcome;
pub mod delay;
pub mod retry;
pub mod manifest;
pub mod canonical;
pub mod arguments;
pub mod definitions;
pub mod wire;
pub mod store;
pub mod bus;
pub mod registry;
pub mod secrets;
pub mod config;
pub mod telemetry;
pub mod http;
