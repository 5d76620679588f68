//! A worker ends between the ledger's word about a kept answer and what it does about it.

use fleet::checkpoint::Checkpoint;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    real::Armed,
    witness::Witness,
};
use futures_util::future::join_all;

use super::{call, insist, until_all_are_decided};

/// It was told to fetch the answer, or that there is one. Either way its calls are told the same again, and the tool is asked once.
pub(super) async fn a_worker_stops_at(point: Checkpoint) {
    for times in 1..=2 {
        let witness = Witness::start().await;
        let tools = [witness.tool("kept", "read") + "cache: {ttl: 5m}\n"];
        let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
        let armed = Armed { at: point, times };
        let mut worker = fleet.real_worker("armed", &["--concurrency", "1"], Some(armed));
        worker.ready().await;
        // One question under four keys.
        let calls = ["a", "b", "c", "d"].map(|key| call(&fleet, "kept", "x").key(key));
        if times == 2 {
            // Its answer is in the ledger: what was not recorded is lost with the worker, and a read runs again.
            insist(&calls[0]).await;
        }
        for call in &calls {
            insist(&call.clone().header("Prefer", "respond-async")).await;
        }
        worker.until_stopped_at(point).await;
        fleet.report_death(&mut worker).await;
        fleet.add_worker(&[]).await;
        until_all_are_decided(&fleet).await;
        let answers = join_all(calls.iter().map(insist)).await;
        let live = answers.iter().filter(|answer| answer["source"] == "live");
        assert_eq!(live.count(), 1, "{answers:?}, {point}");
        for answer in &answers {
            assert_eq!(answer["state"], "succeeded", "{}, {point}", **answer);
        }
        assert_eq!(witness.asked("x"), 1, "{point}");
        invariants::hold(&fleet, &witness).await;
    }
}
