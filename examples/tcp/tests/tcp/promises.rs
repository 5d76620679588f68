//! The executor against the suite that every executor passes.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use conformance::{
    Behaviour, BoxFuture, Case, Cell, Effect, KEY_ARGUMENT, OUTPUT_LIMIT, REFUSAL, REFUSAL_CODE,
    Rig, SECRET, SECRET_NAME, Secrets, Tool, Watch,
};
use example_tcp::Tcp;
use serde_json::{Value, json};
use tempfile::TempDir;
use worker::executors::Executor;

use crate::server::{Act, Server, manifest, nowhere};

/// One executor and one server for the whole suite, so that no attempt may spoil a connection for the next.
struct Own {
    tcp: Tcp,
    server: Arc<Server>,
    /// Where nothing listens, and whether the tool is there.
    nowhere: Tcp,
    is_nowhere: AtomicBool,
    secrets: TempDir,
}

impl Own {
    async fn new() -> Self {
        let secrets = tempfile::tempdir().unwrap();
        fs::write(secrets.path().join(SECRET_NAME), SECRET).unwrap();
        let server = Server::start(act).await;
        Self {
            tcp: Tcp::new(&server.address),
            server: Arc::new(server),
            nowhere: Tcp::new(&nowhere()),
            is_nowhere: AtomicBool::new(false),
            secrets,
        }
    }
}

impl Rig for Own {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn executor(&self) -> &dyn Executor {
        if self.is_nowhere.load(SeqCst) {
            &self.nowhere
        } else {
            &self.tcp
        }
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        if behaviour == Behaviour::LeavesNothing {
            let why = "a request starts nothing on this machine";
            return Box::pin(async move { Case::NotApplicable(why) });
        }
        let is_nowhere = behaviour == Behaviour::ProvesNotStarted;
        self.is_nowhere.store(is_nowhere, SeqCst);
        let spec = json!({
            "method": format!("{behaviour:?}"), "token": format!("secret://{SECRET_NAME}"),
        });
        let more = match behaviour {
            Behaviour::PutsTheKeyIntoAnArgument => {
                json!({"idempotency": {"argument": KEY_ARGUMENT}})
            }
            Behaviour::BoundsAnswers => json!({"output_limit": OUTPUT_LIMIT}),
            _others => json!({}),
        };
        let exact = r#"{"integer": 9007199254740993, "decimal": 0.10000000000000000001, "text": "\u00fc \ud83d\ude00"}"#;
        let tool = Tool {
            manifest: manifest(effect, &spec, &more),
            arguments: serde_json::from_str(exact).unwrap(),
            secrets: Secrets::new(Some(self.secrets.path().to_owned())),
            watch: Box::new(Since(self.server.lines(), Arc::clone(&self.server))),
        };
        Box::pin(async { Case::Tool(Box::new(tool)) })
    }
}

/// What the server has done since it had seen this many lines.
struct Since(usize, Arc<Server>);

impl Watch for Since {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.1.lines() - self.0 })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.1.is_at_rest() })
    }
}

fn act(request: &Value) -> Act {
    let is_asked = |behaviour: &&Behaviour| request["method"] == format!("{behaviour:?}");
    let behaviour = Behaviour::ALL.iter().find(is_asked).unwrap();
    let refused = |message: &str| {
        let no = json!({"message": message, "code": REFUSAL_CODE});
        Act::Answer("refused", no.to_string())
    };
    let done = |value: String| Act::Answer("done", value);
    match behaviour {
        Behaviour::CarriesValuesExactly
        | Behaviour::PutsTheKeyIntoAnArgument
        | Behaviour::PreparesQuietly
        | Behaviour::ProvesNotStarted
        | Behaviour::LeavesNothing => done(request["arguments"].to_string()),
        Behaviour::TellsTheFacts | Behaviour::KeepsTheKey => done(request["call"].to_string()),
        Behaviour::PassesOnRefusals => refused(REFUSAL),
        Behaviour::DoubtsCrashes => Act::Close,
        Behaviour::KeepsTheDeadline | Behaviour::ObeysCancel | Behaviour::ObeysDrain => {
            Act::Hang(false)
        }
        Behaviour::WaitsForSlowAnswers => Act::AnswerSlowly,
        Behaviour::BoundsAnswers => Act::Begin("[ID, \"done\", \"".to_owned(), true),
        Behaviour::FlagsGarbage => done("{oops".to_owned()),
        Behaviour::TakesSilence => Act::Say(format!("[{}, \"done\"]", request["id"])),
        Behaviour::MendsText => done(r#"{"a": "x\u0000y", "b": ["\ud800z"]}"#.to_owned()),
        Behaviour::HidesTheWorker => done(request.to_string()),
        Behaviour::VeilsSecrets => {
            refused(&format!("the token {} is wrong", request["call"]["token"]))
        }
    }
}

#[tokio::test]
async fn it_keeps_every_promise() {
    let own = Own::new().await;
    let report = conformance::exercise(&own).await;
    print!("{}", conformance::table(std::slice::from_ref(&report)));
    assert!(report.is_kept(), "{report}");
    for (behaviour, _, cell) in report.cells() {
        let is_tested = *cell == Cell::Kept;
        assert_eq!(is_tested, *behaviour != Behaviour::LeavesNothing);
    }
    // One for the first attempt, and one after each of ten that ended theirs: crash, deadline, cancel, drain, flood, for two effects.
    let (connections, lines) = (own.server.connected(), own.server.lines());
    assert!(connections < lines, "{connections} for {lines} lines");
    own.tcp.stop().await;
}
