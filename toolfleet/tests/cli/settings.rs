//! Bad settings, one by one: every one ends with the code of its kind and one sentence that names it as it was given.
//!
//! Nothing here reaches a server: what is wrong is seen before one is asked, and before `dev` or `bench` starts one.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use toolfleet::{dev::DevState, servers::free_ports};

use crate::support::{Ran, folder, program, run};

const NO_DATABASE: &str = "postgres://nobody:hunter2@127.0.0.1:1/nowhere";
const NO_NATS: &str = "nats://u:hunter2@127.0.0.1:1";
const ID: &str = "01936c2e-0000-7000-8000-000000000001";

/// A mistake: the command line, the variables, and what the sentence has to name.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

/// Settings that cannot be used; FILE is a file that is no program, DIR a folder, NOWHERE is not there.
const CONFIGURATION: &[Case] = &[
    // bench
    (
        "bench",
        &[("DATABASE_URL", "mysql://u:hunter2@h/d")],
        "DATABASE_URL is",
    ),
    ("bench", &[("DATABASE_URL", "")], "DATABASE_URL is"),
    (
        "bench --database-url mysql://u:hunter2@h/d",
        &[],
        "--database-url is",
    ),
    (
        "bench",
        &[("WORKER_TOOL_DATABASE_URL", "mysql://u:hunter2@h/d")],
        "WORKER_TOOL_DATABASE_URL",
    ),
    ("bench --tool-database-url x", &[], "--tool-database-url"),
    (
        "bench",
        &[("NATS_URL", "http://u:hunter2@h")],
        "NATS_URL is",
    ),
    ("bench --nats-url http://u:hunter2@h", &[], "--nats-url is"),
    (
        "bench",
        &[("TOOLFLEET_PREFIX", "a b")],
        "TOOLFLEET_PREFIX is",
    ),
    (
        "bench",
        &[("WORKER_DRAIN_TIMEOUT", "30")],
        "WORKER_DRAIN_TIMEOUT is",
    ),
    ("bench --svg NOWHERE/x.svg", &[], "--svg"),
    ("bench --dev --svg NOWHERE/x.svg", &[], "--svg"),
    ("bench --dev --svg DIR", &[], "--svg"),
    (
        "bench --dev --floor --floor-program NOWHERE",
        &[],
        "--floor-program",
    ),
    (
        "bench --dev --floor --floor-program DIR",
        &[],
        "--floor-program",
    ),
    (
        "bench --dev --floor --floor-program FILE",
        &[],
        "--floor-program",
    ),
    ("bench --dev", &[("TMPDIR", "/nowhere")], "TMPDIR is"),
    (
        "bench --dev",
        &[("TOOLFLEET_POSTGRES_BIN", "/nowhere")],
        "TOOLFLEET_POSTGRES_BIN is",
    ),
    (
        "bench --dev",
        &[("TOOLFLEET_NATS_SERVER", "/nowhere")],
        "TOOLFLEET_NATS_SERVER is",
    ),
    (
        "bench --dev",
        &[("TOOLFLEET_LOG", "=,=")],
        "TOOLFLEET_LOG is",
    ),
    (
        "bench --dev",
        &[("TOOLFLEET_PREFIX", "")],
        "TOOLFLEET_PREFIX is",
    ),
    (
        "bench --dev",
        &[("DISPATCHER_REQUESTS_MAX", "0")],
        "DISPATCHER_REQUESTS_MAX must",
    ),
    (
        "bench --dev",
        &[("WORKER_SECRETS", "/nowhere")],
        "WORKER_SECRETS is",
    ),
    (
        "bench --dev",
        &[("WORKER_CONCURRENCY", "0")],
        "WORKER_CONCURRENCY must",
    ),
    ("bench-worker --effects NOWHERE", &[], "--effects"),
    ("bench-worker --effects FILE", &[], "--effects"),
    // dev
    ("dev --data FILE", &[], "--data"),
    ("dev --data FILE/below", &[], "--data"),
    ("dev --data data --tools NOWHERE", &[], "--tools"),
    ("dev --data data --tools FILE", &[], "--tools"),
    (
        "dev --data data",
        &[("TOOLFLEET_POSTGRES_BIN", "/nowhere")],
        "TOOLFLEET_POSTGRES_BIN is",
    ),
    (
        "dev --data data",
        &[("TOOLFLEET_POSTGRES_BIN", "/dev/null")],
        "TOOLFLEET_POSTGRES_BIN is",
    ),
    (
        "dev --data data",
        &[("TOOLFLEET_NATS_SERVER", "/nowhere")],
        "TOOLFLEET_NATS_SERVER is",
    ),
    (
        "dev --data data",
        &[("TOOLFLEET_NATS_SERVER", "/dev")],
        "TOOLFLEET_NATS_SERVER is",
    ),
    (
        "dev --data data",
        &[("TOOLFLEET_PREFIX", "a b")],
        "TOOLFLEET_PREFIX is",
    ),
    (
        "dev --data data",
        &[("TOOLFLEET_LOG", "=,=")],
        "TOOLFLEET_LOG is",
    ),
    (
        "dev --data data",
        &[("TOOLFLEET_LOG_FORMAT", "xml")],
        "TOOLFLEET_LOG_FORMAT is",
    ),
    (
        "dev --data data",
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "x")],
        "OTEL_EXPORTER_OTLP_ENDPOINT must",
    ),
    (
        "dev --data data",
        &[("DISPATCHER_REQUESTS_MAX", "0")],
        "DISPATCHER_REQUESTS_MAX must",
    ),
    (
        "dev --data data",
        &[("DISPATCHER_TENANT_QUOTAS", "x")],
        "DISPATCHER_TENANT_QUOTAS is",
    ),
    (
        "dev --data data",
        &[("DISPATCHER_READ_CONNECTIONS", "65")],
        "DISPATCHER_READ_CONNECTIONS must",
    ),
    (
        "dev --data data",
        &[("DISPATCHER_HISTORY_DAYS", "-1")],
        "DISPATCHER_HISTORY_DAYS must",
    ),
    (
        "dev --data data",
        &[("WORKER_QUEUES", "A B")],
        "WORKER_QUEUES is",
    ),
    (
        "dev --data data",
        &[("WORKER_PROGRAMS", "0")],
        "WORKER_PROGRAMS must",
    ),
    // dispatcher
    (
        "dispatcher",
        &[("DISPATCHER_REQUESTS_MAX", "99999999999999999999")],
        "DISPATCHER_REQUESTS_MAX is",
    ),
    (
        "dispatcher",
        &[("DISPATCHER_TENANT_QUOTA", "-1")],
        "DISPATCHER_TENANT_QUOTA is",
    ),
    ("dispatcher --requests-max 0", &[], "--requests-max must"),
    (
        "dispatcher --read-connections 65",
        &[],
        "--read-connections must",
    ),
    (
        "dispatcher --history-days 99999",
        &[],
        "--history-days must",
    ),
    (
        "dispatcher --database-url mysql://u:hunter2@h/d",
        &[],
        "--database-url is",
    ),
    (
        "dispatcher --nats-url http://u:hunter2@h",
        &[],
        "--nats-url is",
    ),
    ("dispatcher", &[("NATS_URL", "")], "NATS_URL is"),
    ("dispatcher", &[("NATS_URL", "nats://")], "NATS_URL is"),
    ("dispatcher --log =,=", &[], "--log is"),
    ("dispatcher --otlp-endpoint x", &[], "--otlp-endpoint must"),
    ("dispatcher --http 192.0.2.1:0", &[], "(--http)"),
    (
        "dispatcher",
        &[("TOOLFLEET_HTTP", "192.0.2.1:0")],
        "(TOOLFLEET_HTTP)",
    ),
    // worker
    ("worker", &[("WORKER_SECRETS", "")], "WORKER_SECRETS is"),
    ("worker", &[("WORKER_STATE_DIR", "")], "WORKER_STATE_DIR is"),
    ("worker --secrets FILE", &[], "--secrets is"),
    (
        "worker",
        &[("WORKER_STATE_DIR", "/nowhere/x")],
        "WORKER_STATE_DIR is",
    ),
    (
        "worker",
        &[("WORKER_STATE_DIR", "/dev/null")],
        "WORKER_STATE_DIR is",
    ),
    (
        "worker",
        &[("RUNTIME_DIRECTORY", "/nowhere/x")],
        "RUNTIME_DIRECTORY is",
    ),
    ("worker --state-dir FILE", &[], "--state-dir is"),
    (
        "worker",
        &[("WORKER_QUEUES", "a,b,a")],
        "WORKER_QUEUES has a twice",
    ),
    ("worker --queues a,a", &[], "--queues has a twice"),
    (
        "worker",
        &[("WORKER_TOOL_DATABASE_URL", "mysql://u:hunter2@h/d")],
        "WORKER_TOOL_DATABASE_URL is",
    ),
    (
        "worker",
        &[("WORKER_TOOL_DATABASE_URL", "")],
        "WORKER_TOOL_DATABASE_URL is",
    ),
    (
        "worker --tool-database-url x",
        &[],
        "--tool-database-url is",
    ),
    ("worker --concurrency 0", &[], "--concurrency must"),
    ("worker --drain-timeout 2h", &[], "--drain-timeout must"),
    // What asks something and ends.
    ("migrate --database-url x", &[], "--database-url is"),
    (
        "migrate",
        &[("TOOLFLEET_TOOL_ROLE", "")],
        "TOOLFLEET_TOOL_ROLE is",
    ),
    ("doctor --database-url x", &[], "--database-url is"),
    ("doctor --nats-url http://h", &[], "--nats-url is"),
    ("doctor", &[("NATS_URL", "")], "NATS_URL is"),
    ("calls list --database-url x", &[], "--database-url is"),
    ("calls show --database-url x ID", &[], "--database-url is"),
    (
        "calls explain --database-url x ID",
        &[],
        "--database-url is",
    ),
    ("calls retry --database-url x ID", &[], "--database-url is"),
    ("calls tail --database-url x", &[], "--database-url is"),
    ("calls cancel --nats-url http://h ID", &[], "--nats-url is"),
    (
        "calls settle --nats-url http://h --outcome applied --note n ID",
        &[],
        "--nats-url is",
    ),
    (
        "calls settle --result @NOWHERE --outcome applied --note n ID",
        &[],
        "--result",
    ),
    ("tools list --database-url x", &[], "--database-url is"),
    ("tools show look --database-url x", &[], "--database-url is"),
    (
        "tools retire look --note n --database-url x",
        &[],
        "--database-url is",
    ),
    ("workers list --database-url x", &[], "--database-url is"),
    (
        "workers fence --database-url x --note n ID",
        &[],
        "--database-url is",
    ),
    ("call look", &[("NATS_URL", "")], "NATS_URL is"),
    ("call look --nats-url nats://", &[], "--nats-url is"),
    ("call look --args @NOWHERE", &[], "--args"),
    ("call look --args @DIR", &[], "--args"),
    ("call look --bulk NOWHERE", &[], "--bulk"),
    ("call look --bulk DIR", &[], "--bulk"),
    ("call look --bulk /dev/null --out NOWHERE/x", &[], "--out"),
    ("call look --bulk /dev/null --out DIR", &[], "--out"),
];

/// Command lines that contradict themselves, whatever the world is.
const USAGE: &[Case] = &[
    ("bench --dev --database-url x", &[], "--database-url"),
    (
        "bench --dev --tool-database-url x",
        &[],
        "--tool-database-url",
    ),
    ("bench --dev --nats-url x", &[], "--nats-url"),
    ("bench --dev --prefix x", &[], "--prefix"),
    (
        "bench --mode batch --batch 1000 --bytes 65536",
        &[],
        "--batch",
    ),
    (
        "dev --nats-port 28001 --http-port 28001",
        &[],
        "--http-port",
    ),
    (
        "dev --nats-port 28001 --postgres-port 28001",
        &[],
        "--postgres-port",
    ),
];

/// The command in the folder, as in the case; addresses that lead nowhere where it has none.
fn command(folder: &Path, (line, environment, _): &Case) -> Command {
    let line = line
        .replace("NOWHERE", "nowhere")
        .replace("FILE", "file")
        .replace("DIR", "folder")
        .replace("ID", ID);
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = program(&words);
    command.current_dir(folder).env("TMPDIR", folder);
    for variable in ["TOOLFLEET_NATS_SERVER", "TOOLFLEET_POSTGRES_BIN", "PATH"] {
        if let Some(value) = std::env::var_os(variable) {
            command.env(variable, value);
        }
    }
    if !matches!(words[0], "dev") {
        command
            .env("DATABASE_URL", NO_DATABASE)
            .env("NATS_URL", NO_NATS);
    }
    command.envs(environment.iter().copied());
    command
}

/// What is wrong with how the mistake was answered.
fn complaint(case: &Case, ran: &Ran, code: i32) -> Option<String> {
    let (line, environment, named) = case;
    let is_sentence = ran.err.starts_with("toolfleet: ") && ran.err.lines().count() == 1;
    let has = |word: &str| ran.err.contains(word);
    let is_good = ran.code == code
        && is_sentence
        && ran.out.is_empty()
        && has(named)
        && !["hunter2", "os error", "panicked", "write one of \n"]
            .into_iter()
            .any(has);
    let asked = format!("{environment:?} toolfleet {line}");
    (!is_good).then(|| format!("{asked}\n  exit code {}: {}{}", ran.code, ran.out, ran.err))
}

fn all_are_answered(cases: &[Case], code: i32) {
    let folder = folder();
    fs::write(folder.path().join("file"), "no program").unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    let complaints: Vec<String> = cases
        .iter()
        .filter_map(|case| complaint(case, &run(command(folder.path(), case)), code))
        .collect();
    assert!(
        complaints.is_empty(),
        "{} of {}\n{}",
        complaints.len(),
        cases.len(),
        complaints.join("\n")
    );
}

#[test]
fn every_setting_that_cannot_be_used_is_64_and_named_as_it_was_given() {
    all_are_answered(CONFIGURATION, 64);
}

#[test]
fn a_command_line_that_contradicts_itself_is_2() {
    all_are_answered(USAGE, 2);
}

#[test]
fn a_setting_that_the_bench_does_not_reach_is_69_and_named() {
    let ran = run(program(&["bench", "--database-url", NO_DATABASE]));
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(
        ran.err
            .contains("Postgres at 127.0.0.1:1 (--database-url) is away"),
        "{}",
        ran.err
    );
}

#[test]
fn a_call_without_any_address_is_told_all_the_ways() {
    let folder = folder();
    let mut call = program(&["call", "look"]);
    call.current_dir(folder.path());
    let ran = run(call);
    // A nats-server may run on the usual port of this machine; then there is no error.
    if std::net::TcpStream::connect("127.0.0.1:4222").is_err() {
        assert_eq!(ran.code, 69, "{}", ran.err);
        for way in [
            "no address is given",
            "`toolfleet dev`",
            "NATS_URL",
            "--nats-url",
        ] {
            assert!(ran.err.contains(way), "{way}: {}", ran.err);
        }
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
}

#[test]
fn an_address_of_a_dev_is_named_by_its_file() {
    let folder = folder();
    let data = folder.path().join(".toolfleet");
    fs::create_dir(&data).unwrap();
    let ports = free_ports(2).unwrap();
    let state = DevState {
        nats_url: format!("nats://127.0.0.1:{}", ports[0]),
        database_url: format!(
            "postgres://toolfleet:hunter2@127.0.0.1:{}/toolfleet",
            ports[1]
        ),
        ..DevState::default()
    };
    let (file, lock) = (data.join("dev.json"), data.join("dev.lock"));
    fs::write(&file, serde_json::to_vec(&state).unwrap()).unwrap();
    // It lives, as this test does, and its servers are away.
    fs::write(&lock, std::process::id().to_string()).unwrap();
    for (path, mode) in [(&data, 0o755), (&file, 0o600), (&lock, 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let named = file.canonicalize().unwrap();
    let named = named.to_str().unwrap();
    for arguments in [
        &["call", "look"][..],
        &["calls", "list"],
        &["tools", "list"],
        &["doctor"],
    ] {
        let mut command = program(arguments);
        command.current_dir(folder.path());
        let ran = run(command);
        let said = ran.out + ran.err.lines().last().unwrap();
        assert_eq!(ran.code, 69, "{arguments:?}: {said}");
        assert!(
            said.contains(&format!("({named}) is away"))
                && said.contains("`toolfleet dev`")
                && !said.contains("NATS_URL")
                && !said.contains("DATABASE_URL")
                && !said.contains("hunter2"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn the_doctor_names_the_option_that_an_address_came_from() {
    let arguments = [
        "doctor",
        "--database-url",
        NO_DATABASE,
        "--nats-url",
        NO_NATS,
    ];
    let ran = run(program(&arguments));
    assert_eq!(ran.code, 69, "{}", ran.err);
    for named in [
        "127.0.0.1:1 (--database-url) is away",
        "127.0.0.1:1 (--nats-url) is away",
    ] {
        assert!(ran.out.contains(named), "{named}: {}", ran.out);
    }
    assert!(!ran.out.contains("_URL"), "{}", ran.out);
}
