//! The console: who gets in, what pages show of strangers, that each of its forms does what its endpoint does,
//! and what operators see of tools.

mod browser;
mod corpus;
mod decisions;
mod inbox;
mod large;
mod signing_in;
mod tools;
