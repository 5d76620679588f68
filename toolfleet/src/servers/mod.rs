//! Real servers, started for one person or one test run: Postgres and nats-server.
//!
//! `find` finds the programs, `process` is shared by both servers, `ports` finds free ports, `place` is the folder of a cluster
//! when this user is root, `cluster` creates it, `tools` makes a role and a schema for sql tools in it; `postgres` and `nats`
//! start one server each and wait until it answers. Every wait is bounded, and an error quotes the last lines of the server's
//! own log.

mod error;
pub mod find;
mod ports;
pub mod process;

pub mod place;

mod cluster;

pub mod postgres;

pub mod tools;

pub mod nats;

pub(crate) use self::ports::{HeldPort, hold_ports};
pub use self::{
    error::ServerError,
    nats::{Nats, NatsOptions},
    ports::free_ports,
    postgres::{Postgres, PostgresOptions},
};
