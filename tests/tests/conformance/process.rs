//! Process tools, as programs in Python.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use conformance::{Behaviour, Case, REFUSAL, REFUSAL_CODE, Rig, SECRET_NAME, Tool, Watch};
use fleet::{call::Effect, fencing::StateDir, ids::WorkerId, secrets::Secrets};
use futures_util::future::BoxFuture;
use serde_json::json;
use tempfile::TempDir;
use worker::executors::{Executor, process::ProcessExecutor};

struct Process {
    executor: ProcessExecutor,
    secrets: Secrets,
    _folders: [TempDir; 2],
}

impl Process {
    fn new() -> Self {
        let (folder, secrets) = super::secrets();
        let state = tempfile::tempdir().unwrap();
        let lock = StateDir::open(state.path())
            .unwrap()
            .hold(WorkerId::generate())
            .unwrap();
        let guard = PathBuf::from(env!("CARGO_BIN_EXE_fleet_tests_guard"));
        Self {
            executor: ProcessExecutor::new(guard, vec!["guard".into()], Arc::new(lock)),
            secrets,
            _folders: [folder, state],
        }
    }
}

impl Rig for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn executor(&self) -> &dyn Executor {
        &self.executor
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        let folder = tempfile::tempdir().unwrap();
        let command = match behaviour {
            Behaviour::ProvesNotStarted => json!(["/there/is/no/such/program"]),
            _program => json!(["python3", "-c", format!("{PRELUDE}{}", program(behaviour))]),
        };
        let executor = json!({"process": {
            "command": command, "cwd": folder.path(), "env": {"TOKEN": format!("secret://{SECRET_NAME}")},
        }});
        let tool = Tool {
            manifest: super::manifest(effect, &executor, &super::fields(behaviour)),
            arguments: super::exact(),
            secrets: self.secrets.clone(),
            watch: Box::new(Folder(folder)),
        };
        Box::pin(async move { Case::Tool(Box::new(tool)) })
    }
}

/// `note()` leaves a file named by this process's id; `detach(body)` runs it in a session of its own.
const PRELUDE: &str = r"
import json, os, signal, sys, time
def note():
    with open(str(os.getpid()) + '.tmp', 'w'): pass
    os.rename(str(os.getpid()) + '.tmp', str(os.getpid()) + '.pid')
def detach(body):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            body()
        os._exit(0)
def told(name): return os.environ.get(name)
def asleep():
    note(); time.sleep(60)
note()
";

fn program(behaviour: Behaviour) -> String {
    let refuse = |message: String| {
        format!(
            "print(json.dumps({{'error': {{'message': {message}, 'code': '{REFUSAL_CODE}'}}}})); sys.exit(10)"
        )
    };
    match behaviour {
        Behaviour::CarriesValuesExactly
        | Behaviour::PutsTheKeyIntoAnArgument
        | Behaviour::PreparesQuietly => "sys.stdout.write(sys.stdin.read())".to_owned(),
        Behaviour::TellsTheFacts | Behaviour::KeepsTheKey => "
print(json.dumps({
    'call_id': told('TOOLFLEET_CALL_ID'), 'attempt': told('TOOLFLEET_ATTEMPT'), 'tenant': told('TOOLFLEET_TENANT'),
    'session': told('TOOLFLEET_SESSION'), 'deadline_ms': told('TOOLFLEET_DEADLINE_MS'),
    'traceparent': told('TRACEPARENT'), 'idempotency_key': told('TOOLFLEET_IDEMPOTENCY_KEY')}))"
            .to_owned(),
        Behaviour::PassesOnRefusals => refuse(format!("'{REFUSAL}'")),
        Behaviour::VeilsSecrets => {
            let secret = "'the token ' + os.environ['TOKEN'] + ' is wrong'";
            format!("sys.stderr.write(os.environ['TOKEN']); {}", refuse(secret.to_owned()))
        }
        Behaviour::ProvesNotStarted => unreachable!("there is no program"),
        Behaviour::DoubtsCrashes => "os.kill(os.getpid(), signal.SIGKILL)".to_owned(),
        // It minds no polite signal.
        Behaviour::KeepsTheDeadline | Behaviour::ObeysCancel | Behaviour::ObeysDrain => {
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)".to_owned()
        }
        Behaviour::WaitsForSlowAnswers => "time.sleep(1); print('{}')".to_owned(),
        Behaviour::BoundsAnswers => "
while True: sys.stdout.write('x' * 65536)"
            .to_owned(),
        Behaviour::FlagsGarbage => "print('{oops')".to_owned(),
        Behaviour::TakesSilence => String::new(),
        Behaviour::MendsText => r#"print(r'{"a": "x\u0000y", "b": ["\ud800z"]}')"#.to_owned(),
        Behaviour::HidesTheWorker => "
print(json.dumps({name: value for name, value in os.environ.items() if name not in ('PATH', 'HOME', 'LANG', 'TOKEN')}))"
            .to_owned(),
        Behaviour::LeavesNothing => "
detach(asleep)
while len([name for name in os.listdir('.') if name.endswith('.pid')]) < 2: time.sleep(0.01)
print('{}')"
            .to_owned(),
    }
}

/// Where the program works.
struct Folder(TempDir);

impl Folder {
    fn pids(&self) -> Vec<String> {
        let files = fs::read_dir(self.0.path()).unwrap().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        names
            .filter_map(|name| Some(name.strip_suffix(".pid")?.to_owned()))
            .collect()
    }
}

impl Watch for Folder {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.pids().len() })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.pids().iter().all(|pid| !alive(pid)) })
    }
}

/// Whether a process lives; a zombie does not.
fn alive(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    let state = |stat: &String| {
        stat.rsplit_once(')')
            .map(|(_, fields)| fields.trim_start().chars().next())
    };
    stat.as_ref()
        .ok()
        .and_then(state)
        .flatten()
        .is_some_and(|state| state != 'Z')
}

#[tokio::test(flavor = "multi_thread")]
async fn process_tools_keep_every_promise() {
    let report = conformance::exercise(&Process::new()).await;
    super::kept(&report, 38);
}
