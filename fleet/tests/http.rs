//! Goal: what a probe and a scraper see of a process, over real connections.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use fleet::{
    call::State,
    http::{self, CONNECTIONS_MAX, GRACE, HttpState, Readiness, SCRAPE_MAX},
    telemetry::{self, LedgerFigures, Telemetry, TelemetryOptions},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

/// Metrics of a process are set up once; tests in one process share them.
static TELEMETRY: LazyLock<Telemetry> =
    LazyLock::new(|| telemetry::start("test", &TelemetryOptions::default()).unwrap());

struct Server {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

async fn serve(state: HttpState) -> Server {
    LazyLock::force(&TELEMETRY);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "the server below owns and awaits it"
    )]
    let serving = tokio::spawn(http::serve(listener, state, stop.clone().cancelled_owned()));
    Server {
        address,
        stop,
        serving,
    }
}

impl Server {
    async fn ask(&self, request: &str) -> String {
        let asked = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        timeout(Duration::from_secs(20), asked)
            .await
            .expect("an answer in time")
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
        ))
        .await
    }
}

fn ready() -> HttpState {
    HttpState::new(Readiness::new([]))
}

#[tokio::test]
async fn health_says_that_the_process_runs() {
    let server = serve(HttpState::new(Readiness::new(["postgres"]))).await;
    let answer = server.get("/healthz").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn readiness_names_every_unmet_condition() {
    let readiness = Readiness::new(["postgres", "nats"]);
    let server = serve(HttpState::new(readiness.clone())).await;
    let answer = server.get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.ends_with("\r\n\r\nnats: not ready\npostgres: not ready\n"),
        "{answer}"
    );

    readiness.set("postgres", true);
    assert!(
        server
            .get("/readyz")
            .await
            .ends_with("\r\n\r\nnats: not ready\n")
    );

    readiness.set("nats", true);
    timeout(Duration::from_secs(5), readiness.ready())
        .await
        .unwrap();
    let answer = server.get("/readyz").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nready\n"),
        "{answer}"
    );

    readiness.set("postgres", false);
    assert!(server.get("/readyz").await.starts_with("HTTP/1.1 503 "));
}

#[tokio::test]
async fn readiness_names_the_process_only_when_it_was_given_a_name() {
    let named = uuid::Uuid::from_u128(7);
    let header = format!("\r\n{}: {named}\r\n", http::INSTANCE);
    let server = serve(ready().instance(Some(named))).await;
    assert!(server.get("/readyz").await.contains(&header));
    let unready = HttpState::new(Readiness::new(["postgres"]));
    let server = serve(unready.instance(Some(named))).await;
    assert!(server.get("/readyz").await.contains(&header));
    let server = serve(ready()).await;
    assert!(!server.get("/readyz").await.contains(http::INSTANCE));
}

#[tokio::test]
async fn a_scrape_shows_what_was_read_for_it() {
    let state = ready().before_scrape(Arc::new(|| {
        Box::pin(async {
            let backlog = vec![(State::Queued, 12)];
            telemetry::metrics().counted(LedgerFigures {
                backlog,
                ..LedgerFigures::default()
            });
        })
    }));
    let server = serve(state).await;
    telemetry::metrics().lost_lease();
    let answer = server.get("/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{answer}"
    );
    assert!(
        answer.contains("\ntoolfleet_lost_leases_total 1\n"),
        "{answer}"
    );
    assert!(
        answer.contains("\ntoolfleet_backlog{state=\"queued\"} 12\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_scrape_does_not_wait_for_a_hanging_ledger() {
    let server = serve(ready().before_scrape(Arc::new(|| Box::pin(std::future::pending())))).await;
    let asked_at = Instant::now();
    let answers = tokio::join!(server.get("/metrics"), server.get("/metrics"));
    assert!(asked_at.elapsed() < SCRAPE_MAX + Duration::from_secs(2));
    for answer in [answers.0, answers.1] {
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("target_info"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn nothing_else_is_served() {
    let server = serve(ready()).await;
    for path in ["/", "/metrics/", "/debug", "/readyz/../metrics"] {
        assert!(
            server.get(path).await.starts_with("HTTP/1.1 404 "),
            "{path}"
        );
    }
    let post = "POST /metrics HTTP/1.1\r\nHost: test\r\nContent-Length: 999999999\r\nConnection: close\r\n\r\n";
    assert!(server.ask(post).await.starts_with("HTTP/1.1 405 "));
}

#[tokio::test]
async fn connections_that_drip_cost_their_place_and_no_probe() {
    let server = serve(ready()).await;
    let mut dripping = Vec::new();
    // Twice: those of the second round took the places of the first.
    for _ in 0..2 * CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /healthz HT").await.unwrap();
        dripping.push(stream);
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert!(server.get(path).await.starts_with("HTTP/1.1 200 "));
    }
    // The last ones are as good as any: their rest is still read.
    let mut last = dripping.pop().unwrap();
    last.write_all(b"TP/1.1\r\nHost: test\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let mut first = dripping.swap_remove(0);
    let closed = timeout(Duration::from_secs(10), first.read(&mut [0; 1])).await;
    assert!(matches!(closed.unwrap(), Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_connection_has_one_request() {
    let server = serve(ready()).await;
    let keeps = "GET /healthz HTTP/1.1\r\nHost: test\r\nConnection: keep-alive\r\n\r\n";
    let answer = server.ask(&keeps.repeat(2)).await;
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1, "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn a_connection_has_its_time_however_it_drips() {
    let server = serve(ready().life_max(Duration::from_millis(300))).await;
    for said in ["", "GET /healthz HT"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        let dripping = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            loop {
                ticks.tick().await;
                if writing.write_all(b"x").await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let mut answer = [0; 1];
        let closed = async {
            tokio::select! {
                read = reading.read(&mut answer) => read,
                () = dripping => unreachable!("it drips until it is closed"),
            }
        };
        let closed = timeout(Duration::from_secs(10), closed).await;
        assert!(matches!(closed.expect("closed in time"), Ok(0) | Err(_)));
    }
}

#[tokio::test]
async fn a_client_that_says_nothing_does_not_hold_up_the_end() {
    let server = serve(ready()).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    silent.write_all(b"GET /healthz HT").await.unwrap();
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200 "));
    server.stop.cancel();
    let ended = timeout(GRACE + Duration::from_secs(2), server.serving).await;
    ended.expect("ends within the grace").unwrap().unwrap();
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "the port is free again"
    );
}
