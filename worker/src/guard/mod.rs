//! The guard: a small process between the worker and one tool, so that nothing the tool started survives.
//!
//! ```text
//! worker ──spawns──> guard ──spawns──> tool ──forks──> anything
//!    └── control: a socket pair ──┘
//! ```
//!
//! - The guard is a *child subreaper*: a process that the tool forks, detaches (`setsid`) and orphans becomes the guard's
//!   child. So its descendants are exactly what the tool started, and "no child left" is a fact from the kernel (`ECHILD`), not
//!   a guess.
//! - The control socket is the leash. End of file on it means that the worker asks for the end or is dead, for the kernel
//!   closes a dead process's files. Either way the guard ends the tree: TERM, two seconds, KILL.
//! - The guard reports once: the tool exited by itself, or never started. It reports nothing about a tool that it had to end.
//!   Its own exit code says whether the tree is empty: 0 yes, anything else no or unknown.
//! - A guard that is itself killed leaves orphans. The worker is a subreaper too ([`adopt_orphans`]) and ends them; see
//!   `orphans`.
//! - A guard does not end before its tree is empty. It waits for a process that it cannot kill, because that has another user's
//!   rights or hangs in the kernel. A living worker waits for less, kills its guard and goes on by itself.
//! - The guard has a share of the worker's lock ([`fleet::fencing`]). The tool has another share, so it cannot release the
//!   guard's. A process that can take the lock knows that no guard and no tool of that worker is left.
//! - A guard writes a file before it starts its tool and removes it when the tree is empty ([`fleet::fencing::Unended`]). If
//!   the worker *and* the guard are killed with KILL, their tool lives on; that file then keeps the worker from being called
//!   gone, also when the tool has closed the descriptor of the lock.
//! - A tool with a sandbox is started by a launcher, and the guard counts what it uses; see `sandbox`.
//!
//! Limits: outside Linux there is neither a subreaper nor `/proc`: only the tool's process
//! group is ended.

mod frame;
mod orphans;
mod output;
mod sandbox;
mod serve;
mod tree;

pub(crate) use self::{
    frame::{Ending, GuardReport, NotStarted, Start, encode},
    orphans::{Lost, Registered, end_orphans, is_adopting, register},
    sandbox::{Excess, Kernel, Tmp},
};
pub use self::{orphans::adopt_orphans, serve::main};

/// This very binary, even after an upgrade replaced the file: the guard of a program that calls [`main`] for `guard`.
pub const THIS_PROGRAM: &str = "/proc/self/exe";
