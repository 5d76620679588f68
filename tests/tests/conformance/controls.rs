//! The suite can fail: an executor that keeps every promise but one breaks just that one.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use conformance::{
    Behaviour, Case, KEY_ARGUMENT, OUTPUT_LIMIT, REFUSAL, REFUSAL_CODE, Rig, SECRET, Tool, Watch,
};
use fleet::{
    call::Effect,
    manifest::Manifest,
    outcome::{Outcome, ToolFailure},
    secrets::Secrets,
    wire::{code::Code, message::Message},
};
use futures_util::future::{BoxFuture, join_all};
use serde_json::{Value, json, value::to_raw_value};
use tokio::time::{Instant, sleep, sleep_until};
use worker::executors::{AttemptContext, Executor, LINGER_MAX, Prepared, Returned, StopReason};

/// What one can do wrong, and which promise that breaks.
const FAULTS: [(Fault, Behaviour); 25] = [
    (Fault::RoundsNumbers, Behaviour::CarriesValuesExactly),
    (Fault::StartsEarly, Behaviour::PreparesQuietly),
    (Fault::ForgetsTheTenant, Behaviour::TellsTheFacts),
    (Fault::ChangesTheKey, Behaviour::KeepsTheKey),
    (
        Fault::IgnoresTheArgument,
        Behaviour::PutsTheKeyIntoAnArgument,
    ),
    (Fault::LosesTheMessage, Behaviour::PassesOnRefusals),
    (Fault::TakesANoForACrash, Behaviour::PassesOnRefusals),
    (Fault::DoubtsEverything, Behaviour::ProvesNotStarted),
    (Fault::StartsAndDeniesIt, Behaviour::ProvesNotStarted),
    (Fault::DeniesCrashes, Behaviour::DoubtsCrashes),
    (Fault::SendsTwice, Behaviour::DoubtsCrashes),
    (Fault::IgnoresTheDeadline, Behaviour::KeepsTheDeadline),
    (Fault::GivesUpEarly, Behaviour::KeepsTheDeadline),
    (
        Fault::LeavesTheHangingToolBehind,
        Behaviour::KeepsTheDeadline,
    ),
    (Fault::IgnoresCancel, Behaviour::ObeysCancel),
    (Fault::IgnoresDrain, Behaviour::ObeysDrain),
    (Fault::CallsDrainACancel, Behaviour::ObeysDrain),
    (Fault::LosesPatience, Behaviour::WaitsForSlowAnswers),
    (Fault::KeepsItAll, Behaviour::BoundsAnswers),
    (Fault::DeniesWhatItCannotRead, Behaviour::FlagsGarbage),
    (Fault::DoubtsSilence, Behaviour::TakesSilence),
    (Fault::PassesOnNul, Behaviour::MendsText),
    (Fault::InheritsTheEnvironment, Behaviour::HidesTheWorker),
    (Fault::RepeatsSecrets, Behaviour::VeilsSecrets),
    (Fault::LeavesSomething, Behaviour::LeavesNothing),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    RoundsNumbers,
    StartsEarly,
    ForgetsTheTenant,
    ChangesTheKey,
    IgnoresTheArgument,
    LosesTheMessage,
    TakesANoForACrash,
    DoubtsEverything,
    StartsAndDeniesIt,
    DeniesCrashes,
    SendsTwice,
    IgnoresTheDeadline,
    GivesUpEarly,
    LeavesTheHangingToolBehind,
    IgnoresCancel,
    IgnoresDrain,
    CallsDrainACancel,
    LosesPatience,
    KeepsItAll,
    DeniesWhatItCannotRead,
    DoubtsSilence,
    PassesOnNul,
    InheritsTheEnvironment,
    RepeatsSecrets,
    LeavesSomething,
}

/// What the tools of one rig have done.
#[derive(Debug, Default)]
struct World {
    begun: AtomicUsize,
    working: AtomicUsize,
}

/// An executor whose tools are a few lines in this process.
#[derive(Debug, Clone)]
struct Model {
    fault: Option<Fault>,
    world: Arc<World>,
}

struct Run {
    model: Model,
    behaviour: Behaviour,
    arguments: Value,
}

impl Model {
    fn new(fault: Option<Fault>) -> Self {
        Self {
            fault,
            world: Arc::default(),
        }
    }
}

impl Executor for Model {
    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        _secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let behaviour = Behaviour::ALL
            .iter()
            .find(|of| of.name() == manifest.description);
        if self.fault == Some(Fault::StartsEarly) && behaviour == Some(&Behaviour::PreparesQuietly)
        {
            self.world.begun.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Box::new(Run {
            model: self.clone(),
            behaviour: *behaviour.expect("the rig describes its tools by their behaviour"),
            arguments: arguments.clone(),
        }))
    }
}

impl Prepared for Run {
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        Box::pin(async move { self.outcome(context).await.into() })
    }
}

impl Run {
    fn has(&self, fault: Fault) -> bool {
        self.model.fault == Some(fault)
    }

    async fn outcome(self, context: AttemptContext) -> Outcome {
        let world = &self.model.world;
        if self.behaviour == Behaviour::ProvesNotStarted {
            if self.has(Fault::StartsAndDeniesIt) {
                world.begun.fetch_add(1, Ordering::SeqCst);
            }
            let failure = ToolFailure::new(Code::Unavailable, Message::verbatim("nobody is there"));
            return if self.has(Fault::DoubtsEverything) {
                Outcome::Unknown(failure)
            } else {
                Outcome::NotStarted(failure)
            };
        }
        world.begun.fetch_add(1, Ordering::SeqCst);
        match self.behaviour {
            Behaviour::CarriesValuesExactly if self.has(Fault::RoundsNumbers) => {
                let rounded = self
                    .arguments
                    .to_string()
                    .replace("9007199254740993", "9007199254740992");
                applied(&serde_json::from_str::<Value>(&rounded).unwrap())
            }
            Behaviour::CarriesValuesExactly | Behaviour::PreparesQuietly => {
                applied(&self.arguments)
            }
            Behaviour::TellsTheFacts | Behaviour::KeepsTheKey => applied(&self.facts(&context)),
            Behaviour::PutsTheKeyIntoAnArgument => {
                let mut arguments = self.arguments.clone();
                if !self.has(Fault::IgnoresTheArgument) {
                    arguments[KEY_ARGUMENT] = json!(context.idempotency_key);
                }
                applied(&arguments)
            }
            Behaviour::PassesOnRefusals => self.refuse(),
            Behaviour::DoubtsCrashes => {
                if self.has(Fault::SendsTwice) {
                    world.begun.fetch_add(1, Ordering::SeqCst);
                }
                let failure =
                    ToolFailure::new(Code::ToolCrashed, Message::verbatim("it broke off"));
                if self.has(Fault::DeniesCrashes) {
                    Outcome::NotStarted(failure)
                } else {
                    Outcome::Unknown(failure)
                }
            }
            Behaviour::KeepsTheDeadline | Behaviour::ObeysCancel | Behaviour::ObeysDrain => {
                self.hang(&context).await
            }
            Behaviour::WaitsForSlowAnswers => {
                if self.has(Fault::LosesPatience) {
                    return unknown(Code::Timeout);
                }
                sleep(Duration::from_millis(300)).await;
                applied(&json!(null))
            }
            Behaviour::BoundsAnswers => {
                let flaw =
                    ToolFailure::new(Code::OutputTooLarge, Message::verbatim("it is too much"));
                let (result, flaw) = if self.has(Fault::KeepsItAll) {
                    (json!("x".repeat(2 * OUTPUT_LIMIT)), None)
                } else {
                    (json!(null), Some(flaw))
                };
                Outcome::Applied {
                    result: to_raw_value(&result).unwrap(),
                    flaw,
                }
            }
            Behaviour::FlagsGarbage => {
                let failure =
                    ToolFailure::new(Code::OutputInvalid, Message::verbatim("it is not JSON"));
                if self.has(Fault::DeniesWhatItCannotRead) {
                    return Outcome::DefiniteFailure(failure);
                }
                Outcome::Applied {
                    result: to_raw_value(&json!(null)).unwrap(),
                    flaw: Some(failure),
                }
            }
            Behaviour::TakesSilence if self.has(Fault::DoubtsSilence) => unknown(Code::ToolCrashed),
            Behaviour::TakesSilence => applied(&json!(null)),
            Behaviour::MendsText if self.has(Fault::PassesOnNul) => applied(&json!("a\0b")),
            Behaviour::MendsText => marked(applied(&json!("a\u{fffd}b"))),
            Behaviour::HidesTheWorker => {
                let inherited: Vec<String> = std::env::vars().map(|(_, value)| value).collect();
                let leaks = self.has(Fault::InheritsTheEnvironment);
                applied(&if leaks { json!(inherited) } else { json!([]) })
            }
            Behaviour::VeilsSecrets => {
                let secret = if self.has(Fault::RepeatsSecrets) {
                    SECRET
                } else {
                    "[secret]"
                };
                let failure = ToolFailure::new(
                    Code::ToolError,
                    Message::verbatim(format!("{secret} is wrong")),
                );
                Outcome::DefiniteFailure(failure)
            }
            Behaviour::LeavesNothing => {
                if self.has(Fault::LeavesSomething) {
                    world.working.fetch_add(1, Ordering::SeqCst);
                }
                applied(&json!(null))
            }
            Behaviour::ProvesNotStarted => unreachable!("it was answered above"),
        }
    }

    fn facts(&self, context: &AttemptContext) -> Value {
        let mut facts = json!({
            "call_id": context.call_id.to_string(), "attempt": context.attempt.to_string(), "session": "session-1",
            "tenant": context.tenant.to_string(), "deadline_ms": context.deadline_unix_ms().to_string(),
            "traceparent": context.trace.traceparent, "idempotency_key": context.idempotency_key,
        });
        if self.has(Fault::ForgetsTheTenant) && self.behaviour == Behaviour::TellsTheFacts {
            facts["tenant"] = json!("");
        }
        if self.has(Fault::ChangesTheKey) && context.attempt > 1 {
            facts["idempotency_key"] = json!(format!("{}-2", context.idempotency_key));
        }
        facts
    }

    fn refuse(&self) -> Outcome {
        if self.has(Fault::TakesANoForACrash) {
            return unknown(Code::ToolCrashed);
        }
        let message = if self.has(Fault::LosesTheMessage) {
            "it failed"
        } else {
            REFUSAL
        };
        let failure = ToolFailure::new(Code::ToolError, Message::verbatim(message));
        Outcome::DefiniteFailure(failure.with_details(json!({"code": REFUSAL_CODE})))
    }

    async fn hang(&self, context: &AttemptContext) -> Outcome {
        let world = &self.model.world;
        world.working.fetch_add(1, Ordering::SeqCst);
        let limit = if self.has(Fault::IgnoresTheDeadline) {
            context.until + LINGER_MAX + Duration::from_secs(2)
        } else if self.has(Fault::GivesUpEarly) && self.behaviour == Behaviour::KeepsTheDeadline {
            Instant::now()
        } else {
            context.until
        };
        let code = tokio::select! {
            reason = context.stop.told() => {
                if self.has(Fault::IgnoresCancel) && reason == StopReason::Cancelled
                    || self.has(Fault::IgnoresDrain) && reason == StopReason::Drained
                {
                    sleep(LINGER_MAX + Duration::from_secs(1)).await;
                }
                if self.has(Fault::CallsDrainACancel) { Code::Cancelled } else { reason.code() }
            }
            () = sleep_until(limit) => Code::Timeout,
        };
        if !(self.has(Fault::LeavesTheHangingToolBehind)
            && self.behaviour == Behaviour::KeepsTheDeadline)
        {
            world.working.fetch_sub(1, Ordering::SeqCst);
        }
        unknown(code)
    }
}

/// The same answer, with the mark that something in it was replaced.
fn marked(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Applied { result, .. } => Outcome::Applied {
            result,
            flaw: Some(ToolFailure::mended()),
        },
        other => other,
    }
}

fn applied(answer: &Value) -> Outcome {
    Outcome::Applied {
        result: to_raw_value(answer).unwrap(),
        flaw: None,
    }
}

fn unknown(code: Code) -> Outcome {
    Outcome::Unknown(ToolFailure::new(code, Message::verbatim("nobody knows")))
}

impl Rig for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn executor(&self) -> &dyn Executor {
        self
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        self.world.begun.store(0, Ordering::SeqCst);
        self.world.working.store(0, Ordering::SeqCst);
        let manifest = super::manifest(
            effect,
            &json!({"native": {"handler": "model"}}),
            &json!({
                "description": behaviour.name(),
            }),
        );
        let tool = Tool {
            manifest,
            arguments: super::exact(),
            secrets: Secrets::new(None),
            watch: Box::new(WorldWatch(Arc::clone(&self.world))),
        };
        Box::pin(async move { Case::Tool(Box::new(tool)) })
    }
}

struct WorldWatch(Arc<World>);

impl Watch for WorldWatch {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.0.begun.load(Ordering::SeqCst) })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.0.working.load(Ordering::SeqCst) == 0 })
    }
}

#[tokio::test]
async fn an_executor_that_keeps_every_promise_passes() {
    let report = conformance::exercise(&Model::new(None)).await;
    assert!(report.is_kept(), "{report}");
    assert_eq!(report.cells().len(), 2 * Behaviour::ALL.len());
}

#[tokio::test]
async fn one_broken_promise_breaks_its_cell_and_no_other() {
    let tested: BTreeSet<Behaviour> = FAULTS.iter().map(|(_, behaviour)| *behaviour).collect();
    assert_eq!(
        tested.len(),
        Behaviour::ALL.len(),
        "each promise has a fault that breaks it"
    );
    join_all(FAULTS.map(|(fault, behaviour)| async move {
        let report = conformance::exercise(&Model::new(Some(fault))).await;
        let broken: BTreeSet<Behaviour> =
            report.broken().map(|(behaviour, _, _)| behaviour).collect();
        assert_eq!(broken, BTreeSet::from([behaviour]), "{fault:?}\n{report}");
        let under = report.broken().count();
        assert_eq!(under, 2, "under both effect classes: {fault:?}\n{report}");
    }))
    .await;
}
