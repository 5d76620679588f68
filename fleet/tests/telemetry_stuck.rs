//! Goal: a collector that hangs costs spans, never a call, and does not hold up the end of a process for long.
//!
//! One test, because logs and spans of a process are set up once.

use std::{net::TcpListener, time::Instant};

use fleet::telemetry::{
    self, FLUSH_MAX, TelemetryOptions,
    spans::{self, Step},
};

#[test]
fn a_hanging_collector_holds_nothing_up() {
    // The kernel takes the connection; nothing reads from it.
    let collector = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = collector.local_addr().expect("it has an address");
    let options = TelemetryOptions {
        otlp_endpoint: Some(format!("http://{address}/")),
        ..TelemetryOptions::default()
    };
    let telemetry =
        telemetry::start("test", &options).expect("a hanging collector is no reason not to start");

    let began_at = Instant::now();
    for _ in 0..10_000 {
        spans::step(Step::Claim).in_scope(|| {});
    }
    assert!(
        began_at.elapsed() < FLUSH_MAX,
        "spans past the queue were waited for"
    );

    let ending_at = Instant::now();
    telemetry.shutdown();
    assert!(
        ending_at.elapsed() < FLUSH_MAX * 2,
        "the end took {:?}",
        ending_at.elapsed()
    );
}
