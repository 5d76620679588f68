//! Tools that are programs: arguments on stdin, the answer on stdout, no process left behind.
//!
//! `program` is what is run and `environment` what it sees. `fifo` takes what it tells while it runs, in `lines`. `run` starts it
//! under a guard and observes it; `server` does so with one that serves many attempts; `sandboxes` is which of them may run here;
//! `verdict` says what the observation means.

mod environment;
mod fifo;
mod lines;
mod program;
mod run;
mod sandboxes;
pub(in crate::executors) mod server;
mod verdict;

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use fleet::{
    fencing::WorkerLock,
    manifest::{ExecutorSpec, Manifest},
    outcome::ToolFailure,
    secrets::Secrets,
    wire::{code::Code, message::Message},
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::Value;

pub(in crate::executors) use self::program::GuardCommand;
use self::program::Program;
pub use self::sandboxes::SandboxDemand;
pub(crate) use self::sandboxes::Sandboxes;
use super::{
    AttemptContext, Executor, Prepared, Returned,
    executor::has_secrets,
    redact::{hidden, missing_secret, redact, veil},
};

/// Runs programs, each under a guard of its own.
#[derive(Debug, Clone)]
pub struct ProcessExecutor {
    /// `None`: it runs nothing.
    guard: Option<Arc<GuardCommand>>,
    sandboxes: Sandboxes,
}

impl ProcessExecutor {
    /// `guard_program` must call [`crate::guard::main`] when it is started with `guard_args`. As long as a process of a tool
    /// lives it holds a share of `lock`, so the worker is not taken for gone.
    ///
    /// On Linux `/proc/self/exe` is the best program: it is this very binary even after an upgrade replaced the file.
    pub fn new(guard_program: PathBuf, guard_args: Vec<OsString>, lock: Arc<WorkerLock>) -> Self {
        let inherited = environment::inherited();
        Self {
            guard: Some(Arc::new(GuardCommand {
                program: guard_program,
                args: guard_args,
                inherited,
                lock,
            })),
            sandboxes: Sandboxes::find(SandboxDemand::default()),
        }
    }

    /// For a worker without a guard: calls of programs wait for another one.
    pub fn without_guard() -> Self {
        Self {
            guard: None,
            sandboxes: Sandboxes::find(SandboxDemand::default()),
        }
    }

    /// Has it run only programs with a sandbox, or any.
    #[must_use]
    pub const fn demanding(mut self, demand: SandboxDemand) -> Self {
        self.sandboxes.demand = demand;
        self
    }
}

impl ProcessExecutor {
    /// How guards are started; `None`: this worker runs no programs.
    pub(in crate::executors) fn guard_command(&self) -> Option<Arc<GuardCommand>> {
        self.guard.clone()
    }

    fn guard(&self) -> Result<&Arc<GuardCommand>, ToolFailure> {
        self.guard.as_ref().ok_or_else(|| {
            let what = Message::fixed(
                "this worker has no guard_program, so it runs no programs",
                "这个 worker 没有 guard_program，不能运行程序",
            );
            ToolFailure::new(Code::Unavailable, what)
        })
    }
}

impl Executor for ProcessExecutor {
    fn is_program(&self, _manifest: &Manifest) -> bool {
        true
    }

    fn check(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        self.guard()?;
        self.sandboxes.admit(manifest.sandbox.as_ref())?;
        has_secrets(manifest, secrets)
    }

    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let ExecutorSpec::Process(spec) = &manifest.executor else {
            let what = Message::fixed(
                "this version of the tool is not a program",
                "工具的这个版本不是程序",
            );
            return Err(ToolFailure::new(Code::ToolGone, what));
        };
        let guard = self.guard()?;
        self.sandboxes.admit(manifest.sandbox.as_ref())?;
        let resolve = |(name, value): (&String, &String)| match secrets.resolve(value) {
            Ok(secret) => Ok((name.clone(), secret)),
            Err(error) => Err(missing_secret(&error)),
        };
        Ok(Box::new(Program {
            guard: Arc::clone(guard),
            env: spec.env.iter().map(resolve).collect::<Result<_, _>>()?,
            spec: spec.clone(),
            sandbox: manifest.sandbox.clone(),
            arguments: arguments.clone(),
            key_argument: manifest
                .idempotency
                .as_ref()
                .and_then(|how| how.argument.clone()),
            output_limit: manifest.output_limit,
            redact_results: manifest.redact_results,
            rules: verdict::ExitRules {
                effect: manifest.effect,
                exit_codes: manifest.exit_codes.clone(),
            },
        }))
    }
}

impl Prepared for Program {
    fn run(mut self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        if let (Some(name), Value::Object(members)) =
            (self.key_argument.take(), &mut self.arguments)
        {
            members.insert(name, Value::String(context.idempotency_key.clone()));
        }
        async move {
            let hidden = hidden(self.secrets(), self.redact_results);
            context.progress.hide(&hidden);
            let observed = run::run(&self, &context).await;
            let (secrets, left_behind) = (self.secrets(), observed.left_behind);
            let outcome = verdict::verdict(observed, &self.rules);
            let outcome = outcome.reworded(|text| redact(text, &secrets));
            Returned {
                left_behind,
                ..veil(outcome, &hidden).into()
            }
        }
        .boxed()
    }
}
