//! The metrics of this process, as verbs: `metrics().accepted(&tool)`.
//!
//! Before [`super::start`] every verb does nothing. Labels are bounded sets: words of our enums, static words, and at most
//! [`super::labels::TOOLS_MAX`] names of tools and [`super::labels::MODELS_MAX`] of models.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, Meter},
};

use super::{
    definitions as define, fields,
    figures::{Figures, LedgerFigures, observe},
    instruments::{counter, exact, from_zero, gauge, rows, seconds},
    labels::{ToolLabels, word},
    models::ModelMetrics,
    spans::AskedModel,
    sums::Sum,
};
use crate::{
    arguments::Rule,
    call::{Awaiting, CallOutcome, Source},
    ids::ToolName,
    modes::Brake,
    obstacle::Lack,
    outcome::OutcomeWord,
    store::{approvals::Ruling, model_calls::EndedModelCall},
    wire::code::Code,
};

/// Every instrument, made once.
#[derive(Debug)]
pub struct Metrics {
    tools: ToolLabels,
    models: ModelMetrics,
    figures: Arc<Figures>,
    accepted_calls: Counter<u64>,
    coerced_arguments: Counter<u64>,
    rejected_calls: Counter<u64>,
    ruled_calls: Counter<u64>,
    parked_calls: Counter<u64>,
    replayed_calls: Counter<u64>,
    finished_calls: Counter<u64>,
    call_duration: Histogram<f64>,
    refused_replies: Counter<u64>,
    unproven_answers: Counter<u64>,
    malformed_messages: Arc<Sum>,
    publish_lag: Histogram<f64>,
    released_calls: Counter<u64>,
    held_wait: Histogram<f64>,
    corrected_permits: Counter<u64>,
    queue_wait: Histogram<f64>,
    rate_wait: Histogram<f64>,
    skipped_claims: Counter<u64>,
    cache_looks: Counter<u64>,
    postponed_calls: Counter<u64>,
    intercept_verdicts: Counter<u64>,
    intercept_duration: Histogram<f64>,
    intercept_errors: Counter<u64>,
    programs: Gauge<u64>,
    execute_duration: Histogram<f64>,
    ended_attempts: Counter<u64>,
    retried_attempts: Counter<u64>,
    changed_tools: Counter<u64>,
    misconfigured_routes: Counter<u64>,
    suppressed_retries: Counter<u64>,
    shortened_results: Counter<u64>,
    observed_brakes: Counter<u64>,
    learned_timeout: Gauge<f64>,
    fenced_attempts: Counter<u64>,
    integrity_alarms: Counter<u64>,
    breaker_openings: Counter<u64>,
    lost_leases: Counter<u64>,
    disposed_messages: Counter<u64>,
    swept_calls: Counter<u64>,
    lost_answers: Counter<u64>,
    ledger_batch_rows: Histogram<u64>,
    ledger_duration: Histogram<f64>,
    ready: Gauge<u64>,
    unsafe_ground: Gauge<u64>,
    http_answers: Counter<u64>,
    mcp_answers: Counter<u64>,
    streams: Gauge<u64>,
    ended_streams: Counter<u64>,
    stream_gaps: Counter<u64>,
    refused_connections: Counter<u64>,
    waiters: Gauge<u64>,
}

impl Metrics {
    /// A call was committed for the first time.
    pub fn accepted(&self, tool: &ToolName) {
        self.accepted_calls.add(1, &[self.tools.label(tool)]);
    }

    /// One value in the arguments of an accepted call was changed.
    pub fn coerced(&self, tool: &ToolName, rule: Rule) {
        let labels = [self.tools.label(tool), word(fields::RULE, rule.as_str())];
        self.coerced_arguments.add(1, &labels);
    }

    /// A call was refused at the door. Only a tool that exists is named: callers must not be able to make labels.
    pub fn rejected(&self, code: Code, tool: Option<&ToolName>) {
        let code = word(fields::ERROR_TYPE, code.as_str());
        match tool {
            Some(tool) => self.rejected_calls.add(1, &[self.tools.label(tool), code]),
            None => self.rejected_calls.add(1, &[code]),
        }
    }

    /// A failure was counted as a repetition: the series of what is refused for those begins at zero.
    pub fn repetitions_are_counted(&self, tool: &ToolName) {
        let code = word(fields::ERROR_TYPE, Code::RepeatedFailure.as_str());
        self.rejected_calls.add(0, &[self.tools.label(tool), code]);
    }

    /// Somebody decided about a call that waits for a yes.
    pub fn ruled(&self, tool: &str, ruling: Ruling) {
        let attributes = [
            self.tools.label_of(tool),
            word(fields::DECISION, ruling.as_str()),
        ];
        self.ruled_calls.add(1, &attributes);
    }

    /// A call waits for its tool, or for its caller.
    pub fn parked(&self, tool: &ToolName, whom: Awaiting) {
        let attributes = [
            self.tools.label_of(tool.as_str()),
            word(fields::FOR, whom.as_str()),
        ];
        self.parked_calls.add(1, &attributes);
    }

    /// A submission was answered with the call that its key names.
    pub fn replayed(&self, tool: &ToolName, by_callers_key: bool) {
        let key = if by_callers_key {
            "caller"
        } else {
            "arguments"
        };
        self.replayed_calls
            .add(1, &[self.tools.label(tool), word(fields::KEY, key)]);
    }

    /// A call ended, so long after it was accepted.
    pub fn finished(&self, tool: &str, outcome: CallOutcome, source: Source, took: Duration) {
        let tool = self.tools.label_of(tool);
        let outcome = word(fields::OUTCOME, outcome.as_str());
        self.call_duration
            .record(took.as_secs_f64(), &[tool.clone(), outcome.clone()]);
        self.finished_calls
            .add(1, &[tool, outcome, word(fields::SOURCE, source.as_str())]);
    }

    /// A request was dropped because it may not be answered where it asks for it.
    pub fn refused_reply(&self) {
        self.refused_replies.add(1, &[]);
    }

    /// A message said without a proof how a call that is waited for was decided.
    pub fn unproven_answer(&self) {
        self.unproven_answers.add(1, &[]);
    }

    /// From now on this count, which only grows, is part of the malformed messages of this process.
    pub fn malformed_messages(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.malformed_messages.add(count);
    }

    /// NATS acknowledged a call's pointer, this long after its commit.
    pub fn published(&self, lag: Duration) {
        self.publish_lag.record(lag.as_secs_f64(), &[]);
    }

    /// A held call was released, after this time.
    pub fn released(&self, held: Duration) {
        self.released_calls.add(1, &[]);
        self.held_wait.record(held.as_secs_f64(), &[]);
    }

    /// A meter of the dispatcher was corrected by so many permits.
    pub fn corrected_permits(&self, permits: u64) {
        self.corrected_permits.add(permits, &[]);
    }

    /// A call was claimed, this long after it could have run.
    pub fn claimed(&self, wait: Duration) {
        self.queue_wait.record(wait.as_secs_f64(), &[]);
    }

    /// The first attempt of a call of a tool with a rate limit has started, this long after its acceptance.
    pub fn waited_for_start(&self, tool: &ToolName, wait: Duration) {
        self.rate_wait
            .record(wait.as_secs_f64(), &[self.tools.label(tool)]);
    }

    /// A pointer did not become an attempt.
    pub fn skipped(&self, reason: &'static str) {
        self.skipped_claims.add(1, &[word(fields::REASON, reason)]);
    }

    /// A kept answer was looked for; `found`: hit, followed, miss or alone.
    pub fn looked(&self, tool: &ToolName, found: &'static str) {
        let labels = [self.tools.label(tool), word(fields::FOUND, found)];
        self.cache_looks.add(1, &labels);
    }

    /// This worker puts a call back because it lacks something.
    pub fn postponed(&self, tool: &ToolName, lack: Lack) {
        let labels = [self.tools.label(tool), word(fields::REASON, lack.as_str())];
        self.postponed_calls.add(1, &labels);
    }

    /// An interceptor has said this of a call. A program has few of them, and their names are its own.
    pub fn intercepted(&self, interceptor: &str, verdict: &'static str) {
        let labels = [named(interceptor), word(fields::VERDICT, verdict)];
        self.intercept_verdicts.add(1, &labels);
    }

    /// A hook of an interceptor took this long, and failed or did not.
    pub fn intercept_took(&self, interceptor: &str, took: Duration, has_failed: bool) {
        let label = [named(interceptor)];
        self.intercept_duration.record(took.as_secs_f64(), &label);
        if has_failed {
            self.intercept_errors.add(1, &label);
        }
    }

    /// This many program slots are taken here.
    pub fn programs(&self, taken: usize) {
        self.programs.record(taken as u64, &[]);
    }

    /// A tool ran this long.
    pub fn executed(&self, tool: &ToolName, outcome: OutcomeWord, ran: Duration) {
        let labels = [
            self.tools.label(tool),
            word(fields::OUTCOME, outcome.as_str()),
        ];
        self.execute_duration.record(ran.as_secs_f64(), &labels);
    }

    /// An attempt's outcome was recorded; of a success, with why its answer cannot be used.
    pub fn ended(&self, tool: &ToolName, outcome: OutcomeWord, useless: Option<Code>) {
        let tool = self.tools.label(tool);
        let outcome = word(fields::OUTCOME, outcome.as_str());
        match useless.map(|code| word(fields::ERROR_TYPE, code.as_str())) {
            Some(code) => self.ended_attempts.add(1, &[tool, outcome, code]),
            None => self.ended_attempts.add(1, &[tool, outcome]),
        }
    }

    /// An attempt ended, and another is due.
    pub fn retried(&self, tool: &ToolName) {
        self.retried_attempts.add(1, &[self.tools.label(tool)]);
    }

    /// A tool of an MCP server can be run here: the series of its changes begins at zero.
    pub fn has_pinned_tool(&self, tool: &ToolName) {
        self.changed_tools.add(0, &[self.tools.label(tool)]);
    }

    /// An attempt was not made, for its MCP server says something else of the tool than when it was applied.
    pub fn tool_changed(&self, tool: &ToolName) {
        self.changed_tools.add(1, &[self.tools.label(tool)]);
    }

    /// A route of a model can be asked here: the series of its refusals begins at zero.
    pub fn has_route(&self, tool: &ToolName, route: &str) {
        self.misconfigured_routes.add(0, &self.route(tool, route));
    }

    /// A model's server refused a request for what its route says.
    pub fn route_misconfigured(&self, tool: &ToolName, route: &str) {
        self.misconfigured_routes.add(1, &self.route(tool, route));
    }

    /// A request to a model is over.
    pub fn model_ended(&self, asked: &AskedModel<'_>, ended: &EndedModelCall) {
        let route = self.route(asked.tool, asked.route);
        self.models.ended(route, asked, ended);
    }

    fn route(&self, tool: &ToolName, route: &str) -> [KeyValue; 2] {
        let route = KeyValue::new(fields::ROUTE, route.to_owned());
        [self.tools.label(tool), route]
    }

    /// A tool has a retry budget here: the series of what that suppresses begins at zero.
    pub fn has_retry_budget(&self, tool: &ToolName) {
        self.suppressed_retries.add(0, &[self.tools.label(tool)]);
    }

    /// A tool's retry budget had no token for another attempt.
    pub fn suppressed(&self, tool: &ToolName) {
        self.suppressed_retries.add(1, &[self.tools.label(tool)]);
    }

    /// Callers get a part of a tool's answer.
    pub fn shortened(&self, tool: &ToolName) {
        self.shortened_results.add(1, &[self.tools.label(tool)]);
    }

    /// A brake would have stopped a call, or an attempt of it, and only observes.
    pub fn observed(&self, tool: &ToolName, brake: Brake) {
        let labels = [
            self.tools.label(tool),
            word(fields::INTERCEPTOR, brake.as_str()),
        ];
        self.observed_brakes.add(1, &labels);
    }

    /// How long the next first attempt of a tool may take whose timeout is learned.
    pub fn learned_timeout(&self, tool: &ToolName, timeout: Duration) {
        self.learned_timeout
            .record(timeout.as_secs_f64(), &[self.tools.label(tool)]);
    }

    /// An attempt's outcome came too late to decide the call.
    pub fn fenced(&self) {
        self.fenced_attempts.add(1, &[]);
    }

    /// A late outcome says that a call had its effect, and the call ended as one without.
    pub fn integrity_alarm(&self) {
        self.integrity_alarms.add(1, &[]);
    }

    /// Attempts of a tool with a breaker are counted: the series of its openings begins at zero.
    pub fn breaker_is_watched(&self, tool: &ToolName) {
        self.breaker_openings.add(0, &[self.tools.label(tool)]);
    }

    /// A breaker opened, by a report of this worker.
    pub fn breaker_opened(&self, tool: &ToolName) {
        self.breaker_openings.add(1, &[self.tools.label(tool)]);
    }

    /// A lease of the worker ran out before it was renewed.
    pub fn lost_lease(&self) {
        self.lost_leases.add(1, &[]);
    }

    /// NATS was told what became of a message.
    pub fn disposed_messages(&self, settlement: &'static str) {
        self.disposed_messages
            .add(1, &[word(fields::SETTLEMENT, settlement)]);
    }

    /// A pass of the sweep moved this many calls.
    pub fn swept(&self, pass: &'static str, calls: u64) {
        self.swept_calls.add(calls, &[word(fields::PASS, pass)]);
    }

    /// Postgres did not answer a statement, and it was found out whether it had been executed.
    pub fn lost_answer(&self, statement: &'static str, was_done: bool) {
        let found = if was_done { "done" } else { "not_done" };
        let labels = [
            word(fields::STATEMENT, statement),
            word(fields::FOUND, found),
        ];
        self.lost_answers.add(1, &labels);
    }

    /// A statement of the ledger was answered.
    pub fn wrote(&self, statement: &'static str, rows: usize, took: Duration) {
        let labels = [word(fields::STATEMENT, statement)];
        self.ledger_batch_rows.record(rows as u64, &labels);
        self.ledger_duration.record(took.as_secs_f64(), &labels);
    }

    /// Whether this server answers this process.
    pub fn ready(&self, server: &'static str, is_ready: bool) {
        let labels = [word(fields::SERVER, server)];
        self.ready.record(u64::from(is_ready), &labels);
    }

    /// Whether this process refuses to write to its Postgres.
    pub fn refuses_server(&self, refuses: bool) {
        self.unsafe_ground.record(u64::from(refuses), &[]);
    }

    /// A request over HTTP was answered, by `speaker`.
    pub fn answered_over_http(&self, speaker: &'static str, status: u16) {
        let status = KeyValue::new(fields::STATUS, i64::from(status));
        let labels = [word(fields::SPEAKER, speaker), status];
        self.http_answers.add(1, &labels);
    }

    /// A request over MCP was answered. Both words are of the program: what a client says is none.
    pub fn answered_over_mcp(&self, method: &'static str, code: &'static str) {
        let labels = [word(fields::METHOD, method), word(fields::CODE, code)];
        self.mcp_answers.add(1, &labels);
    }

    /// This many streams of events are open.
    pub fn streams(&self, open: usize) {
        self.streams.record(open as u64, &[]);
    }

    /// A stream of events has ended.
    pub fn ended_stream(&self, reason: &'static str) {
        self.ended_streams.add(1, &[word(fields::REASON, reason)]);
    }

    /// A follower was told that events are missing.
    pub fn told_gap(&self) {
        self.stream_gaps.add(1, &[]);
    }

    /// A connection was closed at once, for there were as many as may be.
    pub fn refused_connection(&self, reason: &'static str) {
        self.refused_connections
            .add(1, &[word(fields::REASON, reason)]);
    }

    /// This many callers are waiting for an answer here.
    pub fn waiting(&self, callers: usize) {
        self.waiters.record(callers as u64, &[]);
    }

    /// Shows these figures until they are [`super::figures::FIGURES_FRESH`] old or replaced.
    pub fn counted(&self, figures: LedgerFigures) {
        self.figures.set(figures, Instant::now());
    }

    pub(super) fn new(meter: &Meter) -> Self {
        let figures = Arc::new(Figures::default());
        observe(meter, &figures);
        let malformed_messages = Arc::new(Sum::default());
        malformed_messages.observe(meter, define::MALFORMED_MESSAGES);
        Self {
            tools: ToolLabels::default(),
            models: ModelMetrics::new(meter),
            figures,
            accepted_calls: counter(meter, define::ACCEPTED_CALLS),
            coerced_arguments: counter(meter, define::COERCED_ARGUMENTS),
            rejected_calls: counter(meter, define::REJECTED_CALLS),
            ruled_calls: counter(meter, define::RULED_CALLS),
            parked_calls: counter(meter, define::PARKED_CALLS),
            replayed_calls: counter(meter, define::REPLAYED_CALLS),
            finished_calls: counter(meter, define::FINISHED_CALLS),
            call_duration: seconds(meter, define::CALL_DURATION),
            refused_replies: from_zero(meter, define::REFUSED_REPLIES),
            unproven_answers: from_zero(meter, define::UNPROVEN_ANSWERS),
            malformed_messages,
            publish_lag: seconds(meter, define::PUBLISH_LAG),
            released_calls: from_zero(meter, define::RELEASED_CALLS),
            held_wait: seconds(meter, define::HELD_WAIT),
            corrected_permits: from_zero(meter, define::CORRECTED_PERMITS),
            queue_wait: seconds(meter, define::QUEUE_WAIT),
            rate_wait: seconds(meter, define::RATE_WAIT),
            skipped_claims: counter(meter, define::SKIPPED_CLAIMS),
            cache_looks: counter(meter, define::CACHE_LOOKS),
            postponed_calls: counter(meter, define::POSTPONED_CALLS),
            intercept_verdicts: counter(meter, define::INTERCEPT_VERDICTS),
            intercept_duration: seconds(meter, define::INTERCEPT_DURATION),
            intercept_errors: counter(meter, define::INTERCEPT_ERRORS),
            programs: gauge(meter, define::PROGRAMS),
            execute_duration: seconds(meter, define::EXECUTE_DURATION),
            ended_attempts: counter(meter, define::ENDED_ATTEMPTS),
            retried_attempts: counter(meter, define::RETRIED_ATTEMPTS),
            changed_tools: counter(meter, define::CHANGED_TOOLS),
            misconfigured_routes: counter(meter, define::MISCONFIGURED_ROUTES),
            suppressed_retries: counter(meter, define::SUPPRESSED_RETRIES),
            shortened_results: counter(meter, define::SHORTENED_RESULTS),
            observed_brakes: counter(meter, define::OBSERVED_BRAKES),
            learned_timeout: exact(meter, define::LEARNED_TIMEOUT),
            fenced_attempts: from_zero(meter, define::FENCED_ATTEMPTS),
            integrity_alarms: from_zero(meter, define::INTEGRITY_ALARMS),
            breaker_openings: counter(meter, define::BREAKER_OPENINGS),
            lost_leases: from_zero(meter, define::LOST_LEASES),
            disposed_messages: counter(meter, define::SETTLED_MESSAGES),
            swept_calls: counter(meter, define::SWEPT_CALLS),
            lost_answers: counter(meter, define::LOST_ANSWERS),
            ledger_batch_rows: rows(meter, define::LEDGER_BATCH_ROWS),
            ledger_duration: seconds(meter, define::LEDGER_DURATION),
            ready: gauge(meter, define::READY),
            unsafe_ground: gauge(meter, define::UNSAFE_GROUND),
            http_answers: counter(meter, define::HTTP_ANSWERS),
            mcp_answers: counter(meter, define::MCP_ANSWERS),
            streams: gauge(meter, define::STREAMS),
            ended_streams: counter(meter, define::ENDED_STREAMS),
            stream_gaps: from_zero(meter, define::STREAM_GAPS),
            refused_connections: counter(meter, define::REFUSED_CONNECTIONS),
            waiters: gauge(meter, define::WAITERS),
        }
    }
}

fn named(interceptor: &str) -> KeyValue {
    KeyValue::new(fields::INTERCEPTOR, interceptor.to_owned())
}
