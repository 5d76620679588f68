//! The command line, one file per subcommand. `--help` is its reference, and a promise together with the exit codes.
//!
//! `line` is the whole of it, and `parse` reads it. A subcommand returns an exit code when it did its work, whatever the
//! result, and an error when it could not. `exit` turns errors into exit codes; `plain`, `output` and `json` keep stored text
//! from steering a terminal.

mod line;

mod parse;

mod nearby;

mod exit;
mod usage;
mod variable;

mod dev;
mod dispatcher;
mod gateway;
mod worker;

mod migrate;
mod nats_config;

mod doctor;

mod tools;

mod mcp;

mod call;

mod calls;

mod files;

mod workers;

mod control;

mod models;

mod tokens;

mod bench;

mod actor;
mod ask;
mod children;
mod connect;
mod destinations;
mod given;
mod holds;
mod moment;
mod not_looked_at;
mod progress;
mod words;

mod json;
mod output;
mod plain;

pub use self::{
    destinations::Named,
    exit::{OK, describe, exit_code},
    line::{Command, Program},
    parse::{Parsed, parse},
};
