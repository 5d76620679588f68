//! The native executor alone: a handler, an attempt, and what is said of it.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use fleet::{
    call::Language,
    ids::{AttemptId, CallId},
    manifest::Manifest,
    outcome::{Outcome, OutcomeWord},
    secrets::Secrets,
    wire::{code::Code, trace::TraceContext},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use worker::{
    Effect, Tool, ToolContext, ToolError,
    executors::{
        AttemptContext, AttemptFiles, Executor, HandedFiles, LINGER_MAX, Progress, Promise,
        Returned, Stop, native::NativeExecutor,
    },
};

/// What a test wants the tool to do.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Act {
    Answer,
    Facts,
    Panic,
    PanicBeforeTheFirstWait,
    Large,
    Nul,
    Hang,
    TidyUp,
    Block,
    BlockAside,
    AnswerLate,
    GiveUp,
    Question,
}

#[derive(Deserialize, JsonSchema)]
struct Args {
    act: Act,
}

/// Does what it is asked to. Whatever it blocks on ends when the test drops the other end.
struct Obedient {
    release: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Tool for Obedient {
    type Args = Args;
    type Output = Value;
    const NAME: &'static str = "obedient";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Once;
    const DESCRIPTION: &'static str = "Does what a test asks it to.";

    fn call(
        &self,
        args: Args,
        context: ToolContext,
    ) -> impl Future<Output = Result<Value, ToolError>> + Send {
        assert!(!matches!(args.act, Act::PanicBeforeTheFirstWait), "at once");
        let release = Arc::clone(&self.release);
        let wait = move || release.lock().unwrap().recv().is_err();
        async move {
            match args.act {
                Act::Answer => Ok(json!({"n": 1})),
                Act::Facts => Ok(json!({
                    "call": context.call_id(), "attempt": context.attempt(), "key": context.idempotency_key(),
                    "tenant": context.tenant(), "session": context.session(), "run": context.run(),
                    "meta": context.meta::<Value>()?, "language": context.language(),
                    "left": !context.remaining().is_zero(), "trace": context.traceparent(),
                })),
                Act::Panic => panic!("a secret"),
                Act::PanicBeforeTheFirstWait => unreachable!("it has panicked"),
                Act::Large => Ok("x".repeat(100).into()),
                Act::Nul => Ok("a\0b".into()),
                Act::Hang => std::future::pending().await,
                Act::TidyUp => {
                    context.cancelled().await;
                    Err(ToolError::business("rolled back"))
                }
                Act::Block => Ok(wait().into()),
                Act::BlockAside => Ok(context.blocking(wait).await?.into()),
                Act::AnswerLate => {
                    context.cancelled().await;
                    Ok("done all the same".into())
                }
                Act::GiveUp => loop {
                    context.proceed().await?;
                },
                Act::Question => Ok("not a number".parse::<i32>()?.into()),
            }
        }
    }
}

/// An attempt of the tool, and its end.
struct Scene {
    executor: NativeExecutor,
    manifest: Manifest,
    /// Dropping it ends what blocks.
    release: Option<mpsc::Sender<()>>,
    limit: Duration,
    stop: Stop,
}

impl Scene {
    fn new() -> Self {
        let (release, blocked) = mpsc::channel();
        let mut executor = NativeExecutor::default();
        let release_it = Arc::new(Mutex::new(blocked));
        let mut manifest = executor
            .add(Obedient {
                release: release_it,
            })
            .unwrap();
        manifest.output_limit = 64;
        Self {
            executor,
            manifest,
            release: Some(release),
            limit: Duration::from_secs(20),
            stop: Stop::under(CancellationToken::new()),
        }
    }

    fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    async fn run(&self, act: &str) -> Outcome {
        self.returned(act).await.outcome
    }

    async fn returned(&self, act: &str) -> Returned {
        let arguments = json!({ "act": act });
        let secrets = Secrets::new(None);
        let prepared = self.executor.prepare(&self.manifest, &arguments, &secrets);
        let context = AttemptContext {
            call_id: CallId::generate(),
            attempt_id: AttemptId::generate(),
            attempt: 2,
            tool: self.manifest.name.clone(),
            tool_version: 1,
            idempotency_key: "the key".to_owned(),
            deadline_at: time::OffsetDateTime::UNIX_EPOCH,
            until: Instant::now() + self.limit,
            tenant: "acme".parse().unwrap(),
            session: Some("s".parse().unwrap()),
            run: None,
            meta: RawValue::from_string(r#"{"a":1}"#.to_owned()).ok(),
            language: Language::En,
            trace: TraceContext::default(),
            stop: self.stop.clone(),
            progress: Progress::default(),
            completion_token: None,
            asked: None,
            files: AttemptFiles::default(),
            handed: HandedFiles::default(),
            promise: Promise::default(),
        };
        prepared.unwrap().run(context).await
    }
}

fn said(outcome: &Outcome) -> (OutcomeWord, Option<Code>) {
    (
        outcome.word(),
        outcome.failure().map(|failure| failure.code),
    )
}

fn result(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Applied { result, .. } => serde_json::from_str(result.get()).unwrap(),
        other => panic!("{other:?}"),
    }
}

const TWO_THREADS: &str = "what blocks a thread must leave one for the rest";

#[tokio::test]
async fn an_answer_is_applied_and_bounded_and_can_be_stored() {
    let scene = Scene::new();
    assert_eq!(result(&scene.run("answer").await), json!({"n": 1}));
    assert_eq!(result(&scene.run("nul").await), json!("a\u{fffd}b"));
    let large = scene.run("large").await;
    let too_large = (OutcomeWord::Applied, Some(Code::OutputTooLarge));
    assert_eq!(said(&large), too_large, "it was done");
}

#[tokio::test]
async fn a_tool_is_told_what_it_runs_for() {
    let mut scene = Scene::new();
    scene.manifest.output_limit = 1_000;
    let mut facts = result(&scene.run("facts").await);
    let call = facts["call"].take();
    call.as_str().unwrap().parse::<CallId>().unwrap();
    let expected = json!({
        "call": null, "attempt": 2, "key": "the key", "tenant": "acme", "session": "s", "run": null, "meta": {"a": 1},
        "language": "en", "left": true, "trace": null,
    });
    assert_eq!(facts, expected);
}

#[tokio::test]
async fn a_panic_leaves_the_effect_unknown_and_nothing_behind() {
    let scene = Scene::new();
    for act in ["panic", "panic_before_the_first_wait"] {
        let returned = scene.returned(act).await;
        assert_eq!(
            said(&returned.outcome),
            (OutcomeWord::Unknown, Some(Code::ToolCrashed))
        );
        let told = format!("{returned:?}");
        assert!(!told.contains("secret"), "{told}");
        assert!(!returned.left_behind);
    }
}

#[tokio::test]
async fn any_other_error_proves_nothing() {
    let scene = Scene::new();
    let outcome = scene.run("question").await;
    assert_eq!(
        said(&outcome),
        (OutcomeWord::Unknown, Some(Code::Unavailable))
    );
}

#[tokio::test]
async fn what_does_not_end_in_time_is_dropped() {
    let scene = Scene::new().limit(Duration::from_millis(50));
    let began = Instant::now();
    let returned = scene.returned("hang").await;
    let late = (OutcomeWord::Unknown, Some(Code::Timeout));
    assert_eq!(said(&returned.outcome), late);
    assert!(began.elapsed() < scene.limit + LINGER_MAX);
    assert!(!returned.left_behind, "it is gone");
}

#[tokio::test]
async fn what_a_tool_says_when_it_is_told_to_end_holds() {
    let scene = Scene::new().limit(Duration::from_millis(50));
    let began = Instant::now();
    let no = scene.run("tidy_up").await;
    let business = (OutcomeWord::DefiniteFailure, Some(Code::ToolError));
    assert_eq!(said(&no), business);
    let late = scene.run("answer_late").await;
    assert_eq!(result(&late), json!("done all the same"));
    let gave_up = scene.run("give_up").await;
    assert_eq!(said(&gave_up), (OutcomeWord::Unknown, Some(Code::Timeout)));
    assert!(began.elapsed() < LINGER_MAX, "all three heard it");
}

#[tokio::test]
async fn a_tool_hears_that_its_call_was_taken_back() {
    let scene = Scene::new();
    scene.stop.cancel();
    let outcome = scene.run("give_up").await;
    assert_eq!(
        said(&outcome),
        (OutcomeWord::Unknown, Some(Code::Cancelled))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_holds_its_thread_may_live_on_and_that_is_said() {
    for act in ["block", "block_aside"] {
        let mut scene = Scene::new().limit(Duration::from_millis(50));
        let began = Instant::now();
        let returned = scene.returned(act).await;
        let late = (OutcomeWord::Unknown, Some(Code::Timeout));
        assert_eq!(said(&returned.outcome), late);
        assert!(returned.left_behind, "{act}");
        assert!(began.elapsed() < scene.limit + LINGER_MAX, "{TWO_THREADS}");
        scene.release.take();
    }
}

#[tokio::test]
async fn what_blocks_aside_and_ends_in_time_is_over() {
    let mut scene = Scene::new();
    scene.release.take();
    let returned = scene.returned("block_aside").await;
    assert_eq!(result(&returned.outcome), json!(true));
    assert!(!returned.left_behind);
}

#[tokio::test]
async fn a_worker_without_the_handler_leaves_the_call_to_another() {
    let scene = Scene::new();
    let (arguments, secrets) = (json!({"act": "answer"}), Secrets::new(None));
    let prepared = NativeExecutor::default().prepare(&scene.manifest, &arguments, &secrets);
    assert_eq!(prepared.err().unwrap().code, Code::Unavailable);
}

#[tokio::test]
async fn arguments_that_the_type_does_not_take_start_nothing() {
    let scene = Scene::new();
    let outcome = scene.run("a secret").await;
    let refused = (OutcomeWord::DefiniteFailure, Some(Code::ToolGone));
    assert_eq!(said(&outcome), refused);
    assert!(!format!("{outcome:?}").contains("secret"));
}
