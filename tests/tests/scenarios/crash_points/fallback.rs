//! Everything ends between a failure and the record of what stands in for it: the worker that found it, and the dispatcher whose
//! caller waits.

use fleet::checkpoint::Checkpoint;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    real::Armed,
    witness::{Reply, Witness},
};
use serde_json::json;

use super::{call, insist, until_all_are_decided};

/// A read runs again, so its call fails again, and the same stands in; once, for its key gets the same bytes for ever. At a shut
/// breaker nothing was claimed, and the message comes again.
pub(super) async fn a_worker_stops_at(point: Checkpoint) {
    for (name, layer, source) in [
        (
            "by_other",
            "{tool: {name: other, args: {what: other}}}",
            "other",
        ),
        (
            "by_stale",
            "{stale: {max_age: 1h}}\ncache: {ttl: 1ms}",
            "stale",
        ),
        ("by_stub", "{stub: {known: false}}", "stub"),
        ("shut", "{stub: {known: false}}\nbreaker: {}", "stub"),
    ] {
        let witness = Witness::start().await;
        let read = witness.tool(name, "read") + "retry: {strategy: none}\nfallback: " + layer;
        let tools = [witness.tool("other", "read"), read + "\n"];
        let spec = Spec::with(tools).dispatchers(0).workers(0, &[]);
        let mut fleet = Fleet::start(spec).await;
        let mut dispatcher = fleet.real_dispatcher("dispatcher", &[], None);
        dispatcher.ready().await;
        let is_shut = name == "shut";
        if is_shut {
            // Before the worker starts, so that it knows.
            fleet.sql(FORCE_OPEN).await;
        }
        let armed = Armed {
            at: point,
            times: 1,
        };
        let mut worker = fleet.real_worker("armed", &[], Some(armed));
        worker.ready().await;
        if source == "stale" {
            let live = insist(&call(&fleet, name, "x").key("before")).await;
            assert_eq!(live["source"], "live", "{}", *live);
        }
        witness.always("x", Reply::Status(503));
        let keyed = call(&fleet, name, "x");
        let (answer, ()) = tokio::join!(insist(&keyed), async {
            worker.until_stopped_at(point).await;
            dispatcher.end().await;
            fleet.report_death(&mut worker).await;
            fleet.add_dispatcher().await;
            fleet.add_worker(&[]).await;
        });
        until_all_are_decided(&fleet).await;
        let told = format!("{name}, {point}: {}", *answer);
        assert_eq!(
            (&answer["outcome"], &answer["source"], &answer["is_error"]),
            (&json!("fallback"), &json!(source), &json!(false)),
            "{told}"
        );
        assert_eq!(answer["attempts"], if is_shut { 0 } else { 2 }, "{told}");
        let again = insist(&keyed).await;
        assert_eq!(again.first_bytes(), answer.first_bytes(), "{told}");
        let kept = fleet.count("SELECT count(*) FROM toolfleet.calls WHERE outcome = 'fallback'");
        assert_eq!(kept.await, 1, "{told}");
        invariants::hold(&fleet, &witness).await;
    }
}

const FORCE_OPEN: &str =
    "SELECT * FROM toolfleet.set_control('breaker', '\"open\"', 'ada', 'why', tool => 'shut')";
