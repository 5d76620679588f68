//! A worker ends when it has let a call wait, and a dispatcher when it has told a tool what that asked for.

use fleet::{checkpoint::Checkpoint, ids::Label};
use fleet_client::calls::{ClientOutput, HandedIn};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    real::Armed,
    wait::until_within,
    witness::{Reply, Witness},
};
use serde_json::{json, value::RawValue};
use worker::Worker;

use super::{INSISTS_FOR, call, insist};
use crate::asking::Book;

/// Nothing of the call is in the worker any more: a dispatcher takes the tool's answer.
pub(super) async fn a_worker_stops_at(point: Checkpoint) {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "completion: {statuses: [202], wait: 5m}\n";
    let fleet = Fleet::start(Spec::with([tool]).workers(0, &[])).await;
    let armed = Armed {
        at: point,
        times: 1,
    };
    let mut worker = fleet.real_worker("armed", &[], Some(armed));
    worker.ready().await;
    witness.always("a", Reply::Later);
    let submission = call(&fleet, "charge", "a");
    let (answer, ()) = tokio::join!(insist(&submission), async {
        worker.until_stopped_at(point).await;
        fleet.report_death(&mut worker).await;
        let (id, token) = witness.look(|seen| {
            let request = &seen.requests[0];
            let header = |name| request.header(name).to_owned();
            (
                header("toolfleet-call-id"),
                header("toolfleet-completion-token"),
            )
        });
        let answer = json!({"call_id": id, "token": token, "result": {"paid": 1}});
        let told = fleet.ask("toolfleet.v1.default.output", &answer).await;
        assert_eq!(told["state"], "succeeded", "{}, {point}", *told);
    });
    assert_eq!(answer["result"], json!({"paid": 1}), "{point}");
    assert_eq!(witness.asked("a"), 1, "{point}");
    invariants::hold(&fleet, &witness).await;
}

/// Whoever told it sends it again and learns where the call stands; the tool is told once.
pub(super) async fn a_dispatcher_stops_at(point: Checkpoint) {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([]).dispatchers(0).workers(0, &[])).await;
    let armed = Armed {
        at: point,
        times: 1,
    };
    let mut dispatcher = fleet.real_dispatcher("armed", &[], Some(armed));
    dispatcher.ready().await;
    let builder = Worker::builder().tool(Book);
    fleet.add_worker_with(builder, &["--queues", "book"]).await;
    let submission = fleet
        .submit("book", &json!({"what": "a", "times": 1}))
        .key("a");
    let asked = until_within(INSISTS_FOR, "the tool asks", async || {
        let asked = insist(&submission).await;
        (asked["awaiting"]["for"] == "input").then_some(asked)
    })
    .await;
    let client = fleet.caller.clone();
    let tenant: Label = "default".parse().unwrap();
    let told = HandedIn {
        call_id: asked.call_id(),
        token: asked["awaiting"]["token"].as_str().unwrap(),
        answer: ClientOutput::Told {
            input: RawValue::from_string("{\"people\":4}".to_owned()).unwrap(),
        },
    };
    let ((), ()) = tokio::join!(
        until_within(INSISTS_FOR, "the tool is told", async || {
            let told = client.output(&tenant, &told).await.ok()?;
            let head = told.head().ok()?;
            // Over already: it was told, and went on.
            (!head.is_refused() || head.code() == "already_terminal").then_some(())
        }),
        async {
            dispatcher.until_stopped_at(point).await;
            fleet.add_dispatcher().await;
        }
    );
    let row = fleet.until_state(asked.call_id(), "succeeded").await;
    assert_eq!(row["result"]["told"], json!({"people": 4}), "{point}");
    assert_eq!(fleet.attempts(asked.call_id()).await.len(), 2, "{point}");
    invariants::hold(&fleet, &witness).await;
}
