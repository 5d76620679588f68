//! A dispatcher ends while a call is handed to its caller's program, while it takes that program's answer, and when it has ended the
//! wait for one.

use fleet::{checkpoint::Checkpoint, ids::Label};
use fleet_client::{
    FleetClient,
    calls::{ClientOutput, HandedIn},
};
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    real::Armed,
    wait::until_within,
    witness::Witness,
};
use serde_json::value::RawValue;

use super::{INSISTS_FOR, call, insist};

/// A tool that its caller runs.
fn client_tool(timeout: &str) -> String {
    format!(
        "name: shell\nversion: 1\ndescription: Runs a command on the caller's own machine.\neffect: once\ntimeout: {timeout}\n\
         input_schema: {{type: object, properties: {{what: {{type: string}}}}, required: [what]}}\n\
         executor: {{client: {{}}}}\n"
    )
}

/// Hands the answer in until somebody says that it has it.
async fn hand_in(client: &FleetClient, accepted: &Answer) -> String {
    let tenant: Label = "default".parse().unwrap();
    let handed_in = HandedIn {
        call_id: accepted.call_id(),
        token: accepted["awaiting"]["token"].as_str().unwrap(),
        answer: ClientOutput::Did {
            result: RawValue::from_string("{\"exit_code\":0}".to_owned()).unwrap(),
        },
    };
    until_within(INSISTS_FOR, "an answer is taken", async || {
        let told = client.output(&tenant, &handed_in).await.ok()?;
        let head = told.head().ok()?;
        (!head.is_refused()).then(|| head.state.clone())
    })
    .await
}

/// Whoever has the call, or asked for it, goes on with another dispatcher, and its answer counts once.
pub(super) async fn stops_at(point: Checkpoint) {
    let witness = Witness::start().await;
    let spec = Spec::with([client_tool("5m")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec.dispatchers(0)).await;
    let armed = Armed {
        at: point,
        times: 1,
    };
    let mut dispatcher = fleet.real_dispatcher("armed", &[], Some(armed));
    dispatcher.ready().await;
    let (client, submission) = (fleet.caller.clone(), call(&fleet, "shell", "a"));
    let (state, ()) = tokio::join!(
        async {
            let accepted = insist(&submission).await;
            hand_in(&client, &accepted).await
        },
        async {
            dispatcher.until_stopped_at(point).await;
            fleet.add_dispatcher().await;
        }
    );
    assert_eq!(state, "succeeded", "{point}");
    let answer = insist(&submission).await;
    assert_eq!(answer["source"], "client", "{}, {point}", *answer);
    assert_eq!(fleet.calls().await.len(), 1, "{point}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_is_handed_out_and_answered_over_the_end_of_its_dispatcher() {
    for point in [
        Checkpoint::CommitSent,
        Checkpoint::Committed,
        Checkpoint::Answered,
        Checkpoint::CompleteSent,
    ] {
        stops_at(point).await;
    }
}

#[tokio::test]
async fn a_wait_that_a_dead_sweep_has_ended_is_in_doubt_and_its_answer_settles_it() {
    let witness = Witness::start().await;
    let spec = Spec::with([client_tool("1s")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec.dispatchers(0)).await;
    let point = Checkpoint::SweepEnded;
    let armed = Armed {
        at: point,
        times: 1,
    };
    let mut dispatcher = fleet.real_dispatcher("armed", &[], Some(armed));
    dispatcher.ready().await;
    let accepted = insist(&call(&fleet, "shell", "a")).await;
    dispatcher.until_stopped_at(point).await;
    fleet.add_dispatcher().await;
    let call = accepted.call_id();
    fleet.until_state(call, "in_doubt").await;
    assert_eq!(hand_in(&fleet.caller, &accepted).await, "succeeded");
    invariants::hold(&fleet, &witness).await;
}
