//! Asks another tool in the place of one that cannot, within the same attempt: it is a read, and runs once.
//!
//! Whatever is in the way of the other tool (a pause, its breaker, an interceptor, a slot) passes it over: the call has waited for its
//! own tool already.

use std::{borrow::Cow, sync::Arc, time::Duration};

use fleet::{
    arguments::{self, Coercing, Level, Limits},
    canonical,
    controls::{LazyArguments, PausedBy},
    fallback::{StandIn, StandInKind},
    manifest::OtherTool,
    outcome::Outcome,
    probe,
    registry::{Lookup, Tool},
    telemetry::spans::{self, Step},
};
use serde_json::{Value, value::RawValue};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::OVERTIME_MAX;
use crate::{
    arguments::{self as call_arguments, CallArguments},
    breaker::{
        pass as breaker,
        permit::{BreakerPermit, CutShort},
    },
    consent,
    execute::{self, BACKSTOP, context_of},
    executors::LINGER_MAX,
    gate,
    intercept::{Around, LargeBlocks, Observe, OutputSchema, Own, Repetition},
    interceptor::EndedView,
    news::News,
    onion::{self, Round, Subject},
    programs::ProgramSlot,
    redact::RedactedFailures,
    stage::{Attempt, Execution, Rendered},
    timeouts,
    worker::WorkerProcess,
};

/// How long another tool may take.
const ASKED_MAX: Duration = Duration::from_secs(20);
/// How long after the attempt's own time it must have answered: what it leaves then is over in time, too.
const ASKED_OVERTIME_MAX: Duration = OVERTIME_MAX
    .saturating_sub(LINGER_MAX)
    .saturating_sub(BACKSTOP);
/// How long its arguments may take to compute.
const THINK_MAX: Duration = Duration::from_secs(2);

/// The answer of another tool; `None`: it has none, or may not be asked. And whether nothing of it can act any more.
pub(super) async fn ask(
    worker: &WorkerProcess,
    attempt: &Attempt,
    spec: &OtherTool,
) -> (Option<StandIn>, bool) {
    let execution = match execution_of(worker, attempt, spec).await {
        Ok(execution) => execution,
        Err(why) => {
            tracing::debug!(tool = %spec.name, why, "another tool is not asked");
            return (None, true);
        }
    };
    let has_stopped = execution.has_stopped();
    match answer_of(execution, attempt.tool.manifest.output_limit) {
        Ok(result) => {
            let stand_in = StandIn {
                kind: StandInKind::Other,
                result: result.get().to_owned(),
                age_ms: None,
                tool: Some(spec.name.clone()),
            };
            (Some(stand_in), has_stopped)
        }
        Err(why) => {
            tracing::debug!(tool = %spec.name, why, "another tool does not stand in");
            (None, has_stopped)
        }
    }
}

/// The other tool, as it is now.
pub(super) fn fit(
    worker: &WorkerProcess,
    attempt: &Attempt,
    spec: &OtherTool,
) -> Result<Arc<Tool>, &'static str> {
    let Lookup::Offered(tool) = worker.registry.look_up(&spec.name, None) else {
        return Err("it is not applied, or retired");
    };
    match tool
        .manifest
        .unfit_to_stand_in(&attempt.tool.manifest.queue)
    {
        Some(unfit) => Err(unfit.reason()),
        None => Ok(tool),
    }
}

async fn execution_of(
    worker: &WorkerProcess,
    attempt: &Attempt,
    spec: &OtherTool,
) -> Result<Execution, &'static str> {
    let tool = fit(worker, attempt, spec)?;
    if !takes_files(attempt, &tool) {
        return Err("it does not take the files of the call");
    }
    let args = arguments_for(worker, attempt, spec, &tool).await?;
    if is_paused(worker, attempt, &tool, &args.value) {
        return Err("a pause covers it");
    }
    let mut round = consent(worker, attempt, &tool, &args.value).await?;
    let rendered = gate::prepare(worker, &tool, &args);
    let rendered = rendered.map_err(|failure| failure.code.as_str())?;
    let _program = program(worker, attempt, rendered.is_program).await?;
    let tenant = Some(&attempt.claimed.tenant);
    // Last, so that nothing comes between a permit and the attempt.
    let permit = breaker::permit_of(worker, &tool, tenant).await?;
    let asked = OtherRun {
        worker,
        attempt,
        tool,
        permit,
    };
    asked.run(rendered, round.as_deref_mut()).await
}

/// Whether it takes the files of the call, if that names some: an answer about other files, or none, would be another one.
fn takes_files(attempt: &Attempt, tool: &Tool) -> bool {
    let files = attempt.files.list();
    let spec = tool.manifest.files.as_ref();
    files.is_empty() || spec.is_some_and(|spec| spec.unfit(files).is_none())
}

/// What it answered. `limit`: the most bytes.
fn answer_of(execution: Execution, limit: usize) -> Result<Box<RawValue>, &'static str> {
    match execution {
        Execution::Ran(ref outcome) if outcome.useless().is_some() => {
            Err("its answer does not fit")
        }
        Execution::Ran(Outcome::Applied { result, .. }) if result.get().len() > limit => {
            Err("its answer is larger than output_limit")
        }
        Execution::Ran(Outcome::Applied { result, .. }) => Ok(result),
        _no_answer => Err("it did not answer"),
    }
}

/// The arguments that it gets: of the template, checked like a caller's. The template sees those of the call as its own tool gets
/// them, with the answers that they refer to.
async fn arguments_for(
    worker: &WorkerProcess,
    attempt: &Attempt,
    spec: &OtherTool,
    tool: &Arc<Tool>,
) -> Result<CallArguments, &'static str> {
    let claimed = &attempt.claimed;
    let unread = "the arguments of the call cannot be read";
    let stored = match &attempt.args {
        Some(args) => Cow::from(args),
        // Its message had other ones.
        None => Cow::from(
            gate::read_args(worker, claimed.call_id)
                .await
                .map_err(|_skip| unread)?,
        ),
    };
    let own = call_arguments::of(worker, claimed.call_id, &attempt.tool, &stored).await;
    let own = own.map_err(|_none| unread)?;
    let (template, tool) = (spec.args.clone(), Arc::clone(tool));
    let subject = probe::Subject {
        call_id: claimed.call_id,
        tool: claimed.tool.clone(),
        tool_version: claimed.tool_version,
        tenant: claimed.tenant.to_string(),
        args: own.value,
    };
    // The expressions are a tool author's, the values in them a model's: they may take long.
    let thinking = tokio::task::spawn_blocking(move || fitted(template.as_ref(), subject, &tool));
    match timeout(THINK_MAX, thinking).await {
        Ok(Ok(value)) => Ok(CallArguments::whole(value?)),
        Ok(Err(_broken_off)) => Err("this worker is about to stop"),
        Err(_elapsed) => Err("its arguments take too long to compute"),
    }
}

/// What the template comes to, as the tool's schema takes it.
fn fitted(
    template: Option<&Value>,
    subject: probe::Subject,
    tool: &Tool,
) -> Result<Value, &'static str> {
    let value = match template {
        None => subject.args,
        Some(template) => {
            let filled = probe::filled(template, &subject);
            let filled = filled.map_err(|_why| "its arguments cannot be made of the call's")?;
            let text = canonical::to_text(&filled);
            let parsed = arguments::parse(text.as_bytes(), &Limits::ANSWER);
            parsed.map_err(|_unread| "its arguments are none")?
        }
    };
    let how = Coercing {
        // An operator wrote the template, so only changes are made that cannot change the question.
        level: tool.manifest.coercion_level().min(Level::Safe),
        tool: tool.manifest.name.as_str(),
    };
    let fitted = tool.schema.fit(value, how);
    let fitted = fitted.map_err(|_violations| "its arguments do not fit its input_schema")?;
    Ok(fitted.args)
}

fn is_paused(worker: &WorkerProcess, attempt: &Attempt, tool: &Tool, args: &Value) -> bool {
    let call = PausedBy {
        tool: &tool.manifest.name,
        queue: &tool.manifest.queue,
        tenant: &attempt.claimed.tenant,
        arguments: &LazyArguments::of(args),
    };
    let controls = worker.registry.controls();
    controls.pause_of_accepted(&call, Instant::now()).is_some()
}

/// The interceptors of the program, which have let the other tool be asked; `None`: there are none.
async fn consent(
    worker: &WorkerProcess,
    attempt: &Attempt,
    tool: &Arc<Tool>,
    args: &Value,
) -> Result<Option<Box<Round>>, &'static str> {
    let (all, manifest) = (&worker.interceptors, &tool.manifest);
    if consent::lacking(manifest, None, all, &worker.name).is_err() {
        return Err("this worker lacks an interceptor that it demands");
    }
    if all.is_empty() {
        return Ok(None);
    }
    let (claimed, arguments) = (&attempt.claimed, canonical::to_text(args));
    let subject = Subject {
        call: claimed.call_id,
        tool: Arc::clone(tool),
        tenant: claimed.tenant.clone(),
        args_hash: canonical::hash_text(&arguments),
        arguments,
        attempt: claimed.attempt,
        is_probe: false,
    };
    let controls = worker.registry.controls();
    let chain = onion::under(all, controls.modes(), &manifest.name, &claimed.tenant);
    let mut round = Box::new(Round::new(chain, subject, worker.hearing.clone()));
    match round.before().await {
        Ok(()) => Ok(Some(round)),
        Err(_stopped) => Err("an interceptor does not let it be asked"),
    }
}

/// A slot for its program, if it is one.
async fn program(
    worker: &WorkerProcess,
    attempt: &Attempt,
    is_program: bool,
) -> Result<Option<ProgramSlot>, &'static str> {
    if !is_program {
        return Ok(None);
    }
    let tenant = Some(attempt.claimed.tenant.clone());
    let slot = worker.programs.wait(&tenant).await;
    let slot = slot.ok_or("every program slot is taken")?;
    Ok(Some(slot))
}

/// Another tool that is asked now.
struct OtherRun<'a> {
    worker: &'a WorkerProcess,
    attempt: &'a Attempt,
    tool: Arc<Tool>,
    permit: Option<BreakerPermit>,
}

impl OtherRun<'_> {
    async fn run(
        self,
        rendered: Rendered,
        mut round: Option<&mut Round>,
    ) -> Result<Execution, &'static str> {
        let (worker, attempt, started) = (self.worker, self.attempt, Instant::now());
        if !worker.may_start() {
            return Err("the worker's lease is over");
        }
        if attempt.entry.stop.asked().is_some() {
            return Err("the attempt must end now");
        }
        let (until, is_cut) = self.until(started);
        if until <= started {
            return Err("no time is left for it");
        }
        if let Some(round) = &mut round {
            round.began(attempt.claimed.attempt);
        }
        let execution = self.execute(rendered, round.as_deref_mut(), until).await;
        if let (Some(permit), Some(outcome)) = (self.permit, execution.outcome()) {
            let cut = if attempt.entry.stop.asked().is_some() {
                CutShort::Stopped
            } else if is_cut {
                CutShort::ByDeadline
            } else {
                CutShort::No
            };
            permit.answered(outcome, started.elapsed(), cut);
        }
        if let Some(round) = round {
            round.ended(EndedView::StoodIn(execution.word()));
        }
        Ok(execution)
    }

    /// When it must have answered, and whether that is sooner than it usually would have to.
    fn until(&self, now: Instant) -> (Instant, bool) {
        let (worker, attempt) = (self.worker, self.attempt);
        let tenant = Some(&attempt.claimed.tenant);
        let timeout = timeouts::timeout_of(worker, &self.tool.manifest, tenant);
        let latest = attempt.own_until() + ASKED_OVERTIME_MAX;
        answer_by(now, timeout, (now + attempt.remaining()).min(latest))
    }

    async fn execute(
        &self,
        rendered: Rendered,
        round: Option<&mut Round>,
        until: Instant,
    ) -> Execution {
        let (attempt, tool) = (self.attempt, &self.tool);
        let outer = spans::step(Step::Execute);
        let call = attempt.claimed.call_id;
        let span = outer.in_scope(|| spans::execute_tool(call, &tool.manifest.name));
        let mut context = context_of(attempt, tool, until, &span);
        if !context.files.is_empty() {
            let handing = execute::hand_over(self.worker, attempt, tool, &context);
            match Box::pin(handing).await {
                Ok(handed) => context.handed = handed,
                Err(execution) => return execution,
            }
        }
        let mut around = Around {
            observe: Observe {
                tool: Arc::clone(tool),
                span: span.clone(),
                started: Instant::now(),
            },
            large_blocks: LargeBlocks::of(self.worker, attempt),
            // It answers in the place of the call's own tool.
            output_schema: OutputSchema {
                tool: Arc::clone(&attempt.tool),
            },
            own: Own {
                tool: Arc::clone(tool),
                hidden: RedactedFailures::default(),
                round,
            },
            repetition: Repetition {
                earlier_unknown: false,
            },
            news: News::default(),
            redact: rendered.redact,
        };
        around.before(&mut context);
        let running = around.beside(execute::run(rendered.prepared, context));
        let execution = match running.instrument(span).instrument(outer).await {
            Ok(answered) => around.after(answered).await,
            Err(silent) => silent,
        };
        around.ended(&execution);
        execution
    }
}

/// When a tool with this timeout must have answered, and whether that is sooner than its own callers would let it take: then it says
/// nothing about the tool, whose breaker they need.
fn answer_by(now: Instant, timeout: Duration, latest: Instant) -> (Instant, bool) {
    let by = (now + timeout.min(ASKED_MAX)).min(latest);
    (by, by < now + timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a tool that may take longer would be shut for its own callers, whom it answers.
    #[test]
    fn a_tool_that_may_take_longer_than_here_is_cut_short() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let latest = now + ASKED_OVERTIME_MAX;
        for (timeout, by, is_cut) in [(5, 5, false), (20, 20, false), (60, 20, true)] {
            assert_eq!(
                answer_by(now, timeout * second, latest),
                (now + by * second, is_cut)
            );
        }
        let soon = now + second;
        assert_eq!(
            answer_by(now, 60 * second, soon),
            (soon, true),
            "its call has less time"
        );
    }
}
