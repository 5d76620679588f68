//! Tools that are handlers in the worker's own program.
//!
//! `handler` makes one of a [`Tool`], and `numbers` rewrites numbers as Rust reads them. `run` runs it as a task of its own and
//! ends it in time.

mod handler;
mod numbers;
mod run;

use std::{collections::HashMap, sync::Arc};

use fleet::{
    fencing::WorkerLock,
    manifest::{ExecutorSpec, Manifest, ManifestProblem, NativeSpec, is_built_in},
    outcome::ToolFailure,
    registry::Registry,
    said,
    secrets::Secrets,
    store::PgPool,
    wire::{code::Code, message::Message},
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::Value;

use self::handler::{Handler, Typed};
use super::{AttemptContext, Executor, Prepared, Returned};
use crate::{
    find_tools::FindTools,
    mcp_discover::McpDiscover,
    read_result::ReadResult,
    todo_write::TodoWrite,
    tool::{self, Tool},
};

/// Runs native tools.
#[derive(Clone, Default)]
pub struct NativeExecutor {
    handlers: HashMap<String, Arc<dyn Handler>>,
    lock: Option<Arc<WorkerLock>>,
}

impl std::fmt::Debug for NativeExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl NativeExecutor {
    /// With the worker's lock. A handler that may still act holds a share, so the worker is not taken for gone.
    #[must_use]
    pub fn holding(mut self, lock: Arc<WorkerLock>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Takes a tool, and returns the manifest that is derived from it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the manifest, or that this version of the tool was added already.
    pub fn add<T: Tool>(&mut self, tool: T) -> Result<Manifest, Vec<ManifestProblem>> {
        let manifest = tool::manifest::manifest(&tool)?;
        let name = manifest.name.as_str();
        if is_built_in(name) || name == McpDiscover::NAME {
            let message = format!("{name} is the fleet's own tool; give this one another name");
            return Err(vec![ManifestProblem {
                path: "/name".to_owned(),
                message,
            }]);
        }
        let handler: Arc<dyn Handler> = Arc::new(Typed(tool));
        let name = tool::manifest::handler::<T>();
        if self.handlers.insert(name, handler).is_some() {
            let message = format!(
                "version {} is here twice; raise the version of one",
                manifest.version
            );
            let path = "/version".to_owned();
            return Err(vec![ManifestProblem { path, message }]);
        }
        Ok(manifest)
    }
}

impl NativeExecutor {
    /// Takes the fleet's own tools that work on the ledger, and on what is known of the tools.
    pub(crate) fn add_built_in(&mut self, ledger: &PgPool, registry: &Registry) {
        self.add_own(ReadResult::of(ledger.clone()));
        self.add_own(FindTools::of(registry.clone()));
        self.add_own(TodoWrite::of(ledger.clone()));
    }

    /// Takes the fleet's own tool that looks at what an MCP server offers.
    pub(crate) fn add_discoverer(&mut self, discoverer: McpDiscover) {
        self.add_own(discoverer);
    }

    fn add_own<T: Tool>(&mut self, tool: T) {
        let name = tool::manifest::handler::<T>();
        self.handlers.insert(name, Arc::new(Typed(tool)));
    }

    fn handler(&self, manifest: &Manifest) -> Result<&Arc<dyn Handler>, ToolFailure> {
        let ExecutorSpec::Native(NativeSpec { handler: name }) = &manifest.executor else {
            let what = Message::fixed(
                "this version of the tool is not a handler",
                "工具的这个版本不是处理程序（handler）",
            );
            return Err(ToolFailure::new(Code::ToolGone, what));
        };
        self.handlers.get(name).ok_or_else(|| {
            // Another worker may have it, so the call waits.
            let message = said!(
                "this worker has no handler {name}",
                "这个 worker 没有处理程序 {name}"
            );
            ToolFailure::new(Code::Unavailable, message)
        })
    }
}

impl Executor for NativeExecutor {
    fn check(&self, manifest: &Manifest, _secrets: &Secrets) -> Result<(), ToolFailure> {
        self.handler(manifest).map(drop)
    }

    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        _secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let handler = self.handler(manifest)?;
        Ok(Box::new(PreparedNative {
            handler: Arc::clone(handler),
            arguments: arguments.clone(),
            key_argument: manifest
                .idempotency
                .as_ref()
                .and_then(|how| how.argument.clone()),
            output_limit: manifest.output_limit,
            share: self.lock.clone(),
        }))
    }
}

/// A handler, and the arguments for it.
struct PreparedNative {
    handler: Arc<dyn Handler>,
    arguments: Value,
    key_argument: Option<String>,
    output_limit: usize,
    share: Option<Arc<WorkerLock>>,
}

impl Prepared for PreparedNative {
    fn run(mut self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        if let (Some(name), Value::Object(members)) =
            (self.key_argument.take(), &mut self.arguments)
        {
            members.insert(name, Value::String(context.idempotency_key.clone()));
        }
        run::run(
            self.handler,
            self.arguments,
            self.output_limit,
            context,
            self.share,
        )
        .boxed()
    }
}
