use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use fleet::{
    arguments::Schema,
    manifest,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    registry::Tool,
    wire::{code::Code, message::Message},
};
use futures_util::future::{BoxFuture, pending};
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;
use tracing::Span;

use super::*;

/// Records which of its hooks ran.
struct Noted<'a> {
    name: &'static str,
    log: &'a Mutex<Vec<String>>,
    waits: bool,
}

impl Noted<'_> {
    fn note(&self, hook: &str) {
        self.log
            .lock()
            .unwrap()
            .push(format!("{hook} {}", self.name));
    }
}

impl Layer for Noted<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn meanwhile(&mut self) -> Option<BoxFuture<'_, Infallible>> {
        let beside = async {
            self.note("beside");
            pending().await
        };
        self.waits
            .then(|| -> BoxFuture<'_, Infallible> { Box::pin(beside) })
    }

    fn after(&mut self, execution: Execution) -> After<'_> {
        self.note("after");
        if self.waits {
            After::Later(Box::pin(async { execution }))
        } else {
            After::Now(execution)
        }
    }

    fn ended(&mut self, _execution: &Execution) {
        self.note("ended");
    }
}

fn ran(outcome: Outcome) -> Execution {
    Execution::Ran(outcome)
}

fn failure() -> ToolFailure {
    ToolFailure::new(Code::ToolError, Message::fixed("no", "不"))
}

#[tokio::test]
async fn what_goes_down_the_list_comes_up_again() {
    let log = Mutex::default();
    let noted = |name, waits| Noted {
        name,
        log: &log,
        waits,
    };
    let (mut outer, mut inner) = (noted("outer", true), noted("inner", false));
    let list: &mut [&mut dyn Layer] = &mut [&mut outer, &mut inner];
    beside(list, tokio::task::yield_now()).await;
    let execution = after(list, ran(Outcome::Unknown(failure()))).await;
    ended(list, &execution);
    let expected = [
        "beside outer",
        "after inner",
        "after outer",
        "ended inner",
        "ended outer",
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test]
async fn without_anything_beside_it_the_executor_is_awaited_alone() {
    let log = Mutex::default();
    let mut alone = Noted {
        name: "alone",
        log: &log,
        waits: false,
    };
    assert_eq!(beside(&mut [&mut alone], async { 7 }).await, 7);
    assert!(log.lock().unwrap().is_empty());
}

/// The interceptors around an attempt of a tool whose answers are numbers and whose argument `card` is sensitive.
fn around(earlier_unknown: bool) -> Around<'static> {
    let manifest = manifest::parse(
        r#"
name: charge
version: 1
description: Charges a card.
effect: idempotent
idempotency: { valid_for: 1h }
sensitive: { pointers: [/card] }
input_schema:
  type: object
  properties: { card: { type: string, description: The card. } }
executor: { native: { handler: charge } }
"#,
    );
    let output = Some(Schema::compile(&json!({"type": "number"})).unwrap());
    let manifest = manifest.unwrap();
    let redact = RedactedFailures::of(manifest.sensitive.as_ref(), &json!({"card": "4111-1111"}));
    let tool = Arc::new(Tool {
        schema: Schema::compile_input(&manifest.input_schema).unwrap(),
        manifest,
        output,
    });
    Around {
        observe: Observe {
            tool: Arc::clone(&tool),
            span: Span::none(),
            started: Instant::now(),
        },
        large_blocks: LargeBlocks(None),
        own: Own {
            round: None,
            tool: Arc::clone(&tool),
            hidden: RedactedFailures::default(),
        },
        output_schema: OutputSchema { tool },
        repetition: Repetition { earlier_unknown },
        news: News::default(),
        redact,
    }
}

#[test]
fn the_list_has_the_order_that_its_page_shows() {
    let mut around = around(false);
    let names = around.in_order().map(|layer| layer.name());
    let page = include_str!("../intercept.rs");
    let rows = page.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let shown: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(shown, names);
    assert_eq!(
        names,
        [
            "observe",
            "large_blocks",
            "output_schema",
            "own",
            "repetition",
            "news",
            "redact"
        ]
    );
}

fn no(status: u16) -> Execution {
    let said = Message::verbatim("the card 4111-1111 is in use");
    let failure = ToolFailure::new(Code::ToolError, said);
    ran(Outcome::DefiniteFailure(
        failure.with_details(json!({ "status": status })),
    ))
}

#[tokio::test]
async fn a_no_to_a_repetition_is_no_proof_and_spreads_no_secret() {
    for (earlier_unknown, status, expected) in [
        (false, 409, OutcomeWord::DefiniteFailure),
        (true, 409, OutcomeWord::Unknown),
        (true, 404, OutcomeWord::DefiniteFailure),
    ] {
        let told = around(earlier_unknown).after(no(status)).await;
        assert_eq!(told.word(), expected);
        let message = told.failure().unwrap().message.english().to_owned();
        assert_eq!(message, "the card [masked] is in use");
    }
}

#[tokio::test]
async fn what_is_not_the_tools_own_no_says_nothing_of_an_earlier_attempt() {
    let ended = |details: Value| {
        let what = Message::fixed("the database ended the statement", "数据库终止了语句");
        let failure = ToolFailure::new(Code::Timeout, what).with_details(details);
        ran(Outcome::DefiniteFailure(failure))
    };
    for (earlier_unknown, expected) in [
        (false, OutcomeWord::DefiniteFailure),
        (true, OutcomeWord::NotStarted),
    ] {
        let told = around(earlier_unknown)
            .after(ended(json!({"sqlstate": "57014"})))
            .await;
        assert_eq!(told.word(), expected);
    }
}

#[tokio::test]
async fn an_answer_is_held_against_the_output_schema_however_long_it_is() {
    let long = "x".repeat(100 * 1024);
    for (answer, fits) in [
        (json!(7), true),
        (json!("seven"), false),
        (Value::from(long), false),
    ] {
        let result = RawValue::from_string(answer.to_string()).unwrap();
        let answered = ran(Outcome::Applied { result, flaw: None });
        let told = around(false).after(answered).await;
        let Execution::Ran(Outcome::Applied { result, flaw }) = told else {
            panic!("the effect stands: {told:?}");
        };
        let code = flaw.map(|flaw| flaw.code);
        assert_eq!(code, (!fits).then_some(Code::OutputInvalid));
        // In an answer of another shape, the places of sensitive values are not known.
        assert_eq!(result.get(), if fits { "7" } else { "null" });
    }
}

#[tokio::test]
async fn what_has_committed_or_may_still_act_keeps_its_word() {
    let left = Execution::Abandoned(Outcome::DefiniteFailure(
        failure().with_details(json!({"status": 409})),
    ));
    let told = around(true).after(left).await;
    assert_eq!(told.word(), OutcomeWord::DefiniteFailure);
    assert!(!told.has_stopped());
}
