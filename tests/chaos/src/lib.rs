//! A fleet under fire: real servers and processes, faults at the worst moments, and an oracle that knows what must hold.
//!
//! ```text
//! seed     every random choice, as a function of the seed and of what is chosen
//! plan     the faults of a run, and the event at which each strikes
//! world    the servers, the processes, the wires between them, and the faults that strike them
//! wire     wires that understand the protocols of Postgres and NATS
//! effects  the world outside: tools of every kind, and a file that remembers every effect
//! clients  programs that submit, wait, cancel, settle, say yes or no and run tools themselves, and write down the answers
//! operator pauses calls and forces breakers at random, and takes it back
//! login    who a program of the run is at NATS
//! history  the records of these programs
//! oracle   the promises that hold at the end, and the events that must happen at least sometimes
//! run      one plan from beginning to verdict
//! evidence the files that a run leaves
//! command  the command line and its output
//! shrink   a smaller plan that fails as well
//! moment   a clock that all processes of this machine share
//! mutants  known mistakes that a run must notice
//! ```

pub mod clients;
pub mod command;
pub mod effects;
mod evidence;
pub mod history;
pub mod login;
pub mod moment;
pub mod mutants;
pub mod operator;
pub mod oracle;
pub mod plan;
pub mod run;
pub mod seed;
pub mod shrink;
pub mod wire;
pub mod world;
