//! The least that a durable call costs on given servers: a client, a dispatcher and a worker in one process, written by hand
//! without any of the product's features.
//!
//! A call is committed with its key, its pointer goes through a work queue, it is claimed, acknowledged, run (the tool does
//! nothing), completed with its history and its attempt, and answered: four rows, three commits, one publication, one
//! delivery, one answer. Three statements in batches, each on a connection of its own, and nothing else.
//!
//! ```text
//! client       callers in a closed loop, and their measurements
//! dispatcher   accepts, publishes pointers, answers
//! worker       pulls, claims, completes
//! batch        the requests that arrived while the last batch was in flight
//! store        tables and statements
//! bus          subjects and the stream
//! pgbench      the same rows written by Postgres's own program
//! report       the printed results
//! program      the command line, and the order of a run
//! ```

pub mod batch;
pub mod bus;
pub mod client;
pub mod dispatcher;
pub mod pgbench;
pub mod program;
pub mod report;
pub mod store;
pub mod worker;
