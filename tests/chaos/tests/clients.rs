//! Clients of a real fleet without any fault: what they write down is whole, and is what their seed says.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{File, OpenOptions},
    io::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use fleet::call::Effect;
use fleet_chaos::{
    clients::{self, Accounts, Clients, Program, Summary},
    effects::{self, Did, Mark, Mode, TOOLS},
    history::{self, Entry, Op, Phase},
    login::Login,
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    run_folder::RunFolder,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

const SEED: u64 = 11;
/// So many questions are asked before clients are to stop.
const QUESTIONS: u64 = 2_000;

/// A tool that misbehaves at its first attempt, and writes down what it did.
struct World {
    marks: Mutex<File>,
}

impl World {
    fn mark(&self, did: Did, headers: &HeaderMap, args: &Value) {
        let header = |name| headers[name].to_str().unwrap().to_owned();
        let mark = Mark {
            at: 0,
            did,
            tool: String::new(),
            call: header("toolfleet-call-id"),
            attempt: header("toolfleet-attempt").parse().unwrap(),
            key: header("idempotency-key"),
            n: args["n"].as_u64().unwrap(),
            mode: serde_json::from_value(args["mode"].clone()).unwrap(),
        };
        let line = serde_json::to_string(&mark).unwrap() + "\n";
        self.marks
            .lock()
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }
}

async fn act(State(world): State<Arc<World>>, headers: HeaderMap, body: Bytes) -> Response {
    let args: Value = serde_json::from_slice(&body).unwrap();
    let mode: Mode = serde_json::from_value(args["mode"].clone()).unwrap();
    world.mark(Did::Started, &headers, &args);
    let first = headers["toolfleet-attempt"] == "1";
    if mode == Mode::Business {
        return (StatusCode::CONFLICT, r#"{"error":{"message":"no"}}"#).into_response();
    }
    if first && matches!(mode, Mode::Refuse | Mode::ErrorBefore | Mode::HangBefore) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    world.mark(Did::Applied, &headers, &args);
    if first && matches!(mode, Mode::ResetAfter | Mode::HangAfter | Mode::Late) {
        let broken = futures_util::stream::once(async {
            Err::<Bytes, _>(std::io::Error::other("the connection breaks here"))
        });
        return Response::new(Body::from_stream(broken));
    }
    let done = json!({ "done": args["n"] }).to_string();
    ([("content-type", "application/json")], done).into_response()
}

fn manifests(url: &str) -> Vec<String> {
    let manifest = |tool: &effects::Tool| {
        let mut manifest = json!({
            "name": tool.name, "version": 1, "description": "Leaves a mark.", "effect": tool.effect.as_str(),
            "input_schema": {
                "type": "object", "required": ["n", "mode"],
                "properties": {"n": {"type": "integer"}, "mode": {"type": "string"}},
            },
            "timeout": "2s",
            "executor": {"http": {"method": "POST", "url": url}},
        });
        if tool.effect == Effect::Idempotent {
            manifest["idempotency"] = json!({"header": "Idempotency-Key"});
        }
        if tool.effect == Effect::Transaction {
            manifest["executor"] =
                json!({"sql": {"statement": "SELECT 1 AS one", "database": "fleet"}});
        }
        // Shorter than the accounts are waited for.
        if let Some(approval) = effects::approval(tool) {
            manifest["approval"] = approval;
            manifest["approval"]["expires"] = "3s".into();
        }
        if tool.is_handed() {
            manifest["executor"] = json!({"client": {}});
            manifest["output_schema"] =
                json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        }
        manifest.to_string()
    };
    TOOLS.iter().map(manifest).collect()
}

/// A run without faults: its folder, what came of it, and of the accounts afterwards.
struct Run {
    fleet: Fleet,
    summary: Summary,
    accounts: Summary,
    entries: Vec<Entry>,
    asked: u64,
    _folder: RunFolder,
    _serving: JoinSet<std::io::Result<()>>,
}

async fn run() -> Run {
    let folder = RunFolder::create().unwrap();
    let effects_file = folder.path().join("effects.jsonl");
    // Callers that run their tools append to it, too.
    let marks = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&effects_file);
    let world = Arc::new(World {
        marks: Mutex::new(marks.unwrap()),
    });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/act", listener.local_addr().unwrap());
    let router = Router::new().route("/act", post(act)).with_state(world);
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, router).await });
    let fleet = Fleet::start(Spec::with(manifests(&url)).dispatchers(2)).await;

    let (asked, mut seen) = watch::channel(0);
    let stop = CancellationToken::new();
    let path = folder.path().join("history.jsonl");
    let running = clients::run(Clients {
        seed: SEED,
        agent: Login::anonymous(fleet.nats_url()),
        other_agent: Login::anonymous(fleet.nats_url()),
        operator: Login::anonymous(fleet.nats_url()),
        history: path.clone(),
        effects_file,
        asked,
        stop: stop.clone(),
        clients: 16,
        pace: Some(Duration::from_millis(60)),
    });
    let watching = async {
        let enough = seen.wait_for(|asked| *asked >= QUESTIONS);
        let enough = timeout(Duration::from_secs(90), enough).await;
        drop(enough.expect("they ask in time").expect("they are at work"));
        stop.cancel();
    };
    let (summary, ()) = tokio::join!(Box::pin(running), watching);
    let summary = summary.unwrap();
    let asked = *seen.borrow();
    let accounts = clients::settle_accounts(Accounts {
        seed: SEED,
        agent: Login::anonymous(fleet.nats_url()),
        other_agent: Login::anonymous(fleet.nats_url()),
        operator: Login::anonymous(fleet.nats_url()),
        history: path.clone(),
    });
    let accounts = accounts.await.unwrap();
    Run {
        fleet,
        summary,
        accounts,
        entries: history::read(&path).unwrap(),
        asked,
        _folder: folder,
        _serving: serving,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_write_down_everything_and_are_what_their_seed_says() {
    let run = run().await;
    assert_eq!(run.summary.surprises, Vec::<String>::new());
    assert_eq!(run.accounts.surprises, Vec::<String>::new());
    every_question_has_one_end(&run);
    only_hanging_up_leaves_a_question_open(&run);
    calls_are_those_of_the_seed(&run.entries);
    everything_occurred(&run);
    the_ledger_agrees(&run).await;
}

fn every_question_has_one_end(run: &Run) {
    let mut phases: BTreeMap<u64, Vec<Phase>> = BTreeMap::new();
    for entry in &run.entries {
        phases.entry(entry.op_id).or_default().push(entry.phase);
        let answered = entry.phase == Phase::Answered;
        assert_eq!(answered, entry.answer.is_some(), "{entry:?}");
    }
    for (op, phases) in &phases {
        assert_eq!(phases.len(), 2, "operation {op}: {phases:?}");
        assert_eq!(phases[0], Phase::Asked, "operation {op}");
        assert_ne!(phases[1], Phase::Asked, "operation {op}");
    }
    let operations = u64::try_from(phases.len()).unwrap();
    assert_eq!(operations, run.summary.operations + run.accounts.operations);
    assert_eq!(run.asked, run.summary.operations);
    let answers: u64 = run.summary.answers.values().sum();
    assert_eq!(run.summary.operations, answers + run.summary.unknown);
    let times = run.entries.iter().map(|entry| entry.at_ms);
    assert!(times.is_sorted());
}

fn only_hanging_up_leaves_a_question_open(run: &Run) {
    for entry in run.entries.iter().filter(|e| e.phase == Phase::Unknown) {
        let call = clients::Call::drawn(SEED, entry.n);
        assert_eq!(call.program, Program::HangUp, "{entry:?}");
        assert_eq!(entry.op, Op::Submit, "{entry:?}");
    }
}

fn calls_are_those_of_the_seed(entries: &[Entry]) {
    let begun: HashMap<u64, clients::Call> = clients::drawn(SEED)
        .take(entries.len())
        .map(|call| (call.n, call))
        .collect();
    for entry in entries.iter().filter(|entry| entry.op != Op::Batch) {
        let call = clients::Call::drawn(SEED, entry.n);
        assert_eq!(
            (entry.tool.as_str(), entry.mode),
            (call.tool.name, call.mode)
        );
        if entry.op == Op::Misuse {
            assert_eq!(call.program, Program::Misuse);
        }
        if let (Some(begun), Some(key)) = (begun.get(&entry.n), &entry.key)
            && !matches!(begun.program, Program::Batch(_))
        {
            assert_eq!(*key, begun.key, "{entry:?}");
        }
    }
}

fn everything_occurred(run: &Run) {
    let ops: BTreeSet<Op> = run.entries.iter().map(|entry| entry.op).collect();
    let all = [
        Op::Submit,
        Op::SubmitAsync,
        Op::Batch,
        Op::Replay,
        Op::Misuse,
        Op::Get,
        Op::Attach,
        Op::Cancel,
        Op::Settle,
        Op::Approve,
        Op::Deny,
        Op::OtherArguments,
        Op::Output,
        Op::BadOutput,
        Op::OtherOutput,
    ];
    assert_eq!(ops, BTreeSet::from(all));
    let told: BTreeSet<_> = run.summary.answers.keys().map(String::as_str).collect();
    for answer in [
        "succeeded",
        "queued",
        "failed tool_error",
        "failed not_applied",
        "in_doubt in_doubt",
        "awaiting_client",
        "failed denied",
        "refused conflict",
        "refused idempotency_key_reused",
        "refused not_found",
        "refused duplicate_key",
        "refused unknown_tool",
    ] {
        assert!(told.contains(answer), "{answer} is not among {told:?}");
    }
}

async fn the_ledger_agrees(run: &Run) {
    let told: BTreeSet<String> = run
        .entries
        .iter()
        .filter_map(|entry| Some(entry.answer.as_ref()?["call_id"].as_str()?.to_owned()))
        .collect();
    let calls = run.fleet.calls().await;
    let calls: BTreeSet<String> = calls.iter().map(ToString::to_string).collect();
    assert_eq!(told, calls, "every call was told, and no other");
    let last: HashMap<&str, &Value> = run
        .entries
        .iter()
        .filter(|entry| entry.op == Op::Get && entry.phase == Phase::Answered)
        .filter_map(|entry| Some((entry.call_id.as_deref()?, entry.answer.as_ref()?)))
        .collect();
    for call in &told {
        let call: fleet::ids::CallId = call.parse().unwrap();
        let row = run.fleet.call(call).await;
        assert_eq!(last[call.to_string().as_str()]["state"], row["state"]);
    }
}
