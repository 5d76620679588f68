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
}
