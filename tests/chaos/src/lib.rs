//! A fleet under fire: real servers and processes, faults at the worst moments, and an oracle that knows what must hold.
//!
//! ```text
//! seed     every random choice, as a function of the seed and of what is chosen
//! plan     which faults a run has, and at which event each of them strikes
//! world    the servers, the processes, the wires between them, and what a fault does to them
//! wire     wires that understand what they carry: Postgres's protocol and NATS's
//! effects  the world outside: tools of every kind, and a file that remembers every effect
//! clients  programs that submit, wait, cancel and settle, and write down what they were told
//! history  what they wrote down
//! oracle   what must be so at the end, and what must have happened at least sometimes
//! run      one plan from beginning to verdict
//! evidence what is left of it
//! command  what is typed, and what is printed
//! shrink   a smaller plan that fails as well
//! moment   a clock that all processes of this machine share
//! mutants  known mistakes that a run must notice
//! ```

pub mod clients;
pub mod command;
pub mod effects;
mod evidence;
pub mod history;
pub mod moment;
pub mod mutants;
pub mod oracle;
pub mod plan;
pub mod run;
pub mod seed;
pub mod shrink;
pub mod wire;
pub mod world;
