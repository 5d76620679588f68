//! The worker: deliver, gate, claim, ack, execute, complete, reply.

pub mod executors;
pub mod guard;
