//! **May this program run here, with the sandbox that it has or lacks?**

use clap::ValueEnum;
use fleet::{
    manifest::Sandbox,
    outcome::ToolFailure,
    wire::{code::Code, message::Message},
};
use serde::Serialize;

use crate::guard::Kernel;

/// Which programs a worker runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxDemand {
    /// Each as its manifest says.
    #[default]
    Manifest,
    /// Only those whose manifest has a sandbox.
    Strict,
}

/// What a worker says of sandboxes in its row.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Sandboxes {
    #[serde(flatten)]
    kernel: Kernel,
    pub(super) demand: SandboxDemand,
}

impl Sandboxes {
    /// Asks the kernel.
    pub(crate) fn find(demand: SandboxDemand) -> Self {
        Self {
            kernel: Kernel::find(),
            demand,
        }
    }

    /// Refuses a program that would run without what its manifest or the worker demands. Another worker may have it.
    pub(super) fn admit(self, sandbox: Option<&Sandbox>) -> Result<(), ToolFailure> {
        let lacking = match (sandbox, self.demand) {
            (Some(_), SandboxDemand::Manifest | SandboxDemand::Strict) => self.kernel.lacking(),
            (None, SandboxDemand::Strict) => Some(Message::fixed(
                "this worker runs only programs with a sandbox (WORKER_SANDBOX=strict), and the tool has none",
                "这个 worker 只运行带沙箱的程序（WORKER_SANDBOX=strict），而这个工具没有沙箱",
            )),
            (None, SandboxDemand::Manifest) => None,
        };
        lacking.map_or(Ok(()), |what| {
            Err(ToolFailure::new(Code::Unavailable, what))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strict_worker_runs_nothing_without_a_sandbox() {
        let refused = Sandboxes::find(SandboxDemand::Strict)
            .admit(None)
            .unwrap_err();
        assert_eq!(refused.code, Code::Unavailable);
        assert!(Sandboxes::find(SandboxDemand::Manifest).admit(None).is_ok());
    }

    #[test]
    fn what_it_says_of_itself_is_flat() {
        let said = serde_json::to_value(Sandboxes::find(SandboxDemand::Strict)).unwrap();
        assert!(
            said["landlock"].is_u64() && said["seccomp"].is_boolean(),
            "{said}"
        );
        assert_eq!(said["demand"], "strict");
    }

    #[test]
    fn a_kernel_that_gives_less_runs_nothing_that_demands_a_sandbox_and_says_so() {
        let sandbox = Sandbox::default();
        for landlock in 0..=6 {
            for seccomp in [false, true] {
                for demand in [SandboxDemand::Manifest, SandboxDemand::Strict] {
                    let kernel = Kernel::of(landlock, seccomp);
                    let here = Sandboxes { kernel, demand };
                    let with = here.admit(Some(&sandbox)).map_err(|why| why.code);
                    let keeps_in = landlock == 6 && seccomp;
                    let expected = keeps_in.then_some(()).ok_or(Code::Unavailable);
                    assert_eq!(with, expected, "{here:?}");
                    let demands = demand == SandboxDemand::Strict;
                    assert_eq!(here.admit(None).is_err(), demands, "{here:?}");
                    let word = if demands { "strict" } else { "manifest" };
                    assert_eq!(
                        serde_json::to_value(here).unwrap(),
                        serde_json::json!({"landlock": landlock, "seccomp": seccomp, "demand": word})
                    );
                }
            }
        }
        let old = Sandboxes {
            kernel: Kernel::of(5, true),
            demand: SandboxDemand::Manifest,
        };
        let why = old.admit(Some(&sandbox)).unwrap_err();
        assert_eq!(
            why.message.english(),
            "the tool has a sandbox, which needs Landlock ABI 6 (Linux 6.12), and this worker's kernel has 5"
        );
    }
}
