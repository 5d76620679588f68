//! `fleet-client`: any number of requests over one inbox, and what each of them is told when no answer comes.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use fleet::{
    call::State,
    ids::{CallId, Label},
    wire::{
        cancel::{CancelAnswer, CancelResult},
        envelope::{Accepted, Envelope},
        event::Happening,
        headers::Prefer,
    },
};
use fleet_client::{
    Answer, AskError, FleetClient, Options, Question,
    calls::{Cancelling, Submission},
    rounds::{BatchCall, Told},
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{LONG, until_so},
    witness::{Reply, Witness},
};
use futures_util::{StreamExt, future::join_all};
use serde_json::json;
use tokio::time::{Instant, timeout};

const AT_A_TIME: usize = 200;

fn tenant() -> Label {
    "default".parse().unwrap()
}

fn submission(tool: &str, what: &str, options: Options) -> Submission {
    Submission {
        tenant: tenant(),
        tool: tool.parse().unwrap(),
        args: json!({ "what": what }).to_string().into(),
        options,
    }
}

async fn call_id(client: &FleetClient, submission: Submission) -> CallId {
    let accepted: Answer = client.submit(submission).await.unwrap();
    accepted.read::<Accepted>().unwrap().call_id
}

#[tokio::test]
async fn each_of_many_requests_gets_its_own_answer_and_those_without_one_leave_nothing() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let client = &fleet.caller;
    // Hears everything and says nothing.
    let mut silent = fleet.client.subscribe("silent.*").await.unwrap();
    fleet.client.flush().await.unwrap();
    let ask = |subject: String, patience| Question {
        patience,
        ..Question::new(subject, "{}")
    };
    let given_up = (0..AT_A_TIME).map(async |n| {
        let asking = client.ask(ask(format!("silent.dropped-{n}"), LONG));
        // Dropped while it waits.
        timeout(Duration::from_millis(300), asking).await.is_err()
    });
    let in_vain = (0..AT_A_TIME).map(async |n| {
        let short = Duration::from_millis(300);
        let asked = client.ask(ask(format!("silent.{n}"), short)).await;
        matches!(asked, Err(AskError::NoAnswer { waited }) if waited == short)
    });
    let answered = (0..AT_A_TIME).map(async |n| {
        let tool = format!("no_such_tool_{n}");
        let answer = client
            .submit(submission(&tool, "x", Options::default()))
            .await;
        let refused: Envelope = answer.unwrap().read().unwrap();
        refused.tool == tool && refused.is_error
    });
    let (given_up, in_vain, answered) =
        tokio::join!(join_all(given_up), join_all(in_vain), join_all(answered));
    for (what, right) in [
        ("given up", given_up),
        ("in vain", in_vain),
        ("answered", answered),
    ] {
        assert_eq!(
            right.iter().filter(|right| **right).count(),
            AT_A_TIME,
            "{what}"
        );
    }
    assert_eq!(client.waiting(), 0, "a request that is over has no entry");
    // All of them named one inbox, with a token of their own.
    let mut tokens = BTreeSet::new();
    let mut inboxes = BTreeSet::new();
    for _ in 0..2 * AT_A_TIME {
        let heard = timeout(LONG, silent.next()).await.unwrap().unwrap();
        let reply = heard.reply.unwrap().to_string();
        let (inbox, token) = reply.rsplit_once('.').unwrap();
        inboxes.insert(inbox.to_owned());
        tokens.insert(token.to_owned());
    }
    assert_eq!((inboxes.len(), tokens.len()), (1, 2 * AT_A_TIME));

    let alone = client.ask(ask("nobody.listens".to_owned(), LONG)).await;
    assert!(
        matches!(&alone, Err(AskError::NoResponders { subject }) if subject == "nobody.listens"),
        "{alone:?}"
    );
    let huge = Question {
        body: Bytes::from(vec![b' '; client.connection().max_payload() + 1]),
        ..ask("silent.huge".to_owned(), LONG)
    };
    let huge = client.ask(huge).await.unwrap_err();
    assert!(
        matches!(huge, AskError::Unsent(_)) && !huge.may_be_taken(),
        "{huge:?}"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_is_submitted_followed_taken_back_and_waited_for() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let client = &fleet.caller;
    let session: Label = "s".parse().unwrap();
    let mut events = client.follow(&tenant(), &session).await.unwrap();
    let options = || Options {
        prefer: Some(Prefer::RespondAsync),
        session: Some(session.clone()),
        ..Options::default()
    };
    let until = Instant::now() + LONG;

    let good = call_id(client, submission("look", "a", options())).await;
    let head = client.wait(&tenant(), good, until).await.unwrap().unwrap();
    assert_eq!(
        (head.call_id, head.state.as_str()),
        (Some(good), "succeeded")
    );
    let mut kinds = Vec::new();
    while kinds.last() != Some(&"finished") {
        let event = timeout(LONG, events.next()).await.unwrap().unwrap();
        assert_eq!(event.call_id, good);
        kinds.push(match event.what {
            Happening::Accepted { .. } => "accepted",
            Happening::Awaiting { .. } => "awaiting",
            Happening::Started { .. } => "started",
            Happening::Progress { .. } => "progress",
            Happening::Output { .. } => "output",
            Happening::Running { .. } => "running",
            Happening::Retrying { .. } => "retrying",
            Happening::Finished { state, .. } => {
                assert_eq!(state, State::Succeeded);
                "finished"
            }
        });
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["accepted", "finished", "started"]);

    witness.always("held", Reply::Hang);
    let held = call_id(client, submission("look", "held", options())).await;
    let soon = Instant::now() + Duration::from_millis(200);
    assert_eq!(client.wait(&tenant(), held, soon).await.unwrap(), None);
    witness.until_asked("held", 1).await;
    let answer = client
        .cancel(
            &tenant(),
            &Cancelling {
                call_id: held,
                reason: Some("a test"),
                actor: None,
            },
        )
        .await
        .unwrap();
    let answer: CancelAnswer = answer.read().unwrap();
    assert_eq!(
        (answer.call_id, answer.result),
        (held, CancelResult::CancelRequested)
    );
    let head = client.wait(&tenant(), held, until).await.unwrap().unwrap();
    assert_eq!(head.state, "cancelled");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_batch_without_a_dispatcher_goes_on_with_the_calls_that_have_keys() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("look", "read")]).dispatchers(0)).await;
    let client = fleet.caller.clone();
    let call = |what: &str, key: Option<&str>| {
        let mut call = json!({"tool": "look", "args": {"what": what}});
        if let Some(key) = key {
            call["idempotency_key"] = key.into();
        }
        BatchCall {
            text: call.to_string(),
            has_key: key.is_some(),
        }
    };
    let calls = vec![
        call("a", Some("k-a")),
        call("b", None),
        call("c", Some("k-c")),
    ];
    let (tenant, headers) = (tenant(), async_nats::HeaderMap::new());
    let mut rounds = client.rounds(&tenant, &headers, calls);
    let first = rounds.next().await.unwrap().unwrap();
    assert_eq!(
        first,
        [Told {
            place: 1,
            answer: None
        }],
        "of one without a key it is not known whether it was taken"
    );
    fleet.add_dispatcher().await;
    let mut places = Vec::new();
    while let Some(told) = rounds.next().await.unwrap() {
        for Told { place, answer } in told {
            assert!(answer.unwrap().contains("\"call_id\":\""));
            places.push(place);
        }
    }
    assert_eq!(places, [0, 2]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_connection_that_is_closed_lets_every_request_go() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let connection = async_nats::connect(fleet.nats_url()).await.unwrap();
    let silent = fleet.client.subscribe("silent").await.unwrap();
    // The server has heard of it once it has answered a later request of the same connection; a flush waits for the socket only.
    let heard = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(heard["state"], "succeeded");
    let subjects = fleet.caller.subjects().clone();
    let client = FleetClient::over(&connection, subjects).await.unwrap();
    let question = || Question {
        patience: LONG,
        ..Question::new("silent".to_owned(), "{}")
    };
    let (asked, closed) = tokio::join!(client.ask(question()), async {
        until_so("the request to wait", async || client.waiting() == 1).await;
        connection.drain().await
    });
    closed.unwrap();
    assert!(matches!(asked, Err(AskError::Closed)), "{asked:?}");
    let asked = client.ask(question()).await;
    assert!(matches!(asked, Err(AskError::Closed)), "{asked:?}");
    drop(silent);
    invariants::hold(&fleet, &witness).await;
}
