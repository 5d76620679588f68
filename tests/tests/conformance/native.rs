//! Native tools: one handler that does what its argument says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use conformance::{Behaviour, Case, REFUSAL, REFUSAL_CODE, Rig, Watch};
use fleet::{call::Effect, secrets::Secrets};
use futures_util::future::BoxFuture;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeSeq};
use serde_json::{Map, Value, json, value::RawValue};
use tokio::{sync::oneshot, time::sleep};
use worker::{
    Tool, ToolContext, ToolError,
    executors::{Executor, native::NativeExecutor},
};

/// What the handler is to do.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
enum Act {
    AnswerWithArguments,
    AnswerWithFacts,
    SayNo,
    Panic,
    Hang,
    AnswerLate,
    AnswerWithoutEnd,
    AnswerWithGarbage,
    AnswerNothing,
    AnswerWithBrokenText,
    LeaveSomething,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Args {
    act: Act,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// What a handler can return that a value cannot hold.
enum Answer {
    Value(Value),
    Raw(Box<RawValue>),
    Endless,
    Garbage,
    Nothing,
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::Raw(value) => value.serialize(serializer),
            Self::Endless => {
                let mut items = serializer.serialize_seq(None)?;
                let item = "x".repeat(1_000);
                loop {
                    items.serialize_element(&item)?;
                }
            }
            // JSON has no such keys.
            Self::Garbage => BTreeMap::from([(vec![1], 1)]).serialize(serializer),
            Self::Nothing => ().serialize(serializer),
        }
    }
}

impl JsonSchema for Answer {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Answer".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}

/// What is seen of the tool that is tested now.
struct Seen {
    begun: AtomicUsize,
    working: AtomicUsize,
    /// Closed when whatever was left behind shall end.
    release: Mutex<mpsc::Receiver<()>>,
}

/// Counts as at work as long as it lives.
struct AtWork(Arc<Seen>);

impl AtWork {
    fn on(seen: &Arc<Seen>) -> Self {
        seen.working.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(seen))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One handler for each effect class.
struct Obedient<const ONCE: bool>(Arc<Mutex<Option<Arc<Seen>>>>);

impl<const ONCE: bool> Tool for Obedient<ONCE> {
    type Args = Args;
    type Output = Answer;
    const NAME: &'static str = if ONCE { "obey_once" } else { "obey_read" };
    const VERSION: i32 = 1;
    const EFFECT: Effect = if ONCE { Effect::Once } else { Effect::Read };
    const DESCRIPTION: &'static str = "Does what the suite asks it to.";

    async fn call(&self, args: Args, context: ToolContext) -> Result<Answer, ToolError> {
        let seen = self.0.lock().unwrap().clone().unwrap();
        seen.begun.fetch_add(1, Ordering::SeqCst);
        let _at_work = AtWork::on(&seen);
        Ok(match args.act {
            Act::AnswerWithArguments => Answer::Value(serde_json::to_value(args)?),
            Act::AnswerWithFacts => Answer::Value(facts(&context)),
            Act::SayNo => return Err(ToolError::business(REFUSAL).with_code(REFUSAL_CODE)),
            Act::Panic => panic!("the suite asked for it"),
            Act::Hang => std::future::pending().await,
            Act::AnswerLate => {
                sleep(Duration::from_secs(1)).await;
                Answer::Nothing
            }
            Act::AnswerWithoutEnd => Answer::Endless,
            Act::AnswerWithGarbage => Answer::Garbage,
            Act::AnswerNothing => Answer::Nothing,
            Act::AnswerWithBrokenText => {
                let text = r#"{"a": "x\u0000y", "b": ["\ud800z"]}"#;
                Answer::Raw(RawValue::from_string(text.to_owned())?)
            }
            Act::LeaveSomething => {
                let (begins, begun) = oneshot::channel();
                let left = context.blocking(move || {
                    let _at_work = AtWork::on(&seen);
                    begins.send(()).unwrap();
                    seen.release.lock().unwrap().recv().is_err()
                });
                tokio::select! {
                    _ = left => unreachable!("it goes on until the suite has seen it"),
                    begun = begun => begun?,
                }
                Answer::Nothing
            }
        })
    }
}

fn facts(context: &ToolContext) -> Value {
    json!({
        "call_id": context.call_id(), "attempt": context.attempt(), "tenant": context.tenant(),
        "session": context.session(), "traceparent": context.traceparent(),
        "deadline_ms": context.deadline().unix_timestamp_nanos() / 1_000_000,
        "idempotency_key": context.idempotency_key(),
    })
}

struct Native {
    executor: NativeExecutor,
    current: Arc<Mutex<Option<Arc<Seen>>>>,
}

impl Native {
    fn new() -> Self {
        let mut executor = NativeExecutor::default();
        let current = Arc::<Mutex<Option<Arc<Seen>>>>::default();
        executor
            .add(Obedient::<false>(Arc::clone(&current)))
            .unwrap();
        executor
            .add(Obedient::<true>(Arc::clone(&current)))
            .unwrap();
        Self { executor, current }
    }
}

impl Rig for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn executor(&self) -> &dyn Executor {
        &self.executor
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        Box::pin(async move {
            let act = match behaviour {
                Behaviour::CarriesValuesExactly
                | Behaviour::PutsTheKeyIntoAnArgument
                | Behaviour::PreparesQuietly
                | Behaviour::ProvesNotStarted => Act::AnswerWithArguments,
                Behaviour::TellsTheFacts | Behaviour::KeepsTheKey => Act::AnswerWithFacts,
                Behaviour::PassesOnRefusals => Act::SayNo,
                Behaviour::DoubtsCrashes => Act::Panic,
                Behaviour::KeepsTheDeadline | Behaviour::ObeysCancel | Behaviour::ObeysDrain => {
                    Act::Hang
                }
                Behaviour::WaitsForSlowAnswers => Act::AnswerLate,
                Behaviour::BoundsAnswers => Act::AnswerWithoutEnd,
                Behaviour::FlagsGarbage => Act::AnswerWithGarbage,
                Behaviour::TakesSilence => Act::AnswerNothing,
                Behaviour::MendsText => Act::AnswerWithBrokenText,
                Behaviour::LeavesNothing => Act::LeaveSomething,
                Behaviour::HidesTheWorker => {
                    return Case::NotApplicable("it is part of the worker's own program");
                }
                Behaviour::VeilsSecrets => {
                    return Case::NotApplicable("the fleet hands no secret to a handler");
                }
            };
            let handler = match (behaviour, effect) {
                (Behaviour::ProvesNotStarted, _) => "obey_nobody.v1",
                (_, Effect::Read) => "obey_read.v1",
                _write => "obey_once.v1",
            };
            let mut arguments = super::exact();
            arguments["act"] = json!(act);
            let executor = json!({"native": {"handler": handler}});
            Case::Tool(Box::new(conformance::Tool {
                manifest: super::manifest(effect, &executor, &super::fields(behaviour)),
                arguments,
                secrets: Secrets::new(None),
                watch: Box::new(self.watch()),
            }))
        })
    }
}

impl Native {
    /// The suite tests one tool after the other.
    fn watch(&self) -> SeenFromOutside {
        let (release, released) = mpsc::channel();
        let seen = Arc::new(Seen {
            begun: AtomicUsize::new(0),
            working: AtomicUsize::new(0),
            release: Mutex::new(released),
        });
        *self.current.lock().unwrap() = Some(Arc::clone(&seen));
        SeenFromOutside {
            seen,
            _release: release,
        }
    }
}

/// What was left behind ends with it.
struct SeenFromOutside {
    seen: Arc<Seen>,
    _release: mpsc::Sender<()>,
}

impl Watch for SeenFromOutside {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.seen.begun.load(Ordering::SeqCst) })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.seen.working.load(Ordering::SeqCst) == 0 })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn native_tools_keep_every_promise() {
    let report = conformance::exercise(&Native::new()).await;
    super::kept(&report, 34);
}
