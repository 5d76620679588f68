//! Exit codes, as scripts rely on them.

use std::net::TcpListener;

use toolfleet::servers::free_ports;

use crate::support::{folder, nats, program, run};

const NO_DATABASE: &str = "postgres://nobody@127.0.0.1:1/nowhere";

#[test]
fn every_bad_setting_is_named_at_once_and_no_port_is_bound() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut worker = program(&["worker", "--http", &taken.local_addr().unwrap().to_string()]);
    worker.env("DATABASE_URL", "mysql://u:hunter2@h/d");
    worker.env("NATS_URL", "nats://u:hunter2@a b");
    worker.env("WORKER_CONCURRENCY", "0");
    worker.env("WORKER_DRAIN_TIMEOUT", "2h");
    worker.env("TOOLFLEET_LOG", "=,=");
    let ran = run(worker);
    assert_eq!(ran.code, 64, "{}", ran.err);
    for name in [
        "DATABASE_URL",
        "NATS_URL",
        "WORKER_CONCURRENCY",
        "WORKER_DRAIN_TIMEOUT",
        "TOOLFLEET_LOG",
    ] {
        assert!(ran.err.contains(name), "{name}: {}", ran.err);
    }
    assert!(
        ran.err.starts_with("toolfleet: ") && !ran.err.contains("hunter2"),
        "{}",
        ran.err
    );
    assert_eq!((ran.err.lines().count(), ran.out.as_str()), (1, ""));

    let mut dispatcher = program(&[
        "dispatcher",
        "--http",
        &taken.local_addr().unwrap().to_string(),
    ]);
    dispatcher.env("DATABASE_URL", NO_DATABASE);
    dispatcher.env("DISPATCHER_REQUESTS_MAX", "0");
    dispatcher.env("DISPATCHER_READ_CONNECTIONS", "65");
    let ran = run(dispatcher);
    assert_eq!(ran.code, 64, "{}", ran.err);
    assert!(
        ran.err.contains("DISPATCHER_REQUESTS_MAX")
            && ran.err.contains("DISPATCHER_READ_CONNECTIONS"),
        "{}",
        ran.err
    );
}

#[test]
fn a_taken_port_is_a_failure_that_names_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = run(program(&[
        "dispatcher",
        "--database-url",
        NO_DATABASE,
        "--http",
        &address,
    ]));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.err.starts_with(&format!(
            "toolfleet: port {} of 127.0.0.1 (--http) is taken; ",
            taken.local_addr().unwrap().port()
        )),
        "{}",
        ran.err
    );
}

#[test]
fn a_server_that_is_not_there_is_69() {
    let port = free_ports(1).unwrap()[0];
    let database_url = format!("postgres://nobody@127.0.0.1:{port}/nowhere");
    let id = "01936c2e-0000-7000-8000-000000000001";
    for arguments in [
        &["migrate"][..],
        &["tools", "list"],
        &["tools", "show", "look"],
        &["tools", "apply", "examples/tools"],
        &["calls", "list"],
        &["calls", "show", id],
        &["calls", "explain", id],
        &["calls", "retry", id],
        &["calls", "tail"],
    ] {
        let mut command = program(arguments);
        command.env("DATABASE_URL", &database_url);
        let ran = run(command);
        assert_eq!(ran.code, 69, "{arguments:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
    let ran = run(program(&[
        "call",
        "look",
        "--nats-url",
        &format!("nats://127.0.0.1:{port}"),
    ]));
    assert_eq!(ran.code, 69, "{}", ran.err);
}

#[test]
fn what_the_program_does_not_understand_is_2() {
    for arguments in [
        &[][..],
        &["dance"],
        &["dispatcher"],
        &["worker", "--database-url", NO_DATABASE, "--queues", "A B"],
        &["dev", "--workers", "65"],
        &["dev", "--concurrency", "4097"],
        &["tools", "lint"],
        &[
            "calls",
            "list",
            "--database-url",
            NO_DATABASE,
            "--state",
            "lost",
        ],
        &[
            "calls",
            "list",
            "--database-url",
            NO_DATABASE,
            "--limit",
            "1001",
        ],
        &["calls", "show", "--database-url", NO_DATABASE, "not-an-id"],
        &["call", "look", "a=1", "a=2"],
    ] {
        let ran = run(program(arguments));
        assert_eq!(ran.code, 2, "{arguments:?}: {}{}", ran.out, ran.err);
    }
    let ran = run(program(&["call", "look", "--nats-url", "nats://a b"]));
    assert_eq!(ran.code, 64, "{}", ran.err);
}

#[test]
fn a_reader_who_has_enough_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut lint = program(&["tools", "lint", "examples/tools"]);
    lint.stdout(writer);
    let ran = run(lint);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[tokio::test]
async fn a_call_that_nobody_answers_says_so_at_once() {
    let folder = folder();
    let nats = nats(folder.path()).await;
    let mut call = program(&["call", "look", "--tenant", "acme", "--wait", "300"]);
    call.env("NATS_URL", nats.url());
    let ran = tokio::task::spawn_blocking(|| run(call)).await.unwrap();
    assert_eq!(ran.code, 69, "{}", ran.err);
    let expected = "toolfleet: no dispatcher answers on toolfleet.v1.acme.call.look; ";
    assert!(ran.err.starts_with(expected), "{}", ran.err);
    nats.stop().await;
}
