//! Every tool of the chaos run, in a real fleet without any fault but its own: what it does is what the docs promise, and
//! the file of effects and the tables say the same. The oracle stands on this.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use fleet::call::Effect;
use fleet_chaos::effects::{
    self, Did, Executor, Mark, Mode, Places, Row, TOOLS, TOTAL, Tool, native,
};
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    real::Real,
    run_folder::RunFolder,
    wait::{until, until_so},
};
use futures_util::future::join_all;
use nix::sys::signal::Signal;
use tokio::net::TcpListener;
use toolfleet::servers::process::{Ending, Launch, Process};

const SEED: u64 = 7;

/// A fleet, the world outside, and one worker that is both kinds.
struct World {
    fleet: Fleet,
    worker: Option<Real>,
    url: String,
    file: PathBuf,
    _services: Process,
    _folder: RunFolder,
}

impl World {
    async fn start() -> Self {
        let folder = RunFolder::create().unwrap();
        let file = folder.path().join("effects");
        let fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
        effects::lay_out(&mut fleet.database.connect().await)
            .await
            .unwrap();
        let (services, url) = serve(&folder, &file, &fleet.nats_url()).await;
        let places = Places {
            effects_url: url.clone(),
            effects_program: env!("CARGO_BIN_EXE_chaos_effects").into(),
            effects_file: file.clone(),
            refused_port: free_port().await,
        };
        for manifest in effects::manifests(&places) {
            fleet.apply(&manifest).await;
        }
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_chaos_worker"));
        command.env(native::FILE, &file);
        let mut worker = fleet.start_program(command, "worker", "both", &[], None);
        worker.ready().await;
        until_so("the native tools to be known", async || {
            let all = serde_json::json!({});
            let tools = fleet.ask("toolfleet.v1.default.tools", &all).await;
            tools.to_string().contains("native_look")
        })
        .await;
        Self {
            fleet,
            worker: Some(worker),
            url,
            file,
            _services: services,
            _folder: folder,
        }
    }

    async fn call(&self, tool: &Tool, n: u64, mode: Mode) -> Answer {
        if tool.name == "ruled_look" {
            // Its policy wants it first.
            let first = effects::tool("ruled_charge").unwrap();
            let answer = self.send(first, n, n + 100_000, Mode::Ok).await;
            assert_eq!(answer["state"], "succeeded", "{}", *answer);
        }
        self.send(tool, n, n, mode).await
    }

    /// Calls it in a run of this number, where clients call it in runs.
    async fn send(&self, tool: &Tool, run: u64, n: u64, mode: Mode) -> Answer {
        let args = effects::args(tool, n, mode, SEED);
        let call = self.fleet.submit(tool.name, &args).key(&format!("key-{n}"));
        if tool.is_of_short_runs() {
            return call
                .header("Toolfleet-Run", &format!("r-{run}"))
                .wait()
                .await;
        }
        call.wait().await
    }

    fn marks(&self, n: u64, did: Did) -> Vec<Mark> {
        let all = effects::read(&self.file).into_iter();
        all.filter(|mark| mark.n == n && mark.did == did).collect()
    }

    /// How often the effect of this call took place, wherever that is noted.
    async fn applied(&self, tool: &Tool, n: u64) -> usize {
        if tool.executor != Executor::Sql {
            return self.marks(n, Did::Applied).len();
        }
        let rows = effects::read_tables(&self.fleet.database.pool).await;
        let mine = |row: &Row| row.n == n && row.tool == tool.name;
        let rows: Vec<Row> = rows.unwrap().into_iter().filter(mine).collect();
        usize::try_from(rows.iter().map(|row| row.times).sum::<u64>()).unwrap()
    }

    async fn until_applied(&self, tool: &Tool, n: u64, times: usize) {
        let what = format!("{} effects of call {n} of {}", times, tool.name);
        until_so(&what, async || self.applied(tool, n).await == times).await;
    }

    async fn end(mut self) {
        self.worker.take().unwrap().kill().await;
    }
}

/// Those whose calls wait for nobody; `clients.rs` has the others.
fn by_themselves() -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(|tool| !tool.waits())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_behaves_leaves_exactly_one_effect() {
    let world = World::start().await;
    for (n, tool) in (1..).zip(by_themselves()) {
        let nobody_there = tool.modes == [(Mode::Refuse, 1)];
        let mode = if nobody_there { Mode::Refuse } else { Mode::Ok };
        let answer = world.call(tool, n, mode).await;
        let (state, effects) = match (nobody_there, tool.effect) {
            (true, _) => ("failed", 0),
            (false, Effect::Read) => ("succeeded", 0),
            (false, Effect::Once | Effect::Idempotent | Effect::Transaction) => ("succeeded", 1),
        };
        assert_eq!(answer["state"], state, "{}: {}", tool.name, *answer);
        assert_eq!(world.applied(tool, n).await, effects, "{}", tool.name);
        if nobody_there {
            assert_eq!(answer["effect"], "not_applied", "{}", tool.name);
            assert!(world.marks(n, Did::Started).is_empty(), "{}", tool.name);
        } else if tool.executor != Executor::Sql {
            let call = answer.call_id().to_string();
            let told = effects::args(tool, n, mode, SEED)["n"].as_u64().unwrap();
            for did in [Did::Started, Did::Replied] {
                let mut marks = world.marks(told, did);
                marks.retain(|mark| mark.tool == tool.name);
                assert_eq!(marks.len(), 1, "{}: {did:?}", tool.name);
                let mark = &marks[0];
                assert_eq!((&mark.call, mark.attempt), (&call, 1), "{}", tool.name);
                assert_eq!(mark.tool, tool.name);
                assert!(!mark.key.is_empty(), "{}", tool.name);
            }
        }
    }
    let total = effects::total(&world.fleet.database.pool).await.unwrap();
    assert_eq!(u64::try_from(total).unwrap(), TOTAL);
    world.end().await;
}

/// What comes of a first attempt that behaves like this, and how often the effect takes place.
fn promised(tool: &Tool, mode: Mode) -> (&'static str, usize) {
    let repeats = tool.effect != Effect::Once;
    match mode {
        Mode::Business => ("failed", 0),
        // It is ended while it writes, before it has succeeded.
        Mode::Huge if tool.executor == Executor::Process => ("in_doubt", 1),
        Mode::Ok | Mode::Slow | Mode::Refuse | Mode::Garbage | Mode::Huge | Mode::Escape => {
            ("succeeded", 1)
        }
        _ if repeats => ("succeeded", 1),
        // A statement that fails is undone, and a `once` call is not made again.
        Mode::ErrorBefore | Mode::HangBefore if tool.executor == Executor::Sql => ("failed", 0),
        Mode::ErrorBefore | Mode::HangBefore => ("in_doubt", 0),
        Mode::ErrorAfter | Mode::ResetAfter | Mode::HangAfter => ("in_doubt", 1),
        // It is told to end, and reports within its grace time that the effect happened.
        Mode::Late if tool.executor == Executor::Native => ("succeeded", 1),
        Mode::Late => ("in_doubt", 1),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_behave_ends_as_the_docs_promise() {
    let world = World::start().await;
    // Another test covers its probe.
    let writes = |tool: &&Tool| tool.effect != Effect::Read && tool.name != "book";
    let cases = by_themselves().filter(writes).flat_map(|tool| {
        let modes = tool.modes.iter().filter(|_| tool.modes.len() > 1);
        modes.map(move |(mode, _)| (tool, *mode))
    });
    let cases: Vec<(u64, &Tool, Mode)> = (100..).zip(cases).map(|(n, (t, m))| (n, t, m)).collect();
    let mut wrong = Vec::new();
    // A few at a time: a second is not long for many programs on a busy machine.
    for some in cases.chunks(8) {
        let calls = some
            .iter()
            .map(|(n, tool, mode)| world.call(tool, *n, *mode));
        for ((_, tool, mode), answer) in some.iter().zip(join_all(calls).await) {
            let (state, _) = promised(tool, *mode);
            let admitted = state != "in_doubt" || tool.may_leave_doubt(*mode);
            if answer["state"] != state || !admitted {
                wrong.push(format!("{} {mode:?}, not {state}: {}", tool.name, *answer));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (n, tool, mode) in &cases {
        world.until_applied(tool, *n, promised(tool, *mode).1).await;
        if *mode == Mode::Late && tool.effect == Effect::Idempotent {
            // The late one finds its key taken.
            let what = format!("the late effect of {} to be recognised", tool.name);
            let late = async || world.marks(*n, Did::Recognised).len() == 1;
            until_so(&what, late).await;
        }
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_asked_again_and_have_no_effect() {
    let world = World::start().await;
    let reads = |tool: &&Tool| tool.effect == Effect::Read;
    let cases = by_themselves().filter(reads);
    let cases = cases.flat_map(|tool| tool.modes.iter().map(move |(mode, _)| (tool, *mode)));
    let cases: Vec<(u64, &Tool, Mode)> = (300..).zip(cases).map(|(n, (t, m))| (n, t, m)).collect();
    for some in cases.chunks(8) {
        let calls = some
            .iter()
            .map(|(n, tool, mode)| world.call(tool, *n, *mode));
        for ((n, tool, mode), answer) in some.iter().zip(join_all(calls).await) {
            let state = match mode {
                Mode::Business | Mode::Garbage | Mode::Huge => "failed",
                _ => "succeeded",
            };
            assert_eq!(
                answer["state"], state,
                "{} {mode:?}: {}",
                tool.name, *answer
            );
            assert!(world.marks(*n, Did::Applied).is_empty());
        }
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_finds_out_whether_something_was_booked() {
    let world = World::start().await;
    let book = effects::tool("book").unwrap();
    let modes = [
        (Mode::ErrorAfter, "succeeded", 1),
        (Mode::ErrorBefore, "failed", 0),
        (Mode::Late, "succeeded", 1),
    ];
    let made = (500..).zip(modes).map(async |(n, (mode, state, times))| {
        let answer = world.call(book, n, mode).await;
        assert_eq!(answer["state"], "in_doubt", "{mode:?}: {}", *answer);
        let settled = until("the doubt to be settled", async || {
            let row = world.fleet.call(answer.call_id()).await;
            (row["state"] != "in_doubt").then_some(row)
        })
        .await;
        assert_eq!(settled["state"], state, "{mode:?}: {settled}");
        assert_eq!(world.applied(book, n).await, times, "{mode:?}");
    });
    join_all(made).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_escapes_from_a_tool_is_ended_with_it() {
    let world = World::start().await;
    let tool = effects::tool("proc_charge").unwrap();
    let answer = world.call(tool, 1, Mode::Escape).await;
    // It says so only when it had left one behind.
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    until_so("what was left behind to be gone", async || {
        lingering(&world.file).is_empty()
    })
    .await;
    assert_eq!(world.applied(tool, 1).await, 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lingers_without_a_guard_repeats_the_effect() {
    let folder = RunFolder::create().unwrap();
    let file = folder.path().join("effects");
    let mut left = Command::new(env!("CARGO_BIN_EXE_chaos_effects"));
    left.args(["linger", "proc_charge", "--arguments"])
        .arg(r#"{"n": 1, "mode": "escape"}"#)
        .arg("--file")
        .arg(&file)
        .env("TOOLFLEET_CALL_ID", "c")
        .env("TOOLFLEET_ATTEMPT", "1")
        .env("TOOLFLEET_REMAINING_MS", "1000");
    let mut left = left.spawn().unwrap();
    until_so("it to be there", async || !lingering(&file).is_empty()).await;
    until_so("the effect to take place again", async || {
        !effects::read(&file).is_empty()
    })
    .await;
    left.wait().unwrap();
    assert_eq!(effects::read(&file)[0].did, Did::Applied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_bad_weather_nothing_is_done_and_nothing_is_in_doubt() {
    let world = World::start().await;
    effects::weather(&world.url, true).await.unwrap();
    let once = ["charge", "nats_charge"].map(|name| effects::tool(name).unwrap());
    for (n, tool) in (1..).zip(once) {
        let answer = world.call(tool, n, Mode::Ok).await;
        assert_eq!(answer["state"], "failed", "{}", *answer);
        assert_eq!(answer["effect"], "not_applied", "{}", *answer);
        assert!(world.marks(n, Did::Started).is_empty());
    }
    effects::weather(&world.url, false).await.unwrap();
    for (n, tool) in (11..).zip(once) {
        let answer = world.call(tool, n, Mode::Ok).await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        assert_eq!(world.applied(tool, n).await, 1);
    }
    world.end().await;
}

/// Starts the services, and waits until they say where they are.
async fn serve(folder: &RunFolder, file: &Path, nats_url: &str) -> (Process, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_chaos_effects"));
    command.arg("serve").arg("--file").arg(file);
    command.args(["--nats-url", nats_url]);
    let log = folder.path().join("services.log");
    let services = Process::spawn(Launch {
        name: "the world outside".to_owned(),
        command,
        log: log.clone(),
        ending: Ending {
            ask: Signal::SIGTERM,
            grace: Duration::from_secs(5),
            at_once: Signal::SIGKILL,
        },
        parent_pipe: true,
    });
    let address = until("the services to listen", async || {
        let said = fs::read_to_string(&log).unwrap();
        let (_, after) = said.split_once("listening address=")?;
        Some(after.split_once('\n')?.0.to_owned())
    })
    .await;
    (services.unwrap(), format!("http://{address}"))
}

/// The processes that a tool with this file left behind, by pid.
fn lingering(file: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ours = processes.filter(|process| {
        // It may have ended meanwhile.
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split('\0');
        words.any(|word| word == "linger") && words.any(|word| Path::new(word) == file)
    });
    ours.map(|process| process.file_name().to_string_lossy().into_owned())
        .collect()
}

/// A port without a listener.
async fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}
