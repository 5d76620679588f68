//! A server that stops to answer: what a process's log and its metrics say about it.

use fleet_tests::{
    fleet::{Fleet, Spec},
    postgres::Cluster,
    real::Real,
    wait::{LONG, until_so},
};
use tokio::{net::TcpListener, time::timeout};

/// Enough for several of each process.
const TRIES: usize = 30;

/// What was logged with each try, and would hide when the outage began and ended.
const WITH_EACH_TRY: [&str; 6] = [
    "ledger is not reachable",
    "heartbeat failed",
    "disconnected from NATS",
    "NATS client failed",
    "connected to NATS again",
    "client error: nats",
];

/// How many lines have these words.
fn lines(process: &Real, words: &str) -> usize {
    let log = process.log();
    log.lines().filter(|line| line.contains(words)).count()
}

async fn is_ready(process: &Real, server: &str) -> bool {
    let series = format!("toolfleet_ready{{server=\"{server}\"}}");
    process.counter(&series).await == 1
}

/// Waits until both say whether the server answers.
async fn until_seen(processes: &[Real], server: &str, answers: bool) {
    for process in processes {
        until_so("a process to see it", async || {
            is_ready(process, server).await == answers
        })
        .await;
    }
}

/// Waits until so many connections were tried on the port of a server that is down. Each is closed at once.
async fn tried(port: u16) {
    let there = TcpListener::bind(("127.0.0.1", port)).await;
    let there = there.expect("the server is down");
    for _ in 0..TRIES {
        let tried = timeout(LONG, there.accept()).await;
        drop(tried.expect("the processes try on").expect("a connection"));
    }
}

#[tokio::test]
async fn an_outage_is_logged_when_it_begins_and_when_it_ends_and_no_oftener() {
    let mut cluster = Cluster::alone(true).await;
    let spec = Spec::with([]).dispatchers(0).workers(0, &[]);
    let mut fleet = Fleet::start_on(cluster.database().await, spec).await;
    let mut processes = [
        fleet.real_dispatcher("dispatcher", &[], None),
        fleet.real_worker("worker", &[], None),
    ];
    for process in &mut processes {
        process.ready().await;
    }
    until_seen(&processes, "postgres", true).await;
    until_seen(&processes, "nats", true).await;

    cluster.stop().await;
    until_seen(&processes, "postgres", false).await;
    for process in &processes {
        assert!(is_ready(process, "nats").await);
    }
    tried(cluster.port()).await;
    cluster.start().await;
    until_seen(&processes, "postgres", true).await;

    fleet.stop_nats().await;
    until_seen(&processes, "nats", false).await;
    tried(fleet.nats_port()).await;
    fleet.start_nats().await;
    until_seen(&processes, "nats", true).await;

    for process in &processes {
        for (server, cause) in [
            ("Postgres", "cause=\"connect to Postgres: "),
            ("NATS", "cause="),
        ] {
            let (log, began) = (process.log(), format!("{server} does not answer"));
            let begins: Vec<_> = log.lines().filter(|line| line.contains(&began)).collect();
            assert_eq!(begins.len(), 1, "{log}");
            assert!(
                begins[0].contains("ERROR") && begins[0].contains(cause),
                "{log}"
            );
            let ended = format!("{server} answers again, after ");
            assert_eq!(lines(process, &ended), 1, "{log}");
        }
        for words in WITH_EACH_TRY {
            assert_eq!(lines(process, words), 0, "{words}\n{}", process.log());
        }
    }
}
