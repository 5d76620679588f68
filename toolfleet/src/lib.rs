//! The program: one binary, a file per subcommand.

pub mod program;

pub mod commands;

pub mod dev;

pub mod servers;
