//! The sandbox of a program: what a process takes from itself before it becomes the program.
//!
//! ```text
//! guard ──spawns──> launcher ──restricts itself, then exec──> tool
//!   └── `count`: memory and processes of everything below it
//! ```
//!
//! The launcher is the guard's own program once more, so that nothing has to be done between a fork and an exec, which only
//! unsafe code could. It takes, in this order: files, TCP, signals and abstract sockets (`files`, by Landlock), capabilities and
//! sizes (`launch`), and system calls that lead past those (`calls`, by seccomp). All of it lasts over exec and fork, and none of
//! it can be given back.
//!
//! Limits: Landlock does not see what a program does to a path-name socket, so a program whose network is not `host` makes no
//! unix socket at all; nor does it see who is told of names in a folder, so no program is told of them. Memory and processes are
//! counted some forty times a second and not limited by the kernel: a program may be beyond for a moment. What the kernel keeps
//! for descriptors is not counted: at most its default of a buffer (`net.core.wmem_default`, 208 KiB) and one message as large for
//! each end of a socket pair, so 104 MiB for the 256 `open_files` of a process. How many files of `file_size` it writes is not limited.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod count;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod launch;
mod tmp;

use std::path::PathBuf;

use fleet::{manifest::Sandbox, said, wire::message::Message};
use serde::{Deserialize, Serialize};

pub(crate) use self::tmp::Tmp;
#[cfg(target_os = "linux")]
pub(super) use self::{count::watch, launch::launch};

/// The word after `guard` that makes this program a launcher.
pub(super) const WORD: &str = "sandbox";

/// The Landlock ABI that a sandbox needs: the first one that keeps signals and abstract sockets in. Linux 6.12.
const LANDLOCK_NEEDED: u8 = 6;

/// What the launcher is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    /// The manifest's word.
    pub(super) sandbox: Sandbox,
    /// The attempt's own folder.
    pub(super) tmp: Option<PathBuf>,
    /// The pipe into which it may write what it tells while it runs.
    #[serde(default)]
    pub(super) fifo: Option<PathBuf>,
    /// The folder with the files of its call, which it may read.
    #[serde(default)]
    pub(super) files: Option<PathBuf>,
    /// Where it starts, if the manifest says so: it may read what is there.
    pub(super) cwd: Option<String>,
}

/// Of what a program used more than its sandbox gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Excess {
    /// Bytes, of all its processes together.
    Memory,
    /// Processes and threads.
    Processes,
}

impl Excess {
    /// The field of the manifest that gives it.
    pub(crate) const fn field(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "processes",
        }
    }
}

/// What the kernel of this machine gives to sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Kernel {
    /// The Landlock ABI, 0 without; newer ones count as 6.
    landlock: u8,
    /// Whether system calls can be filtered.
    seccomp: bool,
}

impl Kernel {
    /// Asks it.
    pub(crate) fn find() -> Self {
        #[cfg(target_os = "linux")]
        return Self {
            landlock: files::landlock(),
            seccomp: calls::are_filtered(),
        };
        #[cfg(not(target_os = "linux"))]
        Self {
            landlock: 0,
            seccomp: false,
        }
    }

    /// One that a test needs.
    #[cfg(test)]
    pub(crate) const fn of(landlock: u8, seccomp: bool) -> Self {
        Self { landlock, seccomp }
    }

    /// What a sandbox lacks here, one clause. `None`: nothing.
    pub(crate) fn lacking(self) -> Option<Message> {
        let landlock = self.landlock;
        if landlock < LANDLOCK_NEEDED {
            return Some(said!(
                "the tool has a sandbox, which needs Landlock ABI {LANDLOCK_NEEDED} (Linux 6.12), and this worker's kernel has {landlock}",
                "工具需要沙箱（Landlock ABI {LANDLOCK_NEEDED}，Linux 6.12），而这个 worker 的内核只有 {landlock}"
            ));
        }
        (!self.seccomp).then(|| {
            Message::fixed(
                "the tool has a sandbox, which needs seccomp filters, and this worker's kernel has none for its processor",
                "工具需要沙箱（seccomp 过滤器），而这个 worker 的内核没有",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_gives_less_is_named() {
        assert_eq!(Kernel::of(6, true).lacking(), None);
        for lacking in [
            Kernel::of(0, true),
            Kernel::of(5, true),
            Kernel::of(6, false),
        ] {
            let why = lacking.lacking().unwrap();
            assert!(
                why.english().contains("this worker's kernel has"),
                "{why:?}"
            );
        }
    }
}
