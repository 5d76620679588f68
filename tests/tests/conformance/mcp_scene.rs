//! A worker's executor beside one MCP server that does whatever a server can do, and counts what it did.

use std::{fs, process::Child, sync::Arc, time::Duration};

use fleet::{
    call::Effect,
    egress::Egress,
    fencing::StateDir,
    ids::WorkerId,
    manifest::{AnyManifest, Manifest, parse_any},
    mcp::pin::Pin,
    outcome::{Outcome, OutcomeWord},
    registry::Registry,
    secrets::Secrets,
    wire::code::Code,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use worker::executors::{
    AttemptContext, Executor, Prepared, Returned, mcp::McpExecutor, process::ProcessExecutor,
};

use super::mcp::{SERVER, definition, start};

/// As long as no attempt takes.
pub(crate) const AMPLE: Duration = Duration::from_secs(20);

/// A worker's executor, and one server.
pub(crate) struct Scene {
    pub(crate) executor: McpExecutor,
    server: TempDir,
    pub(crate) child: Option<Child>,
    pub(crate) secrets: Secrets,
    _state: TempDir,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Scene {
    pub(crate) fn http(revision: &str) -> Self {
        let server = tempfile::tempdir().unwrap();
        let (child, port) = start(revision, server.path());
        let url = format!("http://127.0.0.1:{port}/mcp");
        Self::of(
            server,
            Some(child),
            &json!({"http": {"url": url}}),
            "refuse",
        )
    }

    pub(crate) fn stdio(revision: &str) -> Self {
        let server = tempfile::tempdir().unwrap();
        let command = json!(["python3", SERVER, "stdio", revision, server.path()]);
        Self::of(
            server,
            None,
            &json!({"stdio": {"command": command}}),
            "refuse",
        )
    }

    pub(crate) fn of(
        server: TempDir,
        child: Option<Child>,
        transport: &Value,
        on_change: &str,
    ) -> Self {
        super::provider();
        let state = tempfile::tempdir().unwrap();
        let lock = StateDir::open(state.path())
            .unwrap()
            .hold(WorkerId::generate())
            .unwrap();
        let guard = env!("CARGO_BIN_EXE_fleet_tests_guard").into();
        let programs = ProcessExecutor::new(guard, vec!["guard".into()], Arc::new(lock));
        let manifest = json!({"kind": "mcp_server", "name": "s", "version": 1, "transport": transport, "on_change": on_change});
        let Ok(AnyManifest::McpServer(manifest)) = parse_any(&manifest.to_string()) else {
            panic!("{manifest}")
        };
        let registry = Registry::default().with_mcp_server(*manifest);
        Self {
            executor: McpExecutor::new(registry, Egress::default(), &programs).unwrap(),
            server,
            child,
            secrets: Secrets::new(None),
            _state: state,
        }
    }

    pub(crate) fn effects(&self) -> usize {
        let text = fs::read_to_string(self.path("effects")).unwrap_or_default();
        text.lines().count()
    }

    pub(crate) fn begun(&self) -> usize {
        let files = fs::read_dir(self.server.path()).unwrap().flatten();
        files
            .filter(|file| file.file_name().to_string_lossy().ends_with(".begun"))
            .count()
    }

    pub(crate) fn path(&self, file: &str) -> std::path::PathBuf {
        self.server.path().join(file)
    }

    pub(crate) fn pids(&self) -> Vec<String> {
        let files = fs::read_dir(self.server.path()).unwrap().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        names
            .filter_map(|name| Some(name.strip_suffix(".pid")?.to_owned()))
            .collect()
    }

    #[expect(
        clippy::print_stdout,
        reason = "what was said beside what was done is the table that they are looked at for"
    )]
    pub(crate) async fn run_in(
        &self,
        tool: &str,
        effect: Effect,
        context: AttemptContext,
    ) -> Returned {
        let returned = self.prepared(tool, effect).run(context).await;
        let (begun, effects) = (self.begun(), self.effects());
        println!(
            "{tool}, {effect:?}: the fleet says {:?}; the server began {begun} in all and did {effects}",
            word(&returned.outcome)
        );
        returned
    }

    pub(crate) fn prepared(&self, tool: &str, effect: Effect) -> Box<dyn Prepared> {
        self.prepared_with(tool, effect, &json!({"a": 1}))
    }

    pub(crate) fn prepared_with(
        &self,
        tool: &str,
        effect: Effect,
        arguments: &Value,
    ) -> Box<dyn Prepared> {
        let manifest = manifest(tool, effect);
        let prepared = self.executor.prepare(&manifest, arguments, &self.secrets);
        prepared.unwrap()
    }

    pub(crate) async fn run(&self, tool: &str, effect: Effect) -> Outcome {
        let returned = self.run_in(tool, effect, conformance::context(AMPLE)).await;
        assert!(!returned.left_behind);
        returned.outcome
    }
}

/// Of a tool of the server.
pub(crate) fn manifest(tool: &str, effect: Effect) -> Manifest {
    let pin = Pin::of(&definition(tool));
    let executor =
        json!({"mcp": {"server": "s", "tool": tool, "pin": pin.whole, "shape": pin.shape}});
    super::manifest(effect, &executor, &json!({"output_limit": 1_000_000}))
}

pub(crate) fn word(outcome: &Outcome) -> (OutcomeWord, Option<Code>) {
    (
        outcome.word(),
        outcome.failure().map(|failure| failure.code),
    )
}
