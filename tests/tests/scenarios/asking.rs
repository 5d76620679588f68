//! Tools that ask their caller for something before they begin.

use std::time::Duration;

use fleet::{call::Effect, ids::CallId, input::InputWanted};
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use worker::{
    Worker,
    tool::{Settings, Tool, ToolContext, ToolError},
};

const OUTPUT: &str = "toolfleet.v1.default.output";
const CANCEL: &str = "toolfleet.v1.default.cancel";

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// What to book.
    what: String,
    /// How often to ask.
    times: u64,
}

/// Asks so often, and then says what it was told and what it kept.
pub(crate) struct Book;

impl Tool for Book {
    type Args = Args;
    type Output = Value;
    const NAME: &'static str = "book";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Once;
    const DESCRIPTION: &'static str = "Books a table, after it has asked for what is missing.";

    fn settings(&self) -> Settings {
        Settings::default()
    }

    async fn call(&self, args: Args, context: ToolContext) -> Result<Value, ToolError> {
        let kept = context
            .state::<Value>()?
            .unwrap_or_else(|| json!({"asked": 0}));
        let asked = kept["asked"].as_u64().unwrap_or(0);
        if asked < args.times {
            let requests = match args.what.as_str() {
                "no object" => json!([1]),
                "too large" => json!({"text": "x".repeat(InputWanted::REQUESTS_MAX)}),
                _ => json!({"question": "For how many?", "round": asked + 1}),
            };
            return Err(ToolError::needs(
                requests,
                Some(json!({"asked": asked + 1})),
            ));
        }
        let told = context.input::<Value>()?;
        Ok(json!({"told": told, "kept": kept, "attempt": context.attempt()}))
    }
}

async fn fleet() -> Fleet {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    add_booking(&mut fleet).await;
    until_so("the tool to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        tools.to_string().contains("\"book\"")
    })
    .await;
    fleet
}

async fn add_booking(fleet: &mut Fleet) {
    let builder = Worker::builder().tool(Book);
    fleet.add_worker_with(builder, &["--queues", "book"]).await;
}

/// The envelope of a call that asks.
async fn asks(fleet: &Fleet, what: &str, times: u64) -> Answer {
    let asked = fleet
        .submit("book", &json!({"what": what, "times": times}))
        .key(what)
        .wait()
        .await;
    assert_eq!(asked["state"], "awaiting_client", "{}", *asked);
    asked
}

async fn tell(fleet: &Fleet, asked: &Answer, more: &Value) -> Answer {
    let mut body = json!({"call_id": asked.call_id(), "token": asked["awaiting"]["token"]});
    for (field, value) in more.as_object().unwrap() {
        body[field] = value.clone();
    }
    fleet.ask(OUTPUT, &body).await
}

async fn decided(fleet: &Fleet, call: CallId) -> Answer {
    fleet
        .get(&json!({"call_id": call, "wait_ms": 60_000}))
        .await
}

#[tokio::test]
async fn who_waits_for_a_call_is_asked_and_the_tool_goes_on_with_the_answer() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    let asked = asks(&fleet, "a", 1).await;
    let awaiting = &asked["awaiting"];
    assert_eq!(awaiting["for"], "input");
    assert_eq!(
        awaiting["requests"],
        json!({"question": "For how many?", "round": 1})
    );
    // What the tool keeps is nobody's business.
    assert!(!asked.to_string().contains("asked"), "{}", *asked);
    let call = asked.call_id();
    let row = fleet
        .rows(
            "SELECT requests FROM toolfleet.waiting WHERE call_id = $1",
            call,
        )
        .await;
    assert_eq!(row[0]["requests"]["round"], 1);
    let told = tell(&fleet, &asked, &json!({"input": {"people": 4}})).await;
    assert!(told["outcome"].is_null(), "{}", *told);
    let done = decided(&fleet, call).await;
    assert_eq!(
        (&done["state"], &done["result"]),
        (
            &json!("succeeded"),
            &json!({"told": {"people": 4}, "kept": {"asked": 1}, "attempt": 2})
        )
    );
    let outcomes: Vec<Value> = fleet
        .attempts(call)
        .await
        .iter()
        .map(|a| a["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["not_started", "applied"]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_same_answer_again_is_the_same_and_another_one_too_late() {
    let witness = Witness::start().await;
    let mut fleet = fleet().await;
    let asked = asks(&fleet, "a", 2).await;
    let first = json!({"input": {"people": 4}});
    // Nobody goes on with the call, and asks anew, before the answer is there twice.
    fleet.workers[0].drain().await;
    for _ in 0..2 {
        let told = tell(&fleet, &asked, &first).await;
        assert_eq!(told.call_id(), asked.call_id(), "{}", *told);
    }
    add_booking(&mut fleet).await;
    let call = asked.call_id();
    let standing = async || fleet.get(&json!({"call_id": call})).await;
    until_so("the second question", async || {
        standing().await["awaiting"]["requests"]["round"] == 2
    })
    .await;
    // The token of the first question is not that of the second.
    let late = tell(&fleet, &asked, &json!({"input": {"people": 5}})).await;
    assert_eq!(late.code(), "conflict");
    let second = standing().await;
    assert_ne!(second["awaiting"]["token"], asked["awaiting"]["token"]);
    tell(&fleet, &second, &json!({"input": {"at": "8pm"}})).await;
    let done = decided(&fleet, call).await;
    assert_eq!(done["result"]["told"], json!({"at": "8pm"}));
    assert_eq!(
        tell(&fleet, &second, &json!({"input": {"at": "9pm"}}))
            .await
            .code(),
        "already_terminal"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_is_no_answer_is_refused_and_the_call_waits_on() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    let asked = asks(&fleet, "a", 1).await;
    for (wrong, code) in [
        (json!({"result": 1}), "invalid_arguments"),
        (json!({"error": {"message": "no"}}), "invalid_arguments"),
        (json!({"input": 4}), "invalid_arguments"),
        (
            json!({"input": {"text": "x".repeat(InputWanted::INPUT_MAX)}}),
            "invalid_arguments",
        ),
        (json!({"input": {"text": "\u{0}"}}), "nul_not_allowed"),
        (json!({"input": {}, "token": "x"}), "not_found"),
    ] {
        assert_eq!(tell(&fleet, &asked, &wrong).await.code(), code, "{wrong}");
    }
    assert_eq!(
        fleet.call(asked.call_id()).await["state"],
        "awaiting_client"
    );
    tell(&fleet, &asked, &json!({"input": {}})).await;
    assert_eq!(decided(&fleet, asked.call_id()).await["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_tool_may_ask_eight_times() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    for (what, times, state) in [("eight", 8, "succeeded"), ("nine", 9, "failed")] {
        let mut standing = asks(&fleet, what, times).await;
        for round in 1..=8 {
            let call = standing.call_id();
            until_so("the next question", async || {
                let row = fleet.get(&json!({"call_id": call})).await;
                row["awaiting"]["requests"]["round"] == round
            })
            .await;
            standing = fleet.get(&json!({"call_id": call})).await;
            tell(&fleet, &standing, &json!({"input": {"round": round}})).await;
        }
        let done = decided(&fleet, standing.call_id()).await;
        assert_eq!(done["state"], state, "{}", *done);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_question_that_cannot_be_put_fails_the_call_with_nothing_done() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    for what in ["no object", "too large"] {
        let failed = fleet
            .submit("book", &json!({"what": what, "times": 1}))
            .key(&what.replace(' ', "-"))
            .wait()
            .await;
        assert_eq!(
            (&failed["state"], &failed["effect"], failed.code()),
            (&json!("failed"), &json!("not_applied"), "tool_error"),
            "{}",
            *failed
        );
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_that_nobody_tells_anything_expires_and_one_that_is_cancelled_is_cancelled() {
    let witness = Witness::start().await;
    let fleet = fleet().await;
    let short = fleet
        .submit("book", &json!({"what": "short", "times": 1}))
        .key("short");
    let asked = short.deadline(Duration::from_secs(3)).wait().await;
    assert_eq!(asked["awaiting"]["for"], "input", "{}", *asked);
    let cancelled = asks(&fleet, "cancelled", 1).await;
    fleet
        .ask(CANCEL, &json!({"call_id": cancelled.call_id()}))
        .await;
    for (asked, state, code) in [
        (&asked, "expired", "deadline_exceeded"),
        (&cancelled, "cancelled", "cancelled"),
    ] {
        let row = fleet.until_state(asked.call_id(), state).await;
        assert_eq!(
            (&row["error"]["code"], &row["effect_known"]),
            (&json!(code), &json!("not_applied"))
        );
        let late = tell(&fleet, asked, &json!({"input": {}})).await;
        assert_eq!(late.code(), "already_terminal", "{}", *late);
    }
    invariants::hold(&fleet, &witness).await;
}
