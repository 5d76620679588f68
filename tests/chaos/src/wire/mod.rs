//! Wires between a process and its servers that understand what they carry, and spoil it on purpose.
//!
//! ```text
//! line      the common part of all wires: a port, connections, and actions on all of them at once
//! ends      the four ends of one connection, and the time of each piece
//! armed     the faults that wait for a message, and those that have struck
//! postgres  a wire that knows statements
//! nats      a wire that knows messages
//! ```

mod armed;
mod ends;
mod line;
pub mod nats;
pub mod postgres;

pub use line::{Protocol, Wire};
use serde::{Deserialize, Serialize};

/// Whose bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Questions: what the process says.
    Client,
    /// Answers: what the server says.
    Server,
}
