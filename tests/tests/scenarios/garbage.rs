//! Messages that are not what they seem. The row is the truth.

use bytes::Bytes;
use fleet::{
    ids::CallId,
    wire::{proof::DoneSecret, words},
};
use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::Witness,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Puts a message into the stream, in the place of a call's first pointer.
async fn forge(fleet: &Fleet, call: CallId, body: impl Into<Bytes>) {
    let subject = format!("toolfleet.jobs.default.{call}.1");
    fleet.client.publish(subject, body.into()).await.unwrap();
    fleet.client.flush().await.unwrap();
}

fn pointer(call: CallId, tool: &str, version: i32, args: Option<Value>) -> String {
    let hash = "00".repeat(32);
    json!({"call_id": call, "tool": tool, "tool_version": version, "args_hash": hash, "args": args})
        .to_string()
}

#[tokio::test]
async fn messages_that_point_nowhere_are_thrown_away() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let nobody = CallId::generate;
    forge(&fleet, nobody(), "not JSON").await;
    forge(&fleet, nobody(), "").await;
    forge(&fleet, nobody(), vec![b'x'; 100_000]).await;
    forge(
        &fleet,
        nobody(),
        json!({"call_id": "x", "tool": "charge"}).to_string(),
    )
    .await;
    for tool in ["charge", "unknown"] {
        let call = nobody();
        forge(
            &fleet,
            call,
            pointer(call, tool, 1, Some(json!({"what": "a"}))),
        )
        .await;
        let call = nobody();
        forge(&fleet, call, pointer(call, tool, 7, None)).await;
    }
    let answer = fleet
        .submit("charge", &json!({"what": "b"}))
        .key("k")
        .wait()
        .await;
    assert_eq!(answer["state"], "succeeded");
    // Holds only once all of it is gone.
    invariants::hold(&fleet, &witness).await;
    assert_eq!(witness.look(|seen| seen.requests.len()), 1);
}

/// Accepts a call and puts a forged pointer in the place of its own, before any worker can run it.
async fn with_forged(fleet: &Fleet, tool: &str, version: i32, args: Value) -> CallId {
    let call = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await
        .call_id();
    until_so("the pointer to be there", async || {
        fleet.pointers().await == Some(1)
    })
    .await;
    fleet.stream().await.unwrap().purge().await.unwrap();
    forge(fleet, call, pointer(call, tool, version, Some(args))).await;
    call
}

#[tokio::test]
async fn the_arguments_of_the_row_are_used_whatever_a_pointer_says() {
    let witness = Witness::start().await;
    let mut fleet =
        Fleet::start(Spec::with([witness.tool("charge", "once")]).workers(0, &[])).await;
    let call = with_forged(&fleet, "charge", 1, json!({"what": "forged"})).await;
    fleet.add_worker(&[]).await;
    fleet.until_state(call, "succeeded").await;
    assert_eq!((witness.asked("a"), witness.asked("forged")), (1, 0));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_tool_of_the_row_is_run_whatever_a_pointer_says() {
    for (tool, version) in [("refund", 1), ("charge", 2), ("charge", 7), ("unknown", 1)] {
        let (witness, other) = (Witness::start().await, Witness::start().await);
        let charge = witness.tool("charge", "once") + "retry: {strategy: none}\n";
        let second = other
            .tool("charge", "once")
            .replace("version: 1", "version: 2");
        let tools = [charge, other.tool("refund", "once")];
        let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
        let call = with_forged(&fleet, tool, version, json!({"what": "a"})).await;
        fleet.apply(&second).await;
        fleet.add_worker(&[]).await;
        let row = fleet.until_state(call, "succeeded").await;
        assert_eq!(row["tool_version"], 1, "{tool} {version}");
        assert_eq!(
            (witness.asked("a"), other.asked("a")),
            (1, 0),
            "{tool} {version}"
        );
        invariants::hold(&fleet, &witness).await;
    }
}

#[tokio::test]
async fn nonsense_about_decided_calls_reaches_no_caller() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    witness.always("a", fleet_tests::witness::Reply::DoneWhenReleased);
    let waiting = fleet.submit("look", &json!({"what": "a"})).wait();
    let (answer, ()) = tokio::join!(waiting, async {
        witness.until_asked("a", 1).await;
        let told = witness.look(|seen| seen.requests[0].header("toolfleet-call-id").to_owned());
        let sql = "SELECT dispatcher_id FROM toolfleet.open_calls WHERE call_id = $1";
        let row = fleet.rows(sql, told.parse().unwrap()).await;
        let dispatcher = row[0]["dispatcher_id"].as_str().unwrap();
        let other = CallId::generate().to_string();
        for (call, body) in [
            (told.as_str(), "not JSON".to_owned()),
            (&told, json!({"call_id": told}).to_string()),
            (
                &told,
                json!({"call_id": other, "state": "failed"}).to_string(),
            ),
            ("not-a-call", "{}".to_owned()),
            (&other, "{}".to_owned()),
        ] {
            let subject = format!("toolfleet.done.{dispatcher}.{call}");
            fleet.client.publish(subject, body.into()).await.unwrap();
        }
        fleet.client.flush().await.unwrap();
        witness.release("a");
    });
    assert_eq!(answer["result"], json!({"done": "a"}));
    invariants::hold(&fleet, &witness).await;
}

/// A call that a worker is running, and its dispatcher.
async fn running(fleet: &Fleet, witness: &Witness, what: &str) -> (String, String) {
    witness.until_asked(what, 1).await;
    let call = witness.look(|seen| {
        let asked = seen.requests.iter().find(|request| request.what == what);
        asked.unwrap().header("toolfleet-call-id").to_owned()
    });
    let sql = "SELECT dispatcher_id FROM toolfleet.open_calls WHERE call_id = $1";
    let row = fleet.rows(sql, call.parse().unwrap()).await;
    let dispatcher = row[0]["dispatcher_id"].as_str().unwrap().to_owned();
    (call, dispatcher)
}

/// The envelope that a worker sends when the call has succeeded.
fn done(call: &str, result: &Value) -> String {
    format!(
        r#"{{"call_id":"{call}","tool":"look","tool_version":1,"state":"succeeded","outcome":"success","is_error":false,"source":"live","effect":"none","result":{result},"error":null,"degraded":null,"coercions":[],"attempts":1,"replayed":false,"timing":{{"queued_ms":1,"run_ms":1}}}}"#
    )
}

const UNPROVEN: &str = "toolfleet_unproven_answers_total";

#[tokio::test]
async fn forged_words_of_a_decision_reach_no_caller() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")]).dispatchers(2)).await;
    witness.always("a", fleet_tests::witness::Reply::DoneWhenReleased);
    let submission = fleet.submit("look", &json!({"what": "a"})).key("k");
    let waiting = submission.clone().wait();
    let (answer, others) = tokio::join!(waiting, async {
        let (call, dispatcher) = running(&fleet, &witness, "a").await;
        // Callers that wait elsewhere, too: so many that each dispatcher holds some.
        let wish = json!({"call_id": call, "wait_ms": 60_000});
        let asking = futures_util::future::join_all((0..6).map(|_| fleet.get(&wish)));
        let forging = async {
            let waiting = "SELECT count(*) FROM toolfleet.open_calls";
            assert_eq!(fleet.count(waiting).await, 1);
            until_so("the callers to wait", async || {
                counter("toolfleet_waiters") >= 1.0
            })
            .await;
            let lie = done(&call, &json!({"done": "forged"}));
            let other = DoneSecret::generate().prove(lie.as_bytes());
            let together = words::join(&[lie.clone().into(), other.clone()]);
            for (last, body) in [
                (call.as_str(), lie.clone().into()),
                (&call, other.clone()),
                ("together", together),
            ] {
                let before = counter(UNPROVEN);
                for whom in [dispatcher.as_str(), "elsewhere"] {
                    let subject = format!("toolfleet.done.{whom}.{last}");
                    fleet.client.publish(subject, body.clone()).await.unwrap();
                }
                fleet.client.flush().await.unwrap();
                until_so("the forged word to be counted", async || {
                    counter(UNPROVEN) > before
                })
                .await;
            }
            let row = fleet.call(call.parse().unwrap()).await;
            assert_eq!(row["state"], "running");
            witness.release("a");
        };
        tokio::join!(asking, forging).0
    });
    for answer in std::iter::once(&answer).chain(&others) {
        assert_eq!(answer["result"], json!({"done": "a"}), "{}", **answer);
    }
    invariants::hold(&fleet, &witness).await;
}

/// A dispatcher of the release before made no secret, so the worker has no proof, and neither has a worker of that release.
#[tokio::test]
async fn calls_without_a_proof_are_answered_from_their_rows() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]);
    let mut fleet = Fleet::start(spec.workers(0, &[])).await;
    let mut waiting = JoinSet::new();
    waiting.spawn(fleet.submit("look", &json!({"what": "a"})).wait());
    until_so("the call to be there", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.open_calls WHERE done_secret IS NOT NULL")
            .await
            == 1
    })
    .await;
    let forget = "UPDATE toolfleet.open_calls SET done_secret = NULL";
    sqlx::query(forget)
        .execute(&fleet.database.pool)
        .await
        .unwrap();
    let mut words = fleet.client.subscribe("toolfleet.done.>").await.unwrap();
    fleet.add_worker(&[]).await;
    let answer = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(answer["result"], json!({"done": "a"}));
    let word = words.next().await.unwrap();
    assert!(word.payload.is_empty(), "it only rings the bell");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_word_about_a_call_whose_secret_is_not_known_is_no_lie() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    witness.always("a", fleet_tests::witness::Reply::DoneWhenReleased);
    let accepted = fleet
        .submit("look", &json!({"what": "a"}))
        .asynchronous()
        .await;
    let (call, dispatcher) = running(&fleet, &witness, "a").await;
    let forget = "UPDATE toolfleet.open_calls SET done_secret = NULL";
    sqlx::query(forget)
        .execute(&fleet.database.pool)
        .await
        .unwrap();
    let wish = json!({"call_id": accepted["call_id"], "wait_ms": 60_000});
    let before = counter(UNPROVEN);
    let (answer, ()) = tokio::join!(fleet.get(&wish), async {
        until_so("the caller to wait", async || {
            counter("toolfleet_waiters") >= 1.0
        })
        .await;
        let word = DoneSecret::generate().prove(done(&call, &json!({"done": "x"})).as_bytes());
        let subject = format!("toolfleet.done.{dispatcher}.{call}");
        fleet.client.publish(subject, word).await.unwrap();
        fleet.client.flush().await.unwrap();
        witness.release("a");
    });
    assert_eq!(answer["result"], json!({"done": "a"}), "{}", *answer);
    assert!((counter(UNPROVEN) - before).abs() < 0.5);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn no_view_and_no_history_has_a_secret() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let answer = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(answer["state"], "succeeded");
    let named = "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                 WHERE a.attname = 'done_secret' AND c.relnamespace = 'toolfleet'::regnamespace";
    assert_eq!(fleet.count(named).await, 1, "open_calls alone");
}

#[tokio::test]
async fn nobody_is_answered_on_a_subject_of_ours_or_of_the_server() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let call = Uuid::now_v7();
    let body = Bytes::from(json!({"what": "a"}).to_string());
    for reply in [
        format!("toolfleet.jobs.default.{call}.1"),
        "$JS.API.STREAM.DELETE.TOOLFLEET_JOBS".to_owned(),
    ] {
        let asked =
            fleet
                .client
                .publish_with_reply("toolfleet.v1.default.call.look", reply, body.clone());
        asked.await.unwrap();
    }
    // Who expects no answer is not heard either.
    let silent = fleet.client.publish("toolfleet.v1.default.call.look", body);
    silent.await.unwrap();
    // The dispatcher takes them in order: when this one is answered, the others were dropped.
    let answer = fleet.submit("look", &json!({"what": "b"})).wait().await;
    assert_eq!(answer["state"], "succeeded");
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls").await, 1);
    assert_eq!(witness.asked("a"), 0);
    invariants::hold(&fleet, &witness).await;
}
