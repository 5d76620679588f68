//! **The whole attempt**, from a delivered message to a caller's answer. Start reading here.
//!
//! ```text
//! deliver ─▶ gate ─▶ claim ─▶ ack ─▶ execute ─▶ complete ─▶ reply
//! ```
//!
//! Each step consumes what the one before returned, so that no order but this one compiles. Everything before the claim may
//! fail and cost nothing; the claim is the start mark; after it only this worker's liveness and the attempt's deadline
//! decide, and NATS has no say any more. The permit of the slot is held until the end, on every path.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use fleet::{
    bus::pull::Delivered,
    canonical,
    delay::Reconnect,
    ids::{AttemptId, CallId},
    outcome::{Outcome, ToolFailure},
    registry::Tool,
    store::{
        StoreError,
        claim::{ClaimRow, Claimed},
        complete::{Ended, Ending},
        read,
    },
    telemetry::{
        metrics, report,
        spans::{self, Step},
        trace::{self, Relation},
    },
    wire::{code::Code, pointer::Pointer},
};
use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, Span};

use crate::{
    conclude::{conclude, envelope, proven_not_applied, without_result},
    dispose::{Disposal, Skip, dispose},
    executors::{AttemptContext, LINGER_MAX, Prepared},
    gate::{self, Gated},
    worker::{InFlight, Worker},
};

/// A claimed call: this process, and no other, may run it once.
struct Running {
    claimed: Claimed,
    attempt_id: AttemptId,
    tool: Arc<Tool>,
    prepared: Box<dyn Prepared>,
    /// When the claim was sent, before the ledger's clock started: the attempt ends by it.
    claim_sent: Instant,
    _in_flight: InFlight,
}

/// An attempt that is over; the world may have changed.
struct Executed {
    running: Finished,
    outcome: Outcome,
}

/// What is left of [`Running`] once the request has gone out.
struct Finished {
    claimed: Claimed,
    attempt_id: AttemptId,
    tool: Arc<Tool>,
    claim_sent: Instant,
    _in_flight: InFlight,
}

/// Runs one attempt. Returns when the ledger knows how it ended, or when this worker has to leave that to the sweep.
pub(crate) async fn run(worker: Arc<Worker>, delivered: Delivered) {
    let Delivered {
        body,
        acker,
        permit,
    } = delivered;
    let skipped = match Pointer::read(&body) {
        Ok(pointer) => {
            let span = spans::attempt(pointer.call_id, &pointer.tool, worker.id);
            attempt(&worker, pointer, &acker)
                .instrument(span)
                .await
                .err()
        }
        Err(error) => {
            tracing::warn!(error = report(&error), "a message was thrown away");
            Some(Skip::Unreadable)
        }
    };
    if let Some(skip) = skipped {
        metrics().skipped(skip.word());
        tracing::debug!(reason = skip.word(), "message did not become an attempt");
        dispose(&acker, skip.disposal()).await;
    }
    drop(permit);
}

async fn attempt(
    worker: &Worker,
    pointer: Pointer,
    acker: &fleet::bus::pull::Acker,
) -> Result<(), Skip> {
    let gated = gate::pass(worker, pointer)
        .instrument(spans::step(Step::Gate))
        .await?;
    let running = claim(worker, gated).await?;
    dispose(acker, Disposal::Ack)
        .instrument(spans::step(Step::Ack))
        .await;
    let executed = execute(worker, running).await;
    complete(worker, executed).await;
    Ok(())
}

async fn claim(worker: &Worker, gated: Gated) -> Result<Running, Skip> {
    let Gated {
        call,
        tool,
        args_hash,
        prepared,
    } = gated;
    if !worker.may_start() {
        return Err(Skip::NoLease);
    }
    let attempt_id = AttemptId::generate();
    let in_flight = worker.register(attempt_id);
    let claim_sent = Instant::now();
    let timeout_ms = i64::try_from(tool.manifest.timeout.as_millis()).unwrap_or(i64::MAX);
    let claiming = worker.claiming.claim(ClaimRow {
        call_id: call,
        attempt_id,
        timeout_ms,
    });
    // The span of the attempt gets its parent with the claim: only the row knows the trace for certain.
    let claimed = match claiming.await {
        Ok(Some(claimed)) => claimed,
        Ok(None) => return Err(why_not(worker, call).await),
        Err(error) => {
            // If it was committed all the same, it is found among our own running rows and given back.
            tracing::debug!(error = report(&error), "claim was given up");
            return Err(Skip::StoreSilent);
        }
    };
    let span = Span::current();
    trace::relate(&span, &claimed.trace, Relation::of(claimed.attempt, true));
    spans::numbered(&span, claimed.attempt);
    metrics().claimed(Duration::from_millis(
        u64::try_from(claimed.queued_ms).unwrap_or(0),
    ));
    let prepared = if claimed.args_hash == args_hash {
        prepared
    } else {
        prepare_again(worker, &tool, &claimed).await
    };
    Ok(Running {
        claimed,
        attempt_id,
        tool,
        prepared,
        claim_sent,
        _in_flight: in_flight,
    })
}

/// The claim took nothing: the row says why.
async fn why_not(worker: &Worker, call: CallId) -> Skip {
    match read::find(&worker.pool, call).await {
        Ok(Some(row)) if row.state == fleet::call::State::Queued => Skip::NotYet,
        Ok(Some(row)) => Skip::NotQueued(row.state),
        Ok(None) => Skip::Gone,
        Err(_silent) => Skip::StoreSilent,
    }
}

/// The pointer carried other arguments than the row: the row is the truth.
async fn prepare_again(worker: &Worker, tool: &Tool, claimed: &Claimed) -> Box<dyn Prepared> {
    tracing::warn!("a pointer carried other arguments than its row; going on with the row's");
    let read = gate::read_args(worker, claimed.call_id).await.ok();
    let prepared = read
        .filter(|args| canonical::hash_text(args)[..] == claimed.args_hash[..])
        .and_then(|args| gate::prepare(worker, tool, &args).ok());
    prepared.unwrap_or_else(|| Box::new(NeverStarted("the arguments could not be read")))
}

/// A request that is known not to go out.
struct NeverStarted(&'static str);

impl Prepared for NeverStarted {
    fn run(
        self: Box<Self>,
        _context: AttemptContext,
    ) -> futures_util::future::BoxFuture<'static, Outcome> {
        Box::pin(async move { Outcome::NotStarted(ToolFailure::new(Code::Unavailable, self.0)) })
    }
}

/// How much longer than it promises an executor may take before its attempt is given up.
const BACKSTOP: Duration = Duration::from_secs(2);

async fn execute(worker: &Worker, running: Running) -> Executed {
    let Running {
        claimed,
        attempt_id,
        tool,
        prepared,
        claim_sent,
        _in_flight,
    } = running;
    let until = claim_sent + Duration::from_millis(u64::try_from(claimed.timeout_ms).unwrap_or(0));
    let span = spans::step(Step::Execute);
    let inner = span.in_scope(|| spans::execute_tool(claimed.call_id, &tool.manifest.name));
    let context = AttemptContext {
        call_id: claimed.call_id,
        attempt_id,
        attempt: claimed.attempt,
        tool: tool.manifest.name.clone(),
        tool_version: claimed.tool_version,
        // The call's id: constant over its attempts, and another one once the caller's key has lapsed.
        idempotency_key: claimed.call_id.to_string(),
        deadline_at: claimed.attempt_until,
        until,
        tenant: claimed.tenant.clone(),
        session: claimed.session.clone(),
        run: claimed.run.clone(),
        meta: claimed
            .meta
            .clone()
            .and_then(|meta| serde_json::value::RawValue::from_string(meta).ok()),
        language: claimed.language,
        trace: trace::context_of(&inner, &claimed.trace),
        stop: worker.work.child_token(),
    };
    let started = Instant::now();
    // Checked again right before the first byte: the claim may have taken long.
    let outcome = if worker.may_start() {
        let running = AssertUnwindSafe(prepared.run(context))
            .catch_unwind()
            .instrument(inner.clone());
        match timeout_at(until + LINGER_MAX + BACKSTOP, running.instrument(span)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_panic)) => Outcome::Unknown(ToolFailure::new(
                Code::ToolCrashed,
                "the tool's executor panicked",
            )),
            Err(_elapsed) => Outcome::Unknown(ToolFailure::new(
                Code::Timeout,
                "the tool did not end in its time",
            )),
        }
    } else {
        Outcome::NotStarted(ToolFailure::new(
            Code::Unavailable,
            "the worker's lease ran out before the tool was started",
        ))
    };
    if let Some(failure) = outcome.failure() {
        spans::failed(&inner, failure.code);
    }
    metrics().executed(&tool.manifest.name, outcome.word(), started.elapsed());
    Executed {
        running: Finished {
            claimed,
            attempt_id,
            tool,
            claim_sent,
            _in_flight,
        },
        outcome,
    }
}

/// How long a completion waits for the ledger. Longer than any outage that a worker should live through.
const PATIENCE: Duration = Duration::from_secs(900);

async fn complete(worker: &Worker, executed: Executed) {
    let Executed { running, outcome } = executed;
    let Finished {
        claimed,
        attempt_id,
        tool,
        claim_sent,
        _in_flight,
    } = running;
    let (call, name) = (claimed.call_id, &tool.manifest.name);
    let mut ending = conclude(
        &claimed,
        attempt_id,
        &tool.manifest,
        &outcome,
        claim_sent.elapsed(),
        worker.actor(),
    );
    let recording = record(worker, &mut ending, &outcome).instrument(spans::step(Step::Complete));
    match recording.await {
        Ok(Some(ended)) => {
            metrics().ended(name, outcome.word());
            if !ended.state.answers_waiters() {
                metrics().retried(name);
            }
            reply(worker, call, &ended, ending)
                .instrument(spans::step(Step::Reply))
                .await;
        }
        Ok(None) => look_again(worker, call, attempt_id, ending, &outcome).await,
        Err(error) => {
            tracing::error!(
                error = report(&error),
                "an outcome could not be recorded; the sweep will decide without it"
            );
        }
    }
}

/// Completes. A result that Postgres refuses is left out: that the tool did it must not be lost with its answer.
async fn record(
    worker: &Worker,
    ending: &mut Ending,
    outcome: &Outcome,
) -> Result<Option<Ended>, StoreError> {
    match worker.completing.complete(ending, PATIENCE).await {
        Err(StoreError::Refused { .. }) if matches!(outcome, Outcome::Applied { .. }) => {
            tracing::warn!(
                "the ledger does not take the tool's answer; recording the outcome without it"
            );
            *ending = without_result(ending.clone());
            worker.completing.complete(ending, PATIENCE).await
        }
        recorded => recorded,
    }
}

/// The completion moved nothing. Zero rows is not an answer: the row is.
async fn look_again(
    worker: &Worker,
    call: CallId,
    attempt: AttemptId,
    ending: Ending,
    outcome: &Outcome,
) {
    let row = match find_patiently(worker, call).await {
        Some(row) => row,
        None => {
            metrics().fenced();
            tracing::error!("a completed call is not in the ledger");
            return;
        }
    };
    if row.attempt_id == Some(attempt) {
        if row.state.is_terminal() {
            tracing::debug!("this attempt had ended the call already");
            return;
        }
        // In doubt because of this very attempt: what it proves now settles it.
        if let Some(settling) = proven_not_applied(&ending, outcome) {
            match worker.completing.complete(&settling, PATIENCE).await {
                Ok(Some(ended)) => return reply(worker, call, &ended, settling).await,
                Ok(None) => {}
                Err(error) => tracing::error!(
                    error = report(&error),
                    "late evidence could not be recorded"
                ),
            }
        }
    }
    metrics().fenced();
    tracing::warn!(state = %row.state, outcome = %outcome.word(), "attempt was fenced: its outcome came too late to decide the call");
}

async fn find_patiently(worker: &Worker, call: CallId) -> Option<read::CallRow> {
    let mut reconnect = Reconnect::default();
    for _ in 0..20 {
        match read::find(&worker.pool, call).await {
            Ok(row) => return row,
            Err(error) => tracing::debug!(error = report(&error), "looking again"),
        }
        reconnect.pause().await;
    }
    None
}

/// Larger envelopes are read from the row by whoever waits.
const REPLY_MAX: usize = 512 * 1024;

async fn reply(worker: &Worker, call: CallId, ended: &Ended, ending: Ending) {
    if !ended.state.answers_waiters() {
        return;
    }
    let envelope = envelope(call, ended, ending.kind).map(|envelope| envelope.to_bytes());
    let limit = REPLY_MAX.min(worker.bus.payload_max().saturating_sub(4 * 1024));
    // Empty rings the bell only.
    let body = envelope
        .filter(|bytes| bytes.len() <= limit)
        .unwrap_or_default();
    let subject = worker.bus.subjects.done(ended.dispatcher, call);
    // A connection that is down takes a bounded number of messages and then blocks for ever.
    let telling = tokio::time::timeout(
        Duration::from_secs(2),
        worker.bus.client.publish(subject, body.into()),
    );
    if !matches!(telling.await, Ok(Ok(()))) {
        tracing::debug!("waiters were not told; they find out by themselves");
    }
}
