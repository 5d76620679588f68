//! Support for tests of the whole fleet: real servers that leave nothing behind, a wire that can be cut, waiting for facts.
//!
//! ```text
//! run_folder   a folder that goes with this process, and with it the servers inside
//! postgres     a cluster shared by the tests of a process; a migrated database for each
//! failover     the same, killed, copied, and replaced by its copy
//! proxy        a wire to a server that can swallow what it carries, and be cut
//! shipped      a nats-server as it is deployed, with its users
//! raw          a client of NATS that sends bytes which no library would send
//! wait         waiting for a fact, bounded
//! witness      the world outside, which remembers every effect and misbehaves when told to
//! fleet        dispatchers, workers, a nats-server and a database, all in this process
//! bus          its nats-server, stopped and started again
//! running      a call that a worker seems to have claimed
//! history      the history in its ledger
//! endpoints    the descriptions of its dispatchers' endpoints
//! process      one of its dispatchers or workers
//! real         one of them in a process of its own, to be killed
//! caller       submits calls, with any headers and bodies
//! load         many callers that ask again with their keys
//! models       the stand-in for vendors of models, with a script
//! web          a client of HTTP that sends any bytes
//! web_answer   what it is answered
//! described    whether that is what the document of the API says
//! event_source a reader of server-sent events
//! invariants   the promises that hold at the end of every scenario
//! ```

mod bus;
pub mod caller;
pub mod described;
mod endpoints;
pub mod event_source;
mod failover;
pub mod fleet;
mod gateway;
mod history;
pub mod invariants;
pub mod load;
pub mod models;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod real;
pub mod run_folder;
pub mod running;
pub mod shipped;
pub mod wait;
pub mod web;
mod web_answer;
pub mod witness;
