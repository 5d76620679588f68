//! What tests of the whole fleet stand on: real servers that leave nothing behind, a wire that can be cut, waiting for facts.
//!
//! ```text
//! run_folder   a folder that goes with this process, and with it the Postgres inside
//! postgres     a cluster shared by the tests of a process; a migrated database for each
//! proxy        a wire to a server that can swallow what it carries, and be cut
//! wait         waiting for a fact, bounded
//! ```

pub mod postgres;
pub mod proxy;
pub mod run_folder;
pub mod wait;
