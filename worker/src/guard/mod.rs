//! The guard: a small process between the worker and one tool, so that nothing the tool started survives.
//!
//! ```text
//! worker ──spawns──> guard ──spawns──> tool ──forks──> anything
//!    └── control: a socket pair ──┘
//! ```
//!
//! - The guard is a *child subreaper*: whatever the tool forks, detaches (`setsid`) and orphans becomes the guard's
//!   child. Its descendants are therefore exactly what the tool started, and "no child left" is a fact that the
//!   kernel tells (`ECHILD`), not a guess.
//! - The control socket is the leash. End of file on it means that the worker asks for the end, or died by whatever
//!   means: the kernel closes a dead process's files. Either way the guard ends the tree: TERM, two seconds, KILL.
//! - The guard reports once: the tool exited by itself, or never started. It says nothing about a tool that it had
//!   to end. Its own exit code says whether the tree is empty: 0 yes, anything else no or unknown.
//! - A guard that is itself killed leaves orphans. The worker is a subreaper too ([`adopt_orphans`]) and ends them;
//!   see `orphans`.
//! - A guard does not end before its tree is empty. What it cannot kill, because it has taken another user's rights or
//!   hangs in the kernel, it waits for. A living worker waits for less, kills its guard and goes on by itself.
//! - The guard has a share in the worker's lock ([`fleet::fencing`]), and the tool another one, so that it cannot release
//!   the guard's: a process that can take the lock knows that no guard and no tool of that worker is left.
//!
//! What this cannot do: if the worker *and* the guard are killed with KILL, their tool lives on; and if
//! that tool had closed the descriptor of the lock, no other process sees it.
//! Outside Linux there is neither a subreaper nor `/proc`: only the tool's process group is ended.

mod frame;
mod orphans;
mod serve;
mod tree;

pub(crate) use self::{
    frame::{Ending, GuardReport, NotStarted, Start, encode},
    orphans::{Registered, end_orphans, is_adopting, register},
};
pub use self::{orphans::adopt_orphans, serve::main};

/// This very binary, even after an upgrade replaced the file: the guard of a program that calls [`main`] for `guard`.
pub const THIS_PROGRAM: &str = "/proc/self/exe";
