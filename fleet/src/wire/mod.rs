//! What leaves the process.
pub mod code;
pub mod trace;
