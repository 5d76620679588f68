//! The executor over a server that does what each test says.

mod connections;
mod promises;
mod server;
