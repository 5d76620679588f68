//! A dispatcher ends while somebody decides about a call that waits for a yes.

use fleet::{checkpoint::Checkpoint, ids::Label, store::approvals::Ruling};
use fleet_client::{FleetClient, calls::Approving};
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    real::Armed,
    wait::until_within,
    witness::Witness,
};

use super::{INSISTS_FOR, call, insist};

/// Says yes until somebody says that the call is decided, by this yes or by one before whose answer never came.
async fn approve(client: &FleetClient, accepted: &Answer) {
    let tenant: Label = "default".parse().unwrap();
    let approving = Approving {
        call_id: accepted.call_id(),
        token: None,
        decision: Ruling::Approve,
        args_hash: accepted["awaiting"]["args_hash"].as_str().unwrap(),
        actor: "ann",
        note: "looked at it",
    };
    until_within(INSISTS_FOR, "a yes counts", async || {
        let told = client.approve(&tenant, &approving).await.ok()?;
        let head = told.head().ok()?;
        (!head.is_refused() || head.code() == "conflict").then_some(())
    })
    .await;
}

/// Whoever decides, or waits, goes on with another dispatcher, and one run follows one yes.
pub(super) async fn stops_at(point: Checkpoint) {
    let witness = Witness::start().await;
    let tool = format!("{}\napproval: {{}}\n", witness.tool("charge", "once"));
    let mut fleet = Fleet::start(Spec::with([tool]).dispatchers(0)).await;
    let armed = Armed {
        at: point,
        times: 1,
    };
    let mut dispatcher = fleet.real_dispatcher("armed", &[], Some(armed));
    dispatcher.ready().await;
    let (client, submission) = (fleet.caller.clone(), call(&fleet, "charge", "a"));
    let (accepted, ()) = tokio::join!(
        async {
            let accepted = insist(&submission).await;
            approve(&client, &accepted).await;
            accepted
        },
        async {
            dispatcher.until_stopped_at(point).await;
            fleet.add_dispatcher().await;
        }
    );
    fleet.until_state(accepted.call_id(), "succeeded").await;
    assert_eq!(witness.applied("a"), 1, "{point}");
    assert_eq!(fleet.calls().await.len(), 1, "{point}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_yes_counts_once_over_the_end_of_its_dispatcher() {
    for point in [
        Checkpoint::CommitSent,
        Checkpoint::Committed,
        Checkpoint::Answered,
        Checkpoint::Released,
    ] {
        stops_at(point).await;
    }
}
