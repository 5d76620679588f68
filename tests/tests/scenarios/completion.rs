//! Tools that answer later, with the token of their attempt.

mod bad_input;
mod ends;
mod services;

use fleet::ids::CallId;
use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const OUTPUT: &str = "toolfleet.v1.default.output";
const TOKEN: &str = "toolfleet-completion-token";

/// A tool of the witness that may answer later, with these further fields in its manifest.
fn later_tool(witness: &Witness, name: &str, effect: &str, wait: &str, more: &str) -> String {
    let tool = witness.tool(name, effect);
    format!("{tool}completion: {{statuses: [202], wait: {wait}}}\n{more}")
}

fn submission(fleet: &Fleet, tool: &str, what: &str) -> Submission {
    fleet.submit(tool, &json!({"what": what})).key(what)
}

/// What a remote was given.
#[derive(Debug, Clone)]
struct TakenCall {
    call: CallId,
    token: String,
}

impl TakenCall {
    /// The nth request for this at the witness.
    fn of(witness: &Witness, what: &str, nth: usize) -> Self {
        witness.look(|seen| {
            let mut asked = seen.requests.iter().filter(|request| request.what == what);
            let request = asked.nth(nth).expect("it was asked so often");
            Self {
                call: request.header("toolfleet-call-id").parse().unwrap(),
                token: request.header(TOKEN).to_owned(),
            }
        })
    }

    async fn answers(&self, fleet: &Fleet, more: &Value) -> Answer {
        let mut body = json!({"call_id": self.call, "token": self.token});
        for (field, value) in more.as_object().unwrap() {
            body[field] = value.clone();
        }
        fleet.ask(OUTPUT, &body).await
    }
}

/// A call whose remote has taken it and answers later.
async fn taken(fleet: &Fleet, witness: &Witness, tool: &str, what: &str) -> TakenCall {
    witness.always(what, Reply::Later);
    let call = submission(fleet, tool, what).asynchronous().await.call_id();
    fleet.until_state(call, "awaiting_client").await;
    let taken = TakenCall::of(witness, what, 0);
    assert_eq!(taken.call, call);
    taken
}

fn words<const N: usize>(told: &Answer, fields: [&str; N]) -> [Value; N] {
    fields.map(|field| told[field].clone())
}

#[tokio::test]
async fn a_tool_answers_later_and_whoever_waits_is_told() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([later_tool(
        &witness, "charge", "once", "1m", "",
    )]))
    .await;
    witness.always("a", Reply::Later);
    let waiting = submission(&fleet, "charge", "a").wait();
    let parked = || counter("toolfleet_parked_total{for=\"completion\",tool=\"charge\"}");
    let before = parked();
    let answering = async {
        witness.until_asked("a", 1).await;
        let taken = TakenCall::of(&witness, "a", 0);
        let row = fleet.until_state(taken.call, "awaiting_client").await;
        assert_eq!(row["awaiting"], "completion");
        // Nobody runs it, and its caller is told for whom it waits, without the token of the tool.
        let standing = fleet.get(&json!({"call_id": taken.call})).await;
        assert_eq!(standing["awaiting"]["for"], "completion", "{}", *standing);
        assert_eq!(standing["awaiting"]["token"], Value::Null);
        let attempt = fleet.attempts(taken.call).await.remove(0);
        assert!(attempt["worker"].is_string() && attempt["outcome"].is_null());
        taken
            .answers(&fleet, &json!({"result": {"paid": 1.50}}))
            .await
    };
    let (told, answered) = tokio::join!(waiting, answering);
    assert_eq!(
        words(&told, ["state", "source", "effect", "result", "attempts"]),
        [
            json!("succeeded"),
            json!("live"),
            json!("applied"),
            json!({"paid": 1.50}),
            json!(1)
        ]
    );
    assert_eq!(answered.bytes, told.bytes);
    assert!(parked() > before);
    let taken = TakenCall::of(&witness, "a", 0);
    // The same again is the same, and another answer comes too late.
    let again = taken
        .answers(&fleet, &json!({"result": {"paid": 1.50}}))
        .await;
    assert_eq!(again.bytes, told.bytes);
    let other = taken.answers(&fleet, &json!({"result": {"paid": 2}})).await;
    assert_eq!(other.code(), "conflict");
    let moves: Vec<[Value; 4]> = fleet
        .events(taken.call)
        .await
        .iter()
        .map(|event| {
            ["from_state", "to_state", "reason", "actor"].map(|field| event[field].clone())
        })
        .collect();
    let [_, claimed, parked, ended] = moves.as_slice() else {
        panic!("{moves:?}")
    };
    assert_eq!(claimed[1], "running");
    assert_eq!(
        parked[..3],
        [
            json!("running"),
            json!("awaiting_client"),
            json!("answers_later")
        ]
    );
    assert_eq!(
        *ended,
        [
            json!("awaiting_client"),
            json!("succeeded"),
            json!("applied"),
            json!("tool")
        ]
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_answer_that_overtakes_the_word_later_counts() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([later_tool(
        &witness, "charge", "once", "1m", "",
    )]))
    .await;
    witness.always("a", Reply::LaterWhenReleased);
    let call = submission(&fleet, "charge", "a")
        .asynchronous()
        .await
        .call_id();
    witness.until_asked("a", 1).await;
    let taken = TakenCall::of(&witness, "a", 0);
    let told = taken.answers(&fleet, &json!({"result": 1})).await;
    assert_eq!(
        words(&told, ["state", "result"]),
        [json!("succeeded"), json!(1)]
    );
    witness.release("a");
    // The attempt has nothing to add.
    until_so("the slot of the attempt to be free", async || {
        witness.look(|seen| seen.running == 0)
    })
    .await;
    assert_eq!(fleet.attempts(call).await.len(), 1);
    assert_eq!(fleet.call(call).await["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
    assert_eq!(
        fleet.attempts(call).await.len(),
        1,
        "no late evidence of its own"
    );
}

/// Nothing of it is in a process: everything that knew it dies, and others take the answer.
#[tokio::test]
async fn an_answer_comes_after_everybody_who_knew_the_call_is_gone() {
    let witness = Witness::start().await;
    let tools = [later_tool(&witness, "charge", "once", "1m", "")];
    let mut fleet = Fleet::start(Spec::with(tools).dispatchers(0).workers(0, &[])).await;
    let mut dispatcher = fleet.real_dispatcher("first", &[], None);
    dispatcher.ready().await;
    let mut worker = fleet.real_worker("first", &[], None);
    worker.ready().await;
    let taken = taken(&fleet, &witness, "charge", "a").await;
    dispatcher.kill().await;
    worker.kill().await;
    fleet.add_dispatcher().await;
    fleet.add_worker(&[]).await;
    let told = taken
        .answers(&fleet, &json!({"result": {"paid": true}}))
        .await;
    assert_eq!(
        words(&told, ["state", "effect"]),
        [json!("succeeded"), json!("applied")]
    );
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_limited_tool_keeps_its_place_until_it_has_answered() {
    let witness = Witness::start().await;
    let tool = later_tool(&witness, "charge", "once", "1m", "concurrency: 1\n");
    let fleet = Fleet::start(Spec::with([tool])).await;
    let first = taken(&fleet, &witness, "charge", "a").await;
    let second = submission(&fleet, "charge", "b")
        .asynchronous()
        .await
        .call_id();
    until_so(
        "the second call to be held in its tool's line",
        async || {
            let row = fleet.call(second).await;
            row["held"] == true && row["line"] == "tool/charge"
        },
    )
    .await;
    assert_eq!(witness.asked("b"), 0);
    let told = first.answers(&fleet, &json!({"result": 1})).await;
    assert_eq!(told["state"], "succeeded");
    fleet.until_state(second, "succeeded").await;
    invariants::hold(&fleet, &witness).await;
}
