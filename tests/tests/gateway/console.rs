//! The console: who gets in, what pages show of strangers, and that each of its forms does what its endpoint does.

mod browser;
mod corpus;
mod decisions;
mod signing_in;
