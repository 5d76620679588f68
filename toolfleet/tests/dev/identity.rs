//! A port that a stranger has, and children that die as soon as they are started: what `dev` says of them.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    thread,
};

use nix::sys::signal::Signal;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolfleet::{
    dev::{DevOptions, Screen},
    servers::free_ports,
};

use crate::{
    supervision::{options, script, start_on},
    support::{LONG, PROGRAM, Paper, dev, folder, send, wait_until},
};

#[tokio::test]
async fn a_stranger_who_is_ready_on_the_port_is_not_taken_for_our_dispatcher() {
    let folder = folder(0o755);
    let port = free_ports(1).unwrap()[0];
    let (asks, there) = (folder.path().join("asks"), folder.path().join("there"));
    // `dev` has looked at the port and let go of it for its dispatcher, which waits until the stranger has it.
    let text = format!(
        "case \"$1\" in dispatcher) : > {}; while [ ! -e {} ]; do sleep 0.01; done ;; esac\n\
         exec {PROGRAM} \"$@\"",
        asks.display(),
        there.display()
    );
    let options = DevOptions {
        program: Some(script(folder.path(), &text)),
        workers: 0,
        http_port: Some(port),
        ..options(folder.path())
    };
    let stop = CancellationToken::new();
    let starting = start_on(&options, Screen::new(Paper::default()), &stop);
    let stranger = async {
        wait_until("the dispatcher to be started", || asks.exists()).await;
        ready_stranger(port);
        fs::write(&there, "").unwrap();
    };
    let (started, ()) = tokio::join!(timeout(LONG, Box::pin(starting)), stranger);
    let problem = match started.unwrap() {
        Err(problem) => problem.to_string(),
        Ok(dev) => {
            if let Some(dev) = dev {
                dev.stop().await;
            }
            panic!("it believed the stranger");
        }
    };
    assert!(
        problem.contains("dev-dispatcher-1") && problem.contains(&format!("127.0.0.1:{port}")),
        "{problem}"
    );
}

#[tokio::test]
async fn a_port_that_was_asked_for_and_is_taken_is_said_in_a_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for option in [
        "--nats-port",
        "--postgres-port",
        "--http-port",
        "--gateway-port",
    ] {
        let folder = folder(0o755);
        let ran = dev(folder.path(), &["--workers", "0", option, &port]).output();
        let ran = timeout(LONG, ran).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(1), "{said}");
        let expected = format!(
            "toolfleet: port {port} of 127.0.0.1 ({option}) is taken; \
             end what listens there, or name another port; 0 takes a free one\n"
        );
        assert_eq!(said, expected);
    }
}

#[tokio::test]
async fn a_worker_that_dies_three_times_at_once_is_said_with_the_reason() {
    let folder = folder(0o755);
    let broken = folder.path().join("broken");
    // Serves as ever until the file is there.
    let text = format!(
        "case \"$1\" in worker) [ -e {} ] && {{ echo 'toolfleet: no such luck' >&2; exit 64; }} ;; esac\n\
         exec {PROGRAM} \"$@\"",
        broken.display()
    );
    let options = DevOptions {
        program: Some(script(folder.path(), &text)),
        ..options(folder.path())
    };
    let paper = Paper::default();
    let screen = Screen::new(paper.clone());
    let dev = start_on(&options, screen, &CancellationToken::new())
        .await
        .unwrap()
        .unwrap();
    fs::write(&broken, "").unwrap();
    send(dev.state().worker_pids[0], Signal::SIGKILL);
    wait_until("the third death in a row to be said", || {
        let said = paper.text();
        let told =
            |line: &&str| line.contains("dev-worker-1") && line.contains("it is started again");
        said.lines().filter(told).count() >= 4
    })
    .await;
    let said = paper.text();
    dev.stop().await;
    assert!(
        said.contains("dev-worker-1 has ended 3 times right after its start")
            && said.contains("no such luck")
            && said.contains("dev-worker-1.log"),
        "{said}"
    );
}

#[tokio::test]
async fn two_files_with_one_tool_are_both_named_and_neither_is_applied() {
    let folder = folder(0o755);
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    manifest(&tools.join("a.yaml"), "look", "/bin/true");
    manifest(&tools.join("b.yaml"), "look", "/bin/false");
    manifest(&tools.join("c.yaml"), "other", "/bin/true");
    let flags = ["--workers", "0", "--tools", tools.to_str().unwrap()];
    let dev = crate::support::DevProcess::start(folder.path(), &flags).await;
    let database_url = dev.state().database_url;
    let output = dev.stop_with(async {
        let mut ledger = <sqlx::PgConnection as sqlx::Connection>::connect(&database_url)
            .await
            .unwrap();
        sqlx::query_scalar("SELECT array_agg(tool) FROM toolfleet.tools")
            .fetch_one(&mut ledger)
            .await
            .unwrap()
    });
    let (applied, output): (Vec<String>, _) = output.await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(applied, ["other"], "{said}");
    for (file, other) in [("a.yaml", "b.yaml"), ("b.yaml", "a.yaml")] {
        let named = |line: &str| {
            line.starts_with(&format!("tools: {file} is not applied: ")) && line.contains(other)
        };
        assert!(said.lines().any(named), "{said}");
    }
}

fn manifest(file: &Path, name: &str, program: &str) {
    let text = format!(
        "name: {name}\nversion: 1\ndescription: d\neffect: read\n\
         input_schema: {{type: object}}\nexecutor: {{process: {{command: [{program}]}}}}\n"
    );
    fs::write(file, text).unwrap();
}

/// A server on this port that answers 200 to everything, until the test ends.
fn ready_stranger(port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            // A probe is one read; what it says does not matter to a stranger, nor whether it reads the answer.
            let mut request = [0; 1024];
            if connection.read(&mut request).is_ok() {
                let answer =
                    b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nready\n";
                connection.write_all(answer).unwrap_or_default();
            }
        }
    });
}
