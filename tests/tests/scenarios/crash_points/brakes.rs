//! A worker ends at a place that has to do with a breaker or with a rate.
//!
//! It runs alone, and another one comes when it has ended: what it took along with it, a permit, a start time or counts, must
//! keep no call from running, and must not be used twice.

use fleet::{checkpoint::Checkpoint, ids::CallId};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    real::Armed,
    wait::until_so,
    witness::{Reply, Witness},
};

use super::{call, insist, states, until_all_are_decided};

/// The start of a rate is this far from the one before, in milliseconds.
const STEP_MS: i64 = 400;

/// A tool whose target fails at first, and one that may start only so often.
pub(super) async fn a_worker_stops_at(point: Checkpoint) {
    let witness = Witness::start().await;
    let retry =
        "retry: {strategy: jittered, base: 100ms, cap: 200ms, max_attempts: 15}\ntimeout: 1s\n";
    let tools = [
        witness.tool("guarded", "read")
            + retry
            + "breaker: {calls: 3, open: 300ms, open_max: 600ms}\nwhen_open: wait\n",
        witness.tool("paced", "once") + "rate_limit: {calls: 5, per: 2s}\n",
    ];
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    let armed = Armed {
        at: point,
        times: 1,
    };
    let mut worker = fleet.real_worker("armed", &[], Some(armed));
    worker.ready().await;
    let sick = ["sick 1", "sick 2", "sick 3"];
    for what in sick {
        witness.first(what, vec![Reply::Status(503); 5]);
    }
    let brisk = ["brisk 1", "brisk 2", "brisk 3", "brisk 4"];
    let mut accepted: Vec<CallId> = Vec::new();
    if point == Checkpoint::Paced {
        // Over, so that nothing of it is under way when the process ends.
        let first = insist(&call(&fleet, "paced", "first")).await;
        assert_eq!(first["state"], "succeeded", "{}", *first);
        accepted.push(first.call_id());
    }
    let (tool, whats): (_, &[&str]) = match point {
        Checkpoint::Paced => ("paced", &brisk),
        _ => ("guarded", &sick),
    };
    for what in whats {
        let later = call(&fleet, tool, what).header("Prefer", "respond-async");
        accepted.push(insist(&later).await.call_id());
    }
    worker.until_stopped_at(point).await;
    fleet.report_death(&mut worker).await;
    fleet.add_worker(&[]).await;
    until_all_are_decided(&fleet).await;
    let mut under_way = 0;
    for what in whats {
        let (states, times) = (states(&fleet, what).await, witness.applied(what));
        if point == Checkpoint::Paced && states == ["in_doubt"] {
            // On a busy machine one may have had its start time at once, and run while the next one was sent back. That it had
            // one, a step after the first call's, is looked at below.
            assert!(times <= 1, "{what}, {point}");
            under_way += 1;
            continue;
        }
        assert_eq!(states, ["succeeded"], "{what}, {point}");
        match point {
            // An attempt may have been under way when the process ended.
            Checkpoint::Counted | Checkpoint::Reported => assert!(times >= 1, "{what}, {point}"),
            _ => assert_eq!(times, 1, "{what}, {point}"),
        }
    }
    assert!(under_way <= 1, "{under_way} were under way");
    match point {
        Checkpoint::Paced => starts_are_a_step_apart(&fleet, &accepted).await,
        _ => a_breaker_is_closed_in_the_end(&fleet, &witness).await,
    }
    invariants::hold(&fleet, &witness).await;
}

/// No two calls have started at one start time, and none before its own.
async fn starts_are_a_step_apart(fleet: &Fleet, calls: &[CallId]) {
    let mut starts = Vec::new();
    for call in calls {
        let sql = "SELECT (extract(epoch FROM started_at) * 1000)::bigint AS at FROM toolfleet.attempts WHERE call_id = $1";
        for row in fleet.rows(sql, *call).await {
            starts.push(row["at"].as_i64().unwrap());
        }
    }
    starts.sort_unstable();
    // The first is over before the others come, so the second one cannot be early by less than what another one is late.
    assert!(starts[1] - starts[0] >= STEP_MS / 2, "{starts:?}");
    // They are not early; each may be late by as much as its statement takes, and the next one is not later for that.
    let last = starts.len() - 1;
    let spread = i64::try_from(last).unwrap() * STEP_MS;
    assert!(
        starts[last] - starts[0] >= spread - STEP_MS / 2,
        "{starts:?}"
    );
}

/// The target is well: a call goes through, and the breaker closes whatever it was.
async fn a_breaker_is_closed_in_the_end(fleet: &Fleet, witness: &Witness) {
    let mut n = 0;
    until_so(
        "the breaker to be closed by calls that succeed",
        async || {
            n += 1;
            let what = format!("well {n}");
            let after = insist(&call(fleet, "guarded", &what)).await;
            assert_eq!(after["state"], "succeeded", "{}", *after);
            assert_eq!(witness.applied(&what), 1);
            let shut =
                "SELECT count(*) FROM toolfleet.breakers WHERE state <> 'closed' OR waiting > 0";
            fleet.count(shut).await == 0
        },
    )
    .await;
}
