//! How each promise is tested.

use std::time::Duration;

use fleet::{
    arguments::{Limits, parse_any},
    call::{Effect, Language},
    canonical,
    ids::{AttemptId, CallId},
    outcome::{Outcome, OutcomeWord, ToolFailure},
    wire::{code::Code, trace::TraceContext},
};
use serde_json::{Value, value::RawValue};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use worker::executors::{
    AttemptContext, AttemptFiles, HandedFiles, LINGER_MAX, Progress, Promise, Returned, Stop,
};

use crate::{
    behaviour::Behaviour,
    rig::{KEY_ARGUMENT, OUTPUT_LIMIT, REFUSAL, REFUSAL_CODE, Rig, SECRET, Tool},
};

/// Kept, or how it was not.
type Kept = Result<(), String>;

/// The time of an attempt whose test is not about time.
const AMPLE: Duration = Duration::from_secs(20);
/// The time of an attempt whose tool never answers.
const SHORT: Duration = Duration::from_millis(600);
/// How much later than promised an observation may be: other processes and sockets are observed from outside.
const SLACK: Duration = Duration::from_millis(700);

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Tests whether the executor keeps this promise.
pub(crate) async fn check(
    rig: &dyn Rig,
    behaviour: Behaviour,
    effect: Effect,
    tool: &Tool,
) -> Kept {
    let suite = Suite { rig, effect, tool };
    match behaviour {
        Behaviour::CarriesValuesExactly => suite.carries_values_exactly().await,
        Behaviour::PreparesQuietly => suite.prepares_quietly().await,
        Behaviour::TellsTheFacts => suite.tells_the_facts().await,
        Behaviour::KeepsTheKey => suite.keeps_the_key().await,
        Behaviour::PutsTheKeyIntoAnArgument => suite.puts_the_key_into_an_argument().await,
        Behaviour::PassesOnRefusals => suite.passes_on_refusals().await,
        Behaviour::ProvesNotStarted => suite.proves_not_started().await,
        Behaviour::DoubtsCrashes => suite.doubts_crashes().await,
        Behaviour::KeepsTheDeadline => suite.keeps_the_deadline().await,
        Behaviour::ObeysCancel => suite.obeys(Code::Cancelled).await,
        Behaviour::ObeysDrain => suite.obeys(Code::Timeout).await,
        Behaviour::WaitsForSlowAnswers => suite.applied(&Attempt::with(AMPLE)).await.map(drop),
        Behaviour::BoundsAnswers => suite.bounds_answers().await,
        Behaviour::FlagsGarbage => suite.flags_garbage().await,
        Behaviour::TakesSilence => suite.takes_silence().await,
        Behaviour::MendsText => suite.mends_text().await,
        Behaviour::HidesTheWorker => suite.hides_the_worker().await,
        Behaviour::VeilsSecrets => suite.veils_secrets().await,
        Behaviour::LeavesNothing => suite.leaves_nothing().await,
    }
}

struct Suite<'a> {
    rig: &'a dyn Rig,
    effect: Effect,
    tool: &'a Tool,
}

/// The context of a first attempt that has this much time from now on, for tests beyond the suite.
///
/// Its tenant is `acme`, its ids are new ones, and its `stop` can be told to end it.
pub fn context(time: Duration) -> AttemptContext {
    Attempt::with(time).context
}

/// One attempt that the suite makes.
struct Attempt {
    context: AttemptContext,
    drain: CancellationToken,
}

impl Attempt {
    fn with(time: Duration) -> Self {
        let drain = CancellationToken::new();
        let context = AttemptContext {
            call_id: CallId::generate(),
            attempt_id: AttemptId::generate(),
            attempt: 1,
            tool: "conformance".parse().expect("it is a name"),
            tool_version: 1,
            idempotency_key: format!("key-of-{}", CallId::generate()),
            deadline_at: OffsetDateTime::UNIX_EPOCH + Duration::from_millis(4_102_444_800_123),
            until: Instant::now() + time,
            tenant: "acme".parse().expect("it is a label"),
            session: Some("session-1".parse().expect("it is a label")),
            run: None,
            meta: None,
            language: Language::En,
            trace: TraceContext {
                traceparent: Some(TRACEPARENT.to_owned()),
                ..TraceContext::default()
            },
            stop: Stop::under(drain.clone()),
            progress: Progress::default(),
            completion_token: None,
            asked: None,
            files: AttemptFiles::default(),
            handed: HandedFiles::default(),
            promise: Promise::default(),
        };
        Self { context, drain }
    }

    /// The next attempt of the same call.
    fn next(&self) -> Self {
        let mut next = Self::with(AMPLE);
        next.context.call_id = self.context.call_id;
        next.context
            .idempotency_key
            .clone_from(&self.context.idempotency_key);
        next.context.attempt = self.context.attempt + 1;
        next
    }
}

impl Suite<'_> {
    /// Runs the tool once.
    async fn run(&self, attempt: &Attempt) -> Returned {
        let tool = self.tool;
        let executor = self.rig.executor();
        match executor.prepare(&tool.manifest, &tool.arguments, &tool.secrets) {
            Ok(prepared) => {
                self.rig.claim(&attempt.context).await;
                prepared.run(attempt.context.clone()).await
            }
            Err(failure) => Outcome::NotStarted(failure).into(),
        }
    }

    /// The tool's answer, which must have no flaw.
    async fn applied(&self, attempt: &Attempt) -> Result<(Box<RawValue>, Value), String> {
        self.answered(self.run(attempt).await.outcome)
    }

    fn answered(&self, outcome: Outcome) -> Result<(Box<RawValue>, Value), String> {
        match outcome {
            Outcome::Applied { result, flaw: None } => self.read(result),
            other => Err(format!("it should have answered, and came to {other:?}")),
        }
    }

    fn read(&self, result: Box<RawValue>) -> Result<(Box<RawValue>, Value), String> {
        let value = parse_any(result.get().as_bytes(), &Limits::ANSWER)
            .map_err(|error| format!("its result is no JSON: {error}"))?;
        Ok((result, self.rig.answer(value)))
    }

    async fn carries_values_exactly(&self) -> Kept {
        let (_, answer) = self.applied(&Attempt::with(AMPLE)).await?;
        let (sent, came) = (
            canonical::to_text(&self.tool.arguments),
            canonical::to_text(&answer),
        );
        so(sent == came, || format!("{sent} came back as {came}"))
    }

    async fn prepares_quietly(&self) -> Kept {
        let tool = self.tool;
        let executor = self.rig.executor();
        let prepared = executor.prepare(&tool.manifest, &tool.arguments, &tool.secrets);
        drop(prepared.map_err(|failure| format!("it cannot be prepared: {failure:?}"))?);
        sleep(SLACK).await;
        let begun = tool.watch.begun().await;
        so(begun == 0, || {
            format!("the tool began {begun} times although it was never run")
        })
    }

    async fn tells_the_facts(&self) -> Kept {
        let attempt = Attempt::with(AMPLE);
        let (_, told) = self.applied(&attempt).await?;
        let context = &attempt.context;
        for (name, expected) in [
            ("call_id", context.call_id.to_string()),
            ("attempt", context.attempt.to_string()),
            ("tenant", context.tenant.to_string()),
            ("session", "session-1".to_owned()),
            ("deadline_ms", context.deadline_unix_ms().to_string()),
            ("traceparent", TRACEPARENT.to_owned()),
            ("idempotency_key", context.idempotency_key.clone()),
        ] {
            is(&told, name, &expected)?;
        }
        Ok(())
    }

    async fn keeps_the_key(&self) -> Kept {
        let first = Attempt::with(AMPLE);
        let second = first.next();
        for attempt in [&first, &second] {
            let (_, told) = self.applied(attempt).await?;
            is(&told, "idempotency_key", &attempt.context.idempotency_key)?;
            is(&told, "attempt", &attempt.context.attempt.to_string())?;
        }
        Ok(())
    }

    async fn puts_the_key_into_an_argument(&self) -> Kept {
        let first = Attempt::with(AMPLE);
        let second = first.next();
        for attempt in [&first, &second] {
            let (_, told) = self.applied(attempt).await?;
            is(&told, KEY_ARGUMENT, &attempt.context.idempotency_key)?;
        }
        Ok(())
    }

    async fn passes_on_refusals(&self) -> Kept {
        let failure = self.refused().await?;
        so(failure.message.english().contains(REFUSAL), || {
            format!("the tool's own words are lost: {failure:?}")
        })?;
        let code = failure
            .details
            .as_ref()
            .and_then(|details| details.get("code"));
        so(code.is_none_or(|code| code == REFUSAL_CODE), || {
            format!("the tool's own code is lost: {failure:?}")
        })
    }

    async fn refused(&self) -> Result<ToolFailure, String> {
        match self.run(&Attempt::with(AMPLE)).await.outcome {
            Outcome::DefiniteFailure(failure) if failure.code == Code::ToolError => Ok(failure),
            other => Err(format!(
                "it should have been a definite tool_error, and came to {other:?}"
            )),
        }
    }

    async fn proves_not_started(&self) -> Kept {
        let outcome = self.run(&Attempt::with(AMPLE)).await.outcome;
        word(&outcome, &[OutcomeWord::NotStarted])?;
        let begun = self.tool.watch.begun().await;
        so(begun == 0, || {
            format!("it says not started, and the tool began {begun} times")
        })
    }

    async fn doubts_crashes(&self) -> Kept {
        let (time, codes): (_, &[Code]) = if self.rig.hears_of_crashes() {
            (AMPLE, &[Code::Unavailable, Code::ToolCrashed])
        } else {
            (SHORT, &[Code::Timeout])
        };
        let outcome = self.run(&Attempt::with(time)).await.outcome;
        match self.effect {
            // A definite failure is allowed too: a read has no effect that could be in doubt.
            Effect::Read => word(
                &outcome,
                &[OutcomeWord::Unknown, OutcomeWord::DefiniteFailure],
            )?,
            Effect::Idempotent | Effect::Once | Effect::Transaction => {
                word(&outcome, &[OutcomeWord::Unknown])?;
            }
        }
        self.code(&outcome, codes)?;
        sleep(SLACK).await;
        let begun = self.tool.watch.begun().await;
        so(begun == 1, || {
            format!("one attempt made the tool begin {begun} times")
        })
    }

    async fn keeps_the_deadline(&self) -> Kept {
        let (began, attempt) = (Instant::now(), Attempt::with(SHORT));
        let returned = self.run(&attempt).await;
        let took = began.elapsed();
        so(took <= SHORT + LINGER_MAX + SLACK, || {
            format!("its {SHORT:?} took it {took:?}")
        })?;
        // A timer may be a little early.
        so(took + Duration::from_millis(100) >= SHORT, || {
            format!("it had {SHORT:?} and gave up after {took:?}: {returned:?}")
        })?;
        self.ended(&returned.outcome, Code::Timeout)?;
        self.rests(returned.left_behind).await
    }

    /// The attempt ends in time when it is told to, with this code.
    async fn obeys(&self, code: Code) -> Kept {
        let attempt = Attempt::with(AMPLE);
        let running = self.run(&attempt);
        tokio::pin!(running);
        tokio::select! {
            returned = &mut running => return Err(format!("it did not wait to be told: {returned:?}")),
            begun = self.begins() => begun?,
        }
        let told = Instant::now();
        if code == Code::Cancelled {
            attempt.context.stop.cancel();
        } else {
            attempt.drain.cancel();
        }
        let returned = running.await;
        let took = told.elapsed();
        so(took <= LINGER_MAX + SLACK, || {
            format!("it went on for {took:?} after it was told to end")
        })?;
        self.ended(&returned.outcome, code)?;
        self.rests(returned.left_behind).await
    }

    /// An attempt that was stopped is unknown, unless it answered with proof.
    fn ended(&self, outcome: &Outcome, code: Code) -> Kept {
        let proves = self.rig.ends_with_proof() || self.effect == Effect::Read;
        let words: &[OutcomeWord] = if proves {
            &[OutcomeWord::Unknown, OutcomeWord::DefiniteFailure]
        } else {
            &[OutcomeWord::Unknown]
        };
        word(outcome, words)?;
        self.code(outcome, &[code])
    }

    fn code(&self, outcome: &Outcome, codes: &[Code]) -> Kept {
        let code = outcome.failure().map(|failure| failure.code);
        so(code.is_some_and(|code| codes.contains(&code)), || {
            format!("its code should be one of {codes:?}: {outcome:?}")
        })
    }

    async fn begins(&self) -> Kept {
        let since = Instant::now();
        while self.tool.watch.begun().await == 0 {
            so(since.elapsed() < AMPLE, || {
                "the tool never began".to_owned()
            })?;
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Nothing of the tool runs any more, or the executor has said that something may.
    async fn rests(&self, left_behind: bool) -> Kept {
        let since = Instant::now();
        while !self.tool.watch.at_rest().await {
            if left_behind {
                return Ok(());
            }
            so(since.elapsed() < SLACK, || {
                "something of the tool is still at work, and the executor has not said so"
                    .to_owned()
            })?;
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn bounds_answers(&self) -> Kept {
        let (began, attempt) = (Instant::now(), Attempt::with(AMPLE));
        let returned = self.run(&attempt).await;
        let took = began.elapsed();
        so(took < AMPLE / 2, || format!("it read on for {took:?}"))?;
        let outcome = &returned.outcome;
        self.code(outcome, &[Code::OutputTooLarge])?;
        let proves = self.rig.ends_with_proof() || self.effect == Effect::Read;
        let impossible = match outcome.word() {
            OutcomeWord::NotStarted => true,
            OutcomeWord::DefiniteFailure => !proves,
            OutcomeWord::Applied | OutcomeWord::Unknown => false,
        };
        so(!impossible, || {
            format!("a write that answers has begun: {outcome:?}")
        })?;
        if let Outcome::Applied { result, .. } = outcome {
            let kept = result.get().len();
            so(kept <= OUTPUT_LIMIT, || {
                format!("it kept {kept} bytes of it")
            })?;
        }
        self.rests(returned.left_behind).await
    }

    async fn flags_garbage(&self) -> Kept {
        let outcome = self.run(&Attempt::with(AMPLE)).await.outcome;
        word(&outcome, &[OutcomeWord::Applied])?;
        self.code(&outcome, &[Code::OutputInvalid])
    }

    async fn takes_silence(&self) -> Kept {
        let outcome = self.run(&Attempt::with(AMPLE)).await.outcome;
        word(&outcome, &[OutcomeWord::Applied])?;
        let flaw = outcome.failure().map(|flaw| flaw.code);
        so(flaw.is_none_or(|code| code == Code::OutputInvalid), || {
            format!("an empty answer is at worst not JSON: {outcome:?}")
        })
    }

    async fn mends_text(&self) -> Kept {
        let (result, flaw) = match self.run(&Attempt::with(AMPLE)).await.outcome {
            Outcome::Applied { result, flaw } => (result, flaw),
            other => return Err(format!("it should have answered, and came to {other:?}")),
        };
        // A transaction ends together with its call, and its answer has no place for a flaw.
        let marked = match self.tool.manifest.effect {
            Effect::Transaction => flaw.is_none(),
            Effect::Read | Effect::Idempotent | Effect::Once => {
                flaw.as_ref().is_some_and(ToolFailure::is_mended)
            }
        };
        so(marked, || {
            format!("it should have been marked as mended, and has the flaw {flaw:?}")
        })?;
        let (raw, answer) = self.read(result)?;
        let text = raw.get().to_ascii_lowercase();
        so(!text.contains(r"\u0000") && !text.contains(r"\ud8"), || {
            format!("what Postgres cannot read came through: {text}")
        })?;
        so(holds_text(&answer, "\u{fffd}"), || {
            format!("nothing stands where it was mended: {answer}")
        })
    }

    async fn hides_the_worker(&self) -> Kept {
        let (_, answer) = self.applied(&Attempt::with(AMPLE)).await?;
        // Variables that a program needs, and values that are too short to be told from other text.
        let harmless = |name: &str| ["PATH", "HOME", "LANG", "PWD"].contains(&name);
        for (name, value) in
            std::env::vars().filter(|(name, value)| !harmless(name) && value.len() >= 16)
        {
            so(!holds_text(&answer, &value), || {
                format!("the tool was given the value of {name}, which is the worker's")
            })?;
        }
        Ok(())
    }

    async fn veils_secrets(&self) -> Kept {
        let failure = self.refused().await?;
        so(!format!("{failure:?}").contains(SECRET), || {
            "the secret stands in the failure".to_owned()
        })
    }

    async fn leaves_nothing(&self) -> Kept {
        let returned = self.run(&Attempt::with(AMPLE)).await;
        self.answered(returned.outcome)?;
        self.rests(returned.left_behind).await
    }
}

fn so(holds: bool, otherwise: impl FnOnce() -> String) -> Kept {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn word(outcome: &Outcome, words: &[OutcomeWord]) -> Kept {
    so(words.contains(&outcome.word()), || {
        format!("it should be one of {words:?}, and is {outcome:?}")
    })
}

fn is(told: &Value, name: &str, expected: &str) -> Kept {
    let value = told.get(name);
    let text = value.and_then(Value::as_str).map(ToOwned::to_owned);
    let text = text.or_else(|| value.map(ToString::to_string));
    so(text.as_deref() == Some(expected), || {
        format!("the tool should have been told {name} = {expected}, and was told {text:?}")
    })
}

/// Whether a text, or a key, anywhere in the value contains this.
fn holds_text(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text.contains(wanted),
        Value::Array(items) => items.iter().any(|item| holds_text(item, wanted)),
        Value::Object(members) => {
            let mut members = members.iter();
            members.any(|(name, member)| name.contains(wanted) || holds_text(member, wanted))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
