//! Process tools against real processes: what they are told, what their ends mean, and that nothing survives them.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test binary with its own runner"
)]

#[path = "fixtures/fences.rs"]
mod fences;
#[path = "fixtures/runner.rs"]
mod runner;
#[path = "fixtures/sandbox.rs"]
mod sandbox;
#[path = "fixtures/scene.rs"]
mod scene;

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use fleet::{
    fencing::StateDir,
    ids::WorkerId,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    taken_back::TakenBack,
    wire::code::Code,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use self::scene::{Scene, alive, parent, runtime, wait_for};

/// The promise of the executor.
const LINGER_MAX: Duration = worker::executors::LINGER_MAX;

macro_rules! tests {
    ($($name:ident),+ $(,)?) => { &[$((stringify!($name), $name as fn())),+] };
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["guard", ..] => worker::guard::main(),
        ["prove", folder] => fences::prove(Path::new(folder)),
        ["worker", folder] => {
            scene::worker_main(Path::new(folder));
            ExitCode::SUCCESS
        }
        // Elsewhere there is neither a subreaper nor /proc to look at.
        _ if cfg!(not(target_os = "linux")) => ExitCode::SUCCESS,
        _ => runner::main(
            &[
                sandbox::TESTS,
                fences::TESTS,
                tests![
                    arguments_come_back_exactly,
                    the_key_goes_where_the_manifest_says,
                    a_tool_says_no_with_exit_10,
                    garbage_is_an_effect_with_a_flaw,
                    what_cannot_be_started_has_not_started,
                    what_the_machine_does_not_start_is_not_the_tools_fault,
                    a_relative_program_is_found_in_its_folder,
                    a_crash_leaves_doubt_and_its_reason,
                    a_tool_that_ignores_term_is_killed,
                    a_tool_that_heeds_term_is_gone_at_once,
                    a_stopped_attempt_ends_its_tool,
                    detached_grandchildren_do_not_survive_a_timeout,
                    detached_grandchildren_do_not_survive_a_success,
                    an_answer_does_not_wait_for_who_holds_stdout,
                    a_killed_worker_takes_its_tools_along,
                    a_killed_worker_is_not_gone_before_the_last_of_its_tools,
                    a_tool_that_closes_what_it_does_not_know_is_seen_all_the_same,
                    a_tool_that_unlocks_what_it_inherited_is_seen_all_the_same,
                    what_nobody_guards_any_more_holds_the_lock_of_its_worker,
                    a_guard_without_a_share_in_the_lock_starts_nothing,
                    a_killed_guard_leaves_nothing_in_a_worker,
                    what_a_guard_left_is_ended_before_the_guard_can_be_waited_for,
                    a_frozen_guard_delays_nobody,
                    a_process_that_changes_its_pid_all_the_time_is_caught,
                    a_guard_is_deaf_to_polite_signals,
                    too_much_output_ends_the_tool,
                    stderr_is_drained_and_its_end_kept,
                    the_environment_holds_what_was_promised_and_nothing_else,
                    unread_stdin_blocks_nobody,
                    signals_and_descriptors_are_as_a_program_expects,
                    fifty_at_once_leave_no_process,
                    overhead_is_told,
                ],
            ]
            .concat(),
        ),
    }
}

fn applied(outcome: Outcome) -> String {
    match outcome {
        Outcome::Applied { result, flaw: None } => result.get().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn failure(outcome: &Outcome) -> (OutcomeWord, Code, &ToolFailure) {
    let failure = outcome.failure().expect("a failure");
    (outcome.word(), failure.code, failure)
}

fn detail<'a>(failure: &'a ToolFailure, name: &str) -> &'a Value {
    failure
        .details
        .as_ref()
        .map_or(&Value::Null, |details| &details[name])
}

fn assert_gone(pids: &[i32]) {
    let living: Vec<&i32> = pids.iter().filter(|pid| alive(**pid)).collect();
    assert!(living.is_empty(), "{living:?} of {pids:?} live on");
}

/// A Python prelude: `note(name)` writes this process's pid to a file, `detach(body)` runs it double-forked in a
/// session of its own, `stubborn()` ignores what can be ignored.
const PYTHON: &str = r"
import json, os, signal, sys, time
def note(name):
    with open(name + '.tmp', 'w') as file:
        file.write(str(os.getpid()) + '\n')
    os.rename(name + '.tmp', name + '.pid')
def stubborn():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
def detach(body):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            body()
        os._exit(0)
def wait_for(*names):
    while not all(os.path.exists(name + '.pid') for name in names):
        time.sleep(0.01)
def sleeper(name):
    stubborn(); note(name); time.sleep(60)
";

fn python(program: &str) -> Scene {
    Scene::python(&format!("{PYTHON}{program}"))
}

fn arguments_come_back_exactly() {
    let text = r#"{"id":9007199254740993,"huge":1e+400,"small":-0.10,"name":"Zoë \ud83d\ude00"}"#;
    let arguments: Value = serde_json::from_str(text).unwrap();
    let answer = applied(Scene::new(&["cat"]).outcome(arguments.clone()));
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), arguments);
    assert!(
        answer.contains("9007199254740993") && answer.contains("1e+400"),
        "{answer}"
    );
    let nul = r#"printf '{"a":"\\u0000", "n":1.50}\n'"#;
    let Outcome::Applied {
        result,
        flaw: Some(mark),
    } = Scene::sh(nul).outcome(json!({}))
    else {
        panic!("it is there, and marked");
    };
    assert_eq!(result.get(), r#"{"a":"\ufffd", "n":1.50}"#);
    assert!(mark.is_mended(), "{mark:?}");
}

fn the_key_goes_where_the_manifest_says() {
    let mut scene = Scene::new(&["cat"]);
    scene.manifest["idempotency"] = json!({"argument": "request_id"});
    let answer: Value = serde_json::from_str(&applied(scene.outcome(json!({"a": 1})))).unwrap();
    assert_eq!(answer, json!({"a": 1, "request_id": "key-1"}));
}

fn a_tool_says_no_with_exit_10() {
    let said = r#"echo why >&2; echo '{"error":{"message":"sold out","code":"E7"}}'; exit 10"#;
    let outcome = Scene::sh(said).outcome(json!({}));
    let (word, code, failure) = failure(&outcome);
    assert_eq!(
        (word, code, failure.message.english()),
        (OutcomeWord::DefiniteFailure, Code::ToolError, "sold out")
    );
    assert_eq!(
        failure.details,
        Some(json!({"code": "E7", "stderr": "why\n"}))
    );
}

fn garbage_is_an_effect_with_a_flaw() {
    for script in ["echo hello", "true", r"printf '\377'", "echo '{}{}'"] {
        match Scene::sh(script).outcome(json!({})) {
            Outcome::Applied {
                result,
                flaw: Some(flaw),
            } => {
                assert_eq!(
                    (result.get(), flaw.code),
                    ("null", Code::OutputInvalid),
                    "{script}"
                );
            }
            other => panic!("{script}: {other:?}"),
        }
    }
}

fn what_cannot_be_started_has_not_started() {
    let no_folder = {
        let mut scene = Scene::new(&["cat"]);
        scene.manifest["executor"]["process"]["cwd"] = json!("/no/such/folder");
        scene
    };
    let not_executable = Scene::new(&["./plain"]);
    fs::write(not_executable.path().join("plain"), "text").unwrap();
    let late = Scene::new(&["cat"]).limit(Duration::ZERO);
    let bad_entry = {
        let mut scene = Scene::new(&["cat"]);
        scene.manifest["executor"]["process"]["env"] = json!({"A": "\0"});
        scene
    };
    for (scene, hint) in [
        (Scene::new(&["no-such-program-here"]), "was not found"),
        (Scene::new(&["./missing"]), "was not found"),
        (Scene::new(&["/tmp"]), "may not be executed"),
        (not_executable, "may not be executed"),
        (no_folder, "/no/such/folder"),
        (late, "over"),
        (bad_entry, "guard could not be started"),
    ] {
        let outcome = scene.outcome(json!({}));
        let (word, code, failure) = failure(&outcome);
        assert_eq!(
            (word, code),
            (OutcomeWord::NotStarted, Code::Unavailable),
            "{outcome:?}"
        );
        assert!(
            failure.message.english().contains(hint),
            "{} lacks {hint:?}",
            failure.message
        );
    }
}

fn what_the_machine_does_not_start_is_not_the_tools_fault() {
    let second = Duration::from_secs(1);
    let no_guard = Scene::new(&["cat"]).guard_after("");
    fs::set_permissions(
        no_guard.path().join("guard"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    for (scene, why) in [
        (
            Scene::new(&["cat"])
                .guard_after("sleep 2")
                .limit(second / 5),
            Some(TakenBack::OrderTakenBack),
        ),
        (
            Scene::new(&["cat"]).guard_after("ulimit -n 5"),
            Some(TakenBack::NoResources),
        ),
        (no_guard, Some(TakenBack::GuardFailed)),
        (
            Scene::new(&["cat"]).limit(Duration::ZERO),
            Some(TakenBack::StartedTooLate),
        ),
        (Scene::new(&["no-such-program-here"]), None),
    ] {
        let outcome = scene.outcome(json!({}));
        let (word, _, failure) = failure(&outcome);
        assert_eq!(
            (word, failure.why_taken_back()),
            (OutcomeWord::NotStarted, why),
            "{outcome:?}"
        );
    }
}

fn a_relative_program_is_found_in_its_folder() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new(&["./bin/tool"]);
    let path = scene.path().join("bin/tool");
    fs::create_dir(scene.path().join("bin")).unwrap();
    fs::write(&path, "#!/bin/sh\necho \"\\\"$(pwd)\\\"\"\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = serde_json::from_str::<String>(&applied(scene.outcome(json!({})))).unwrap();
    assert_eq!(Path::new(&folder), scene.path());
}

fn a_crash_leaves_doubt_and_its_reason() {
    let outcome = Scene::sh("echo oops >&2; exit 3").outcome(json!({}));
    let (word, code, why) = failure(&outcome);
    assert_eq!((word, code), (OutcomeWord::Unknown, Code::ToolCrashed));
    assert_eq!(
        why.details,
        Some(json!({"exit_code": 3, "stderr": "oops\n"}))
    );
    // 35 is a real-time signal, which has no name.
    for (signal, told) in [("SEGV", 11), ("KILL", 9), ("TERM", 15), ("35", 0)] {
        let outcome = Scene::sh(&format!("echo '{{}}'; kill -{signal} $$")).outcome(json!({}));
        let (word, code, why) = failure(&outcome);
        assert_eq!(
            (word, code),
            (OutcomeWord::Unknown, Code::ToolCrashed),
            "{signal}"
        );
        assert_eq!(detail(why, "signal"), &json!(told), "{signal}");
    }
}

/// Runs until the deadline; the time from the deadline to the answer.
fn lateness(scene: &Scene) -> Duration {
    let since = Instant::now();
    let outcome = scene.outcome(json!({}));
    let late = since.elapsed().saturating_sub(scene.limit);
    let (word, code, _) = failure(&outcome);
    assert_eq!(
        (word, code),
        (OutcomeWord::Unknown, Code::Timeout),
        "{outcome:?}"
    );
    late
}

fn a_tool_that_ignores_term_is_killed() {
    let scene = python("sleeper('main')").limit(Duration::from_millis(1_500));
    let late = lateness(&scene);
    assert_gone(&scene.pids(1));
    assert!(
        late > Duration::from_millis(1_900),
        "it had its two seconds: {late:?}"
    );
    assert!(late < LINGER_MAX, "{late:?}");
}

fn a_tool_that_heeds_term_is_gone_at_once() {
    let program = "
def bye(*_):
    print('bye', file=sys.stderr); sys.exit(0)
signal.signal(signal.SIGTERM, bye); note('main'); time.sleep(60)";
    let scene = python(program).limit(Duration::from_millis(1_500));
    let since = Instant::now();
    let outcome = scene.outcome(json!({}));
    let late = since.elapsed().saturating_sub(scene.limit);
    // It exited with 0, but because it was told to: that proves nothing.
    let (word, code, why) = failure(&outcome);
    assert_eq!((word, code), (OutcomeWord::Unknown, Code::Timeout));
    assert_eq!(detail(why, "stderr"), "bye\n");
    assert!(late < Duration::from_millis(1_500), "{late:?}");
}

fn a_stopped_attempt_ends_its_tool() {
    for (taken_back, code, message) in [
        (false, Code::Timeout, "stopped before it answered"),
        (true, Code::Cancelled, "cancelled before it answered"),
    ] {
        let scene = python("note('main'); time.sleep(60)");
        let (outcome, pids) = thread::scope(|scope| {
            let stop = scope.spawn(|| {
                let pids = scene.pids(1);
                if taken_back {
                    scene.stop.cancel();
                } else {
                    scene.drain.cancel();
                }
                pids
            });
            (scene.outcome(json!({})), stop.join().unwrap())
        });
        assert_gone(&pids);
        let (word, coded, why) = failure(&outcome);
        assert_eq!((word, coded), (OutcomeWord::Unknown, code));
        assert_eq!(why.message.english(), message);
        assert_eq!(detail(why, "stopped"), true);
    }
}

/// Three that will not go: a child, a detached grandchild, and one that wiped its environment on top.
const SURVIVORS: &str = "
def wiped():
    stubborn()
    os.execvpe('sh', ['sh', '-c', 'echo $$ > w.tmp; mv w.tmp wiped.pid; sleep 60'], {'PATH': os.environ['PATH']})
if os.fork() == 0:
    sleeper('child')
detach(lambda: sleeper('detached'))
detach(wiped)
wait_for('child', 'detached', 'wiped')
note('main')
";

fn detached_grandchildren_do_not_survive_a_timeout() {
    let scene =
        python(&format!("{SURVIVORS}stubborn(); time.sleep(60)")).limit(Duration::from_secs(4));
    let late = lateness(&scene);
    assert_gone(&scene.pids(4));
    assert!(late < LINGER_MAX, "{late:?}");
}

fn detached_grandchildren_do_not_survive_a_success() {
    let scene = python(&format!("{SURVIVORS}print('[1]')"));
    assert_eq!(applied(scene.outcome(json!({}))), "[1]");
    assert_gone(&scene.pids(4));
}

fn an_answer_does_not_wait_for_who_holds_stdout() {
    let babble = "
def babbler():
    note('babbler')
    def term(*_):
        print('terminated, and not JSON', flush=True)
    signal.signal(signal.SIGTERM, term)
    note('ready'); time.sleep(60); time.sleep(60)
detach(babbler)
wait_for('ready')
print('[1]')";
    let scene = python(babble);
    let since = Instant::now();
    assert_eq!(applied(scene.outcome(json!({}))), "[1]");
    assert_gone(&scene.pids(2));
    assert!(since.elapsed() < scene.limit / 2, "{:?}", since.elapsed());
}

fn a_killed_worker_takes_its_tools_along() {
    let scene = python(&format!("{SURVIVORS}stubborn(); time.sleep(60)"));
    let worker = scene.in_a_worker();
    let mut pids = scene.pids(4);
    let main: i32 = fs::read_to_string(scene.path().join("main.pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    pids.push(parent(main));
    worker.kill();
    let since = Instant::now();
    wait_for("the tree to be gone", || {
        pids.iter().all(|pid| !alive(*pid)).then_some(())
    });
    assert!(since.elapsed() < LINGER_MAX, "{:?}", since.elapsed());
    assert!(
        !scene.path().join("outcome").exists(),
        "the worker was killed before it had an answer"
    );
}

/// The worker of this scene, whose lock can be taken when it is gone with all it started.
fn worker_of(scene: &Scene) -> (StateDir, WorkerId) {
    let locks = scene::locks(scene.path());
    let workers = locks.workers().unwrap();
    assert_eq!(workers.len(), 1);
    (locks, workers[0])
}

fn is_proven_gone((locks, worker): &(StateDir, WorkerId)) -> bool {
    locks.prove_gone(*worker).unwrap().is_some()
}

fn main_of(scene: &Scene) -> i32 {
    let pid = fs::read_to_string(scene.path().join("main.pid")).unwrap();
    pid.trim().parse().unwrap()
}

/// Kills the worker; what could be proven then, and when.
fn proven_only_after_all_are_gone(scene: &Scene, processes: usize) {
    let process = scene.in_a_worker();
    let mut pids = scene.pids(processes);
    pids.push(parent(main_of(scene)));
    let worker = worker_of(scene);
    assert!(!is_proven_gone(&worker), "it lives");
    process.kill();
    wait_for("the lock", || {
        let proven = is_proven_gone(&worker);
        let living = pids.iter().any(|pid| alive(*pid));
        assert!(
            !(proven && living),
            "proven gone before the last of {pids:?}"
        );
        proven.then_some(())
    });
}

fn a_killed_worker_is_not_gone_before_the_last_of_its_tools() {
    let scene = python(&format!("{SURVIVORS}stubborn(); time.sleep(60)"));
    proven_only_after_all_are_gone(&scene, 4);
}

fn a_tool_that_closes_what_it_does_not_know_is_seen_all_the_same() {
    let scene = python("os.closerange(3, 1000); stubborn(); note('main'); time.sleep(60)");
    proven_only_after_all_are_gone(&scene, 1);
}

fn a_tool_that_unlocks_what_it_inherited_is_seen_all_the_same() {
    let unlock = "import fcntl\n\
                  for name in os.listdir('/proc/self/fd'):\n    \
                      if int(name) > 2 and os.path.exists('/proc/self/fd/' + name): fcntl.flock(int(name), fcntl.LOCK_UN)\n\
                  stubborn(); note('main'); time.sleep(60)";
    let scene = python(unlock);
    proven_only_after_all_are_gone(&scene, 1);
}

fn what_nobody_guards_any_more_holds_the_lock_of_its_worker() {
    let detached = "detach(lambda: sleeper('detached')); wait_for('detached'); sleeper('main')";
    let scene = python(detached);
    let process = scene.in_a_worker();
    let pids = scene.pids(2);
    let (worker, guard) = (worker_of(&scene), parent(main_of(&scene)));
    // Stopped first, so that it does not see its worker die.
    kill(Pid::from_raw(guard), Signal::SIGSTOP).unwrap();
    process.kill();
    kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
    wait_for("the guard to be gone", || (!alive(guard)).then_some(()));
    for pid in pids {
        assert!(alive(pid) && !is_proven_gone(&worker), "{pid}");
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
}

fn a_guard_without_a_share_in_the_lock_starts_nothing() {
    for lock in [None, Some("x"), Some("1"), Some("99")] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut guard = Command::new("/proc/self/exe");
        guard
            .arg("guard")
            .args(lock)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null());
        let mut running = guard.spawn().unwrap();
        // With it goes our hold on its end of the socket.
        drop(guard);
        let mut said = String::new();
        ours.read_to_string(&mut said).unwrap();
        assert!(said.contains("no share in the worker's lock"), "{said}");
        assert!(running.wait().unwrap().success());
    }
}

fn a_killed_guard_leaves_nothing_in_a_worker() {
    let scene = python(&format!("{SURVIVORS}stubborn(); time.sleep(60)"));
    let mut worker = scene.in_a_worker();
    let pids = scene.pids(4);
    let main: i32 = fs::read_to_string(scene.path().join("main.pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let guard = parent(main);
    assert_eq!(parent(guard), worker.pid());
    let since = Instant::now();
    kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
    assert!(worker.wait().success());
    assert!(since.elapsed() < LINGER_MAX, "{:?}", since.elapsed());
    assert_gone(&pids);
    let outcome = fs::read_to_string(scene.path().join("outcome")).unwrap();
    assert!(
        outcome.starts_with("Unknown") && outcome.contains("guard"),
        "{outcome}"
    );
}

/// Holds a dead process back from its parent until its standard input ends: only a tracer can wait for it meanwhile.
const HOLD_BACK: &str = "
import ctypes, sys
if ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None) != 0: sys.exit(1)
print('held', flush=True)
sys.stdin.read()";

fn what_a_guard_left_is_ended_before_the_guard_can_be_waited_for() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can trace a guard");
        return;
    }
    let scene = python(&format!("{SURVIVORS}stubborn(); time.sleep(60)"));
    fs::write(scene.path().join(scene::STAY), "").unwrap();
    let mut worker = scene.in_a_worker();
    let pids = scene.pids(4);
    let (locks, id) = worker_of(&scene);
    let guard = parent(main_of(&scene));
    let mut tracer = Command::new("python3");
    tracer.args(["-c", HOLD_BACK, &guard.to_string()]);
    let mut tracer = tracer
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 4];
    let stdout = tracer.stdout.as_mut().unwrap();
    stdout.read_exact(&mut said).unwrap();
    kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
    wait_for("the tool's processes to be ended", || {
        pids.iter().all(|pid| !alive(*pid)).then_some(())
    });
    wait_for("the answer", || {
        fs::read_to_string(scene.path().join("outcome")).ok()
    });
    assert!(
        locks.is_withdrawn(id),
        "a guard is there that its worker has not seen end"
    );
    drop(tracer.stdin.take());
    assert!(tracer.wait().unwrap().success());
    wait_for("the lock to prove something again", || {
        (!locks.is_withdrawn(id)).then_some(())
    });
    fs::remove_file(scene.path().join(scene::STAY)).unwrap();
    assert!(worker.wait().success());
    assert!(is_proven_gone(&(locks, id)));
}

fn a_frozen_guard_delays_nobody() {
    let scene =
        python(&format!("{SURVIVORS}stubborn(); time.sleep(60)")).limit(Duration::from_secs(4));
    let since = Instant::now();
    let mut worker = scene.in_a_worker();
    let pids = scene.pids(4);
    let main: i32 = fs::read_to_string(scene.path().join("main.pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kill(Pid::from_raw(parent(main)), Signal::SIGSTOP).unwrap();
    assert!(worker.wait().success());
    let late = since.elapsed().saturating_sub(scene.limit);
    // The worker's own start is in it.
    assert!(late < LINGER_MAX + Duration::from_millis(500), "{late:?}");
    assert_gone(&pids);
    let outcome = fs::read_to_string(scene.path().join("outcome")).unwrap();
    assert!(
        outcome.starts_with("Unknown") && outcome.contains("Timeout"),
        "{outcome}"
    );
}

fn a_process_that_changes_its_pid_all_the_time_is_caught() {
    let hare = "
def run():
    stubborn()
    # If no guard ends it, it ends by itself.
    end = time.time() + 15
    while time.time() < end:
        if os.fork():
            os._exit(0)
        os.setsid()
for _ in range(4):
    detach(run)
note('main')
time.sleep(60)";
    let scene = python(hare).limit(Duration::from_secs(2));
    let late = lateness(&scene);
    assert!(late < LINGER_MAX, "{late:?}");
    let folder = scene.path();
    let left = fs::read_dir("/proc").unwrap().flatten();
    let left = left
        .filter(|process| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder));
    assert_eq!(
        left.count(),
        0,
        "every process of this tool works in the scene's folder"
    );
}

fn a_guard_is_deaf_to_polite_signals() {
    let scene = python("note('main'); sys.stdin.read(); wait_for('go'); print('[1]')");
    let mut worker = scene.in_a_worker();
    let guard = Pid::from_raw(parent(scene.pids(1)[0]));
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGPIPE,
    ] {
        kill(guard, signal).unwrap();
    }
    fs::write(scene.path().join("go.pid"), "").unwrap();
    assert!(worker.wait().success());
    let outcome = fs::read_to_string(scene.path().join("outcome")).unwrap();
    assert!(outcome.starts_with("Applied"), "{outcome}");
}

fn too_much_output_ends_the_tool() {
    let endless = "
note('main')
while True:
    sys.stdout.write('x' * 65536)";
    let mut scene = python(endless);
    for (effect, word) in [
        ("once", OutcomeWord::Unknown),
        ("read", OutcomeWord::DefiniteFailure),
    ] {
        scene.manifest["effect"] = json!(effect);
        let since = Instant::now();
        let outcome = scene.outcome(json!({}));
        let (said, code, _) = failure(&outcome);
        assert_eq!((said, code), (word, Code::OutputTooLarge), "{effect}");
        assert!(since.elapsed() < scene.limit / 2);
        assert_gone(&scene.pids(1));
    }
    let mut large = Scene::sh("head -c 3000000 /dev/zero | tr '\\0' x");
    large.manifest["effect"] = json!("once");
    let Outcome::Applied {
        result,
        flaw: Some(flaw),
    } = large.outcome(json!({}))
    else {
        panic!("a write that ends well has done it, whatever it prints");
    };
    assert_eq!(flaw.code, Code::OutputTooLarge);
    let kept = result.get().len();
    assert!(
        kept < 20_000 && result.get().ends_with("x… [cut]\""),
        "{kept}"
    );
    let mut exact = Scene::sh("printf '\"123456\"'");
    exact.manifest["output_limit"] = json!(8);
    assert_eq!(applied(exact.outcome(json!({}))), "\"123456\"");
}

fn stderr_is_drained_and_its_end_kept() {
    let program = "
sys.stderr.write('x' * 3_000_000 + '\\x1b[31mthe end')
sys.exit(4)";
    let outcome = python(program).outcome(json!({}));
    let (_, _, why) = failure(&outcome);
    let kept = detail(why, "stderr").as_str().unwrap();
    assert!(
        kept.ends_with("x\\u{1b}[31mthe end"),
        "{}",
        &kept[kept.len() - 40..]
    );
    assert!((4_000..=4_096).contains(&kept.len()), "{}", kept.len());
}

fn the_environment_holds_what_was_promised_and_nothing_else() {
    // What the kernel hands over at the start, before a shell or an interpreter adds its own.
    let mut scene = Scene::sh("cat /proc/$$/environ > environ; echo '[1]'");
    scene.manifest["executor"]["process"]["env"] =
        json!({"MINE": "mine", "TOOLFLEET_ATTEMPT": "forged"});
    applied(scene.outcome(json!({})));
    let bytes = fs::read_to_string(scene.path().join("environ")).unwrap();
    let mut seen: BTreeMap<&str, &str> = bytes
        .split_terminator('\0')
        .map(|entry| entry.split_once('=').unwrap())
        .collect();
    for (name, value) in [
        ("MINE", "mine"),
        ("TOOLFLEET_ATTEMPT", "2"),
        ("TOOLFLEET_IDEMPOTENCY_KEY", "key-1"),
        ("TOOLFLEET_DEADLINE_MS", "1234"),
        ("TOOLFLEET_TENANT", "acme"),
        ("TOOLFLEET_SESSION", "s1"),
        ("TOOLFLEET_META", r#"{"m":1}"#),
        ("TOOLFLEET_LANGUAGE", "en"),
        ("TOOLFLEET_TOOL", "t"),
        ("TOOLFLEET_TOOL_VERSION", "1"),
        (
            "TRACEPARENT",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
    ] {
        assert_eq!(seen.remove(name), Some(value), "{name}");
    }
    let left: u64 = seen
        .remove("TOOLFLEET_REMAINING_MS")
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=20_000).contains(&left), "{left}");
    for id in ["TOOLFLEET_CALL_ID", "TOOLFLEET_ATTEMPT_ID"] {
        assert_eq!(seen.remove(id).map(str::len), Some(36), "{id}");
    }
    seen.retain(|name, _| !["PATH", "LANG", "HOME"].contains(name));
    assert!(seen.is_empty(), "{:?} were not promised", seen.keys());
}

fn unread_stdin_blocks_nobody() {
    let arguments = json!({"text": "x".repeat(256 * 1024)});
    for script in ["echo '[1]'", "exec <&-; echo '[1]'"] {
        assert_eq!(
            applied(Scene::sh(script).outcome(arguments.clone())),
            "[1]",
            "{script}"
        );
    }
    let length = "import sys; print(len(sys.stdin.read()))";
    assert_eq!(
        applied(Scene::python(length).outcome(arguments.clone())),
        arguments.to_string().len().to_string()
    );
}

fn signals_and_descriptors_are_as_a_program_expects() {
    let scene = Scene::sh("echo $$ > a.tmp; mv a.tmp a.pid; exec sleep 60");
    let worker = scene.in_a_worker();
    let tool = format!("/proc/{}", scene.pids(1)[0]);
    let read = |name: &str| fs::read_to_string(format!("{tool}/{name}")).unwrap();
    // A shell opens files for its own use, and a loader libraries: look when both are through.
    wait_for("sleep with stdin, stdout, stderr and the lock", || {
        let open = fs::read_dir(format!("{tool}/fd")).unwrap().flatten();
        let files = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        let (locks, others): (Vec<_>, Vec<_>) =
            files.partition(|file| file.extension().is_some_and(|ending| ending == "lock"));
        (read("comm") == "sleep\n" && locks.len() == 1 && others.len() == 3).then_some(())
    });
    let status = read("status");
    let mask = |name: &str| {
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    assert_eq!(mask("SigBlk:"), 0);
    // The C library keeps 32 and 33 for itself, and ignores them in whatever it spawns.
    assert_eq!(mask("SigIgn:") & !(0b11 << 31), 0);
    worker.kill();
}

fn fifty_at_once_leave_no_process() {
    let scenes: Vec<Scene> = (0..50)
        .map(|_| Scene::sh("sleep 60 & echo $! > a.tmp; mv a.tmp a.pid; echo $$ > b.pid; cat"))
        .collect();
    runtime().block_on(async {
        let runs = scenes.iter().map(|scene| scene.run(json!({"n": 1})));
        for outcome in futures_util::future::join_all(runs).await {
            assert_eq!(applied(outcome), r#"{"n":1}"#);
        }
    });
    for scene in &scenes {
        let pids = scene.pids(2);
        assert_gone(&pids);
        let zombie = pids
            .iter()
            .find(|pid| fs::exists(format!("/proc/{pid}")).unwrap());
        assert_eq!(zombie, None, "each was waited for");
    }
}

fn overhead_is_told() {
    let (scene, rounds) = (Scene::new(&["cat"]), 40);
    let bare = Instant::now();
    for _ in 0..rounds {
        Command::new("cat").stdin(Stdio::null()).output().unwrap();
    }
    let bare = bare.elapsed() / rounds;
    let runtime = runtime();
    let guarded = Instant::now();
    for _ in 0..rounds {
        applied(runtime.block_on(scene.run(json!({}))));
    }
    let guarded = guarded.elapsed() / rounds;
    println!("a run of cat: {guarded:.1?} under a guard, {bare:.1?} without");
}
