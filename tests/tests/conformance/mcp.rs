//! Tools of MCP servers: over HTTP in both revisions, and over stdio with a program that calls share and with one for each call.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use conformance::{Behaviour, Case, Rig, SECRET_NAME, Tool, Watch};
use fleet::{
    call::Effect,
    egress::Egress,
    fencing::StateDir,
    ids::WorkerId,
    manifest::{AnyManifest, parse_any},
    mcp::pin::Pin,
    registry::Registry,
    secrets::Secrets,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;
use worker::executors::{Executor, mcp::McpExecutor, process::ProcessExecutor};

/// The program that is the server.
pub(crate) const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/conformance/mcp_server.py"
);

struct Mcp {
    name: &'static str,
    revision: &'static str,
    /// `None`: over HTTP.
    lifetime: Option<&'static str>,
    registry: Registry,
    executor: McpExecutor,
    secrets: Secrets,
    _folders: [TempDir; 2],
}

impl Mcp {
    fn new(name: &'static str, revision: &'static str, lifetime: Option<&'static str>) -> Self {
        super::provider();
        let (folder, secrets) = super::secrets();
        let state = tempfile::tempdir().unwrap();
        let lock = StateDir::open(state.path())
            .unwrap()
            .hold(WorkerId::generate())
            .unwrap();
        let guard = PathBuf::from(env!("CARGO_BIN_EXE_fleet_tests_guard"));
        let programs = ProcessExecutor::new(guard, vec!["guard".into()], Arc::new(lock));
        let registry = Registry::default();
        let executor = McpExecutor::new(registry.clone(), Egress::default(), &programs).unwrap();
        Self {
            name,
            revision,
            lifetime,
            registry,
            executor,
            secrets,
            _folders: [folder, state],
        }
    }

    /// How the server of this behaviour is reached, and what there is to observe it.
    fn server(&self, behaviour: Behaviour) -> (Value, Server) {
        let folder = tempfile::tempdir().unwrap();
        let token = format!("secret://{SECRET_NAME}");
        let is_there = behaviour != Behaviour::ProvesNotStarted;
        let Some(lifetime) = self.lifetime else {
            let (child, port) = start(self.revision, folder.path());
            let url = format!("http://127.0.0.1:{port}/mcp");
            let mut server = Server {
                folder,
                child: Some(child),
            };
            if !is_there {
                server.stop();
            }
            return (
                json!({"http": {"url": url, "headers": {"X-Token": token}}}),
                server,
            );
        };
        let program = if is_there {
            "python3"
        } else {
            "/there/is/no/such/program"
        };
        let command = json!([program, SERVER, "stdio", self.revision, folder.path()]);
        let transport =
            json!({"stdio": {"command": command, "lifetime": lifetime, "env": {"TOKEN": token}}});
        (
            transport,
            Server {
                folder,
                child: None,
            },
        )
    }
}

/// Starts a server over HTTP.
pub(crate) fn start(revision: &str, folder: &Path) -> (Child, u16) {
    let mut child = Command::new("python3")
        .args([SERVER, "http", revision])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (child, line.trim().parse().unwrap())
}

/// What the server says of a tool.
pub(crate) fn definition(tool: &str) -> Value {
    json!({"name": tool, "description": format!("does {tool}"), "inputSchema": {"type": "object"}})
}

impl Rig for Mcp {
    fn name(&self) -> &str {
        self.name
    }

    fn executor(&self) -> &dyn Executor {
        &self.executor
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        Box::pin(async move {
            if behaviour == Behaviour::LeavesNothing && self.lifetime.is_none() {
                return Case::NotApplicable("a request starts nothing on this machine");
            }
            if behaviour == Behaviour::LeavesNothing && self.lifetime == Some("shared") {
                return Case::NotApplicable(
                    "calls share the program, which goes on until its worker ends",
                );
            }
            let (transport, server) = self.server(behaviour);
            // The version tells the links apart.
            let name = format!("s_{}", uuid::Uuid::new_v4().simple())
                .chars()
                .take(32)
                .collect::<String>();
            let manifest =
                json!({"kind": "mcp_server", "name": name, "version": 1, "transport": transport});
            let Ok(AnyManifest::McpServer(manifest)) = parse_any(&manifest.to_string()) else {
                panic!("{manifest}")
            };
            drop(self.registry.clone().with_mcp_server(*manifest));
            let tool = upstream(behaviour);
            let pin = Pin::of(&definition(tool));
            let executor = json!({"mcp": {"server": name, "tool": tool, "pin": pin.whole}});
            Case::Tool(Box::new(Tool {
                manifest: super::manifest(effect, &executor, &super::fields(behaviour)),
                arguments: super::exact(),
                secrets: self.secrets.clone(),
                watch: Box::new(server),
            }))
        })
    }
}

/// The tool of the server that does it.
const fn upstream(behaviour: Behaviour) -> &'static str {
    match behaviour {
        Behaviour::CarriesValuesExactly
        | Behaviour::PutsTheKeyIntoAnArgument
        | Behaviour::PreparesQuietly
        | Behaviour::ProvesNotStarted => "echo",
        Behaviour::TellsTheFacts | Behaviour::KeepsTheKey => "facts",
        Behaviour::PassesOnRefusals => "no",
        Behaviour::VeilsSecrets => "secret",
        Behaviour::DoubtsCrashes => "crash",
        Behaviour::KeepsTheDeadline | Behaviour::ObeysCancel | Behaviour::ObeysDrain => "hang",
        Behaviour::WaitsForSlowAnswers => "slow",
        Behaviour::BoundsAnswers => "endless",
        Behaviour::FlagsGarbage => "garbage",
        Behaviour::TakesSilence => "silent",
        Behaviour::MendsText => "nul",
        Behaviour::HidesTheWorker => "given",
        Behaviour::LeavesNothing => "work",
    }
}

/// A server, and the files that its runs leave.
struct Server {
    folder: TempDir,
    child: Option<Child>,
}

impl Server {
    fn count(&self, ending: &str) -> usize {
        self.runs(ending).len()
    }

    fn runs(&self, ending: &str) -> Vec<String> {
        let files = fs::read_dir(self.folder.path()).unwrap().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        names
            .filter_map(|name| Some(name.strip_suffix(ending)?.to_owned()))
            .collect()
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Watch for Server {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.count(".begun") })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let ended = self.runs(".ended");
            let is_over = |run: &String| {
                let pid = run.split('-').next().unwrap_or_default();
                ended.contains(run) || !Path::new("/proc").join(pid).exists()
            };
            self.runs(".begun").iter().all(is_over)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_mcp_servers_over_http_keep_every_promise() {
    let report = conformance::exercise(&Mcp::new("mcp", "modern", None)).await;
    super::kept(&report, 36);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_older_mcp_servers_keep_every_promise() {
    let report = conformance::exercise(&Mcp::new("mcp, older", "legacy", None)).await;
    super::kept(&report, 36);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_mcp_servers_that_calls_share_keep_every_promise() {
    let report = conformance::exercise(&Mcp::new("mcp, stdio", "modern", Some("shared"))).await;
    super::kept(&report, 36);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_mcp_servers_of_one_call_keep_every_promise() {
    let report = conformance::exercise(&Mcp::new("mcp, a call", "legacy", Some("call"))).await;
    super::kept(&report, 38);
}
