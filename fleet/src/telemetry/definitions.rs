//! The metrics of Toolfleet, each defined once. Alerts and dashboards rely on the names; `docs/telemetry.md` lists them, and a
//! test compares the two.

use super::fields::{
    CODE, CURRENCY, DECISION, ERROR_TYPE, FOR, FOUND, GEN_AI_OPERATION_NAME, GEN_AI_PROVIDER_NAME,
    GEN_AI_REQUEST_MODEL, GEN_AI_TOKEN_TYPE, INTERCEPTOR, KEY, KIND, METHOD, OUTCOME, PASS, QUEUE,
    REASON, ROUTE, RULE, SERVER, SETTLEMENT, SOURCE, SPEAKER, STATE, STATEMENT, STATUS, TOOL,
    VERDICT,
};

/// One metric, as it is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// The OpenTelemetry name: no unit, no `_total`.
    pub name: &'static str,
    /// Counter, histogram or gauge.
    pub kind: MetricKind,
    /// The unit in UCUM; one in braces is a note for people and does not become part of a name.
    pub unit: &'static str,
    /// The labels, in the order in which they are documented.
    pub labels: &'static [&'static str],
    /// One clause: what is counted or measured.
    pub help: &'static str,
}

/// How the values of a metric relate to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows while the process lives.
    Counter,
    /// A distribution.
    Histogram,
    /// The value of now.
    Gauge,
}

impl Definition {
    /// The name in Prometheus, as the exporter writes it.
    pub fn prometheus_name(&self) -> String {
        let unit = if self.unit == "s" { "_seconds" } else { "" };
        let total = if self.kind == MetricKind::Counter {
            "_total"
        } else {
            ""
        };
        format!("{}{unit}{total}", self.name.replace('.', "_"))
    }
}

macro_rules! kind {
    (counter) => {
        MetricKind::Counter
    };
    (histogram) => {
        MetricKind::Histogram
    };
    (gauge) => {
        MetricKind::Gauge
    };
}

macro_rules! definitions {
    ($($constant:ident = $kind:ident($name:expr, $unit:expr, $labels:expr, $help:expr);)+) => {
        $(pub(super) const $constant: Definition = Definition {
            name: $name,
            kind: kind!($kind),
            unit: $unit,
            labels: $labels,
            help: $help,
        };)+

        /// Every metric, in the order of a call's life.
        pub const ALL: &[Definition] = &[$($constant),+];
    };
}

definitions! {
    ACCEPTED_CALLS = counter("toolfleet.accepted.calls", "{call}", &[TOOL],
        "Calls committed, each once");
    COERCED_ARGUMENTS = counter("toolfleet.coerced.arguments", "{value}", &[TOOL, RULE],
        "Values in the arguments of accepted calls that were corrected or filled in");
    REJECTED_CALLS = counter("toolfleet.rejected.calls", "{call}", &[TOOL, ERROR_TYPE],
        "Calls refused at the door");
    REFUSED_REPLIES = counter("toolfleet.refused.replies", "{request}", &[],
        "Requests dropped because no caller may be answered on the subject that they name");
    UNPROVEN_ANSWERS = counter("toolfleet.unproven.answers", "{message}", &[],
        "Messages that a call is decided which did not come from its worker: the waiting caller was answered from the row");
    MALFORMED_MESSAGES = counter("toolfleet.malformed.messages", "{message}", &[],
        "Messages from NATS whose subject, reply or headers cannot be read");
    PARKED_CALLS = counter("toolfleet.parked", "{call}", &[TOOL, FOR],
        "Calls whose tool answers later (completion) or has asked for something (input), each time");
    RULED_CALLS = counter("toolfleet.decisions", "{decision}", &[TOOL, DECISION],
        "Decisions about calls that wait for a yes");
    REPLAYED_CALLS = counter("toolfleet.replayed.calls", "{call}", &[TOOL, KEY],
        "Submissions that were answered with the call that their key names: each is a repetition that did not run");
    FINISHED_CALLS = counter("toolfleet.finished.calls", "{call}", &[TOOL, OUTCOME, SOURCE],
        "Calls that ended");
    CALL_DURATION = histogram("toolfleet.call.duration", "s", &[TOOL, OUTCOME],
        "From the acceptance of a call to its end");
    PUBLISH_LAG = histogram("toolfleet.publish.lag", "s", &[],
        "From the commit of a call to JetStream's answer to its pointer");
    RELEASED_CALLS = counter("toolfleet.released.calls", "{call}", &[],
        "Held calls handed to NATS when it was their turn");
    HELD_WAIT = histogram("toolfleet.held.wait", "s", &[],
        "From the moment a held call would have run to its release");
    CORRECTED_PERMITS = counter("toolfleet.corrected.permits", "{permit}", &[],
        "Pointers that a meter counted as under way without a permit for them; any is a defect of the dispatcher");
    QUEUE_WAIT = histogram("toolfleet.queue.wait", "s", &[],
        "From the moment a call may run to its claim");
    RATE_WAIT = histogram("toolfleet.rate.wait", "s", &[TOOL],
        "From the acceptance of a call of a tool with a rate limit to the start of its first attempt");
    SKIPPED_CLAIMS = counter("toolfleet.skipped.claims", "{claim}", &[REASON],
        "Pointers that did not become an attempt");
    CACHE_LOOKS = counter("toolfleet.cache.looks", "{call}", &[TOOL, FOUND],
        "Calls of tools with a cache, by what was found for them: hit, followed, miss, or alone for those without a part in it");
    BREAKER_OPENINGS = counter("toolfleet.breaker.openings", "{opening}", &[TOOL],
        "Times that a breaker opened, or opened again after a probe, by the worker whose report decided it");
    POSTPONED_CALLS = counter("toolfleet.postponed.calls", "{call}", &[TOOL, REASON],
        "Calls put back because this worker lacks something to run them, each as often as it is put back");
    INTERCEPT_VERDICTS = counter("toolfleet.intercept.verdicts", "{verdict}", &[INTERCEPTOR, VERDICT],
        "What the interceptors of a worker's program said of calls, and how often they changed an answer");
    INTERCEPT_DURATION = histogram("toolfleet.intercept.duration", "s", &[INTERCEPTOR],
        "How long hooks of interceptors took, each by itself");
    INTERCEPT_ERRORS = counter("toolfleet.intercept.errors", "{error}", &[INTERCEPTOR],
        "Hooks of interceptors that panicked, took longer than they may, or could not be called");
    PROGRAMS = gauge("toolfleet.programs", "{program}", &[],
        "Slots for programs that are taken on this worker");
    EXECUTE_DURATION = histogram("toolfleet.execute.duration", "s", &[TOOL, OUTCOME],
        "How long tools ran, per attempt");
    ENDED_ATTEMPTS = counter("toolfleet.ended.attempts", "{attempt}", &[TOOL, OUTCOME, ERROR_TYPE],
        "Attempts whose outcome was recorded");
    RETRIED_ATTEMPTS = counter("toolfleet.retried.attempts", "{attempt}", &[TOOL],
        "Attempts that ended with another attempt being due");
    CHANGED_TOOLS = counter("toolfleet.changed.tools", "{attempt}", &[TOOL],
        "Attempts that were not made, for an MCP server says something else of the tool than when it was applied");
    MISCONFIGURED_ROUTES = counter("toolfleet.misconfigured.routes", "{request}", &[TOOL, ROUTE],
        "Requests to a model that failed by what their route says: 401, 403, 404, or a redirect");
    MODEL_TOKENS = counter("toolfleet.model.tokens", "{token}", &[TOOL, ROUTE, KIND],
        "Tokens of requests to models: input with cached_input and cache_write in it, output with reasoning in it");
    MODEL_COST = counter("toolfleet.model.cost", "{money}", &[TOOL, ROUTE, CURRENCY],
        "What requests to models have cost, by the prices of their routes");
    GEN_AI_TOKEN_USAGE = histogram("gen_ai.client.token.usage", "{token}",
        &[GEN_AI_OPERATION_NAME, GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MODEL, GEN_AI_TOKEN_TYPE],
        "Tokens of a request to a model");
    GEN_AI_OPERATION_DURATION = histogram("gen_ai.client.operation.duration", "s",
        &[GEN_AI_OPERATION_NAME, GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MODEL, ERROR_TYPE],
        "How long a request to a model took");
    SUPPRESSED_RETRIES = counter("toolfleet.suppressed.retries", "{attempt}", &[TOOL],
        "Attempts that a tool's retry budget did not allow, or not yet");
    SHORTENED_RESULTS = counter("toolfleet.shortened.results", "{result}", &[TOOL],
        "Answers of which callers get a part");
    OBSERVED_BRAKES = counter("toolfleet.observed.brakes", "{call}", &[TOOL, INTERCEPTOR],
        "What a brake would have stopped whose mode is observe");
    LEARNED_TIMEOUT = gauge("toolfleet.learned.timeout", "s", &[TOOL],
        "The timeout that the fleet has learned for the tool's newest version, or its initial one");
    FENCED_ATTEMPTS = counter("toolfleet.fenced.attempts", "{attempt}", &[],
        "Attempts whose outcome came too late to decide the call");
    INTEGRITY_ALARMS = counter("toolfleet.integrity.alarms", "{alarm}", &[],
        "Late outcomes that say a call had its effect although it ended as one that had not");
    LOST_LEASES = counter("toolfleet.lost.leases", "{lease}", &[],
        "Leases of this worker that ran out before they were renewed");
    SETTLED_MESSAGES = counter("toolfleet.settled.messages", "{message}", &[SETTLEMENT],
        "Messages by what NATS was told about them");
    SWEPT_CALLS = counter("toolfleet.swept.calls", "{call}", &[PASS],
        "Calls that the sweep had to move");
    LOST_ANSWERS = counter("toolfleet.lost.answers", "{answer}", &[STATEMENT, FOUND],
        "Answers of Postgres that never came, by what was found when they were looked for");
    LEDGER_BATCH_ROWS = histogram("toolfleet.ledger.batch.rows", "{row}", &[STATEMENT],
        "Rows per statement of the ledger");
    LEDGER_DURATION = histogram("toolfleet.ledger.duration", "s", &[STATEMENT],
        "How long statements of the ledger took");
    READY = gauge("toolfleet.ready", "{server}", &[SERVER],
        "1 while this server answers this process and is safe to use, 0 while not");
    UNSAFE_GROUND = gauge("toolfleet.unsafe.ground", "{server}", &[],
        "1 while this process refuses to write to its Postgres");
    HTTP_ANSWERS = counter("toolfleet.http.answers", "{answer}", &[SPEAKER, STATUS],
        "Answers of this gateway over HTTP, by who speaks in them and by their status");
    MCP_ANSWERS = counter("toolfleet.mcp.answers", "{answer}", &[METHOD, CODE],
        "Requests over MCP that this gateway answered, by method and by what the answer came to");
    STREAMS = gauge("toolfleet.streams", "{stream}", &[],
        "Streams of events that followers have open at this gateway");
    ENDED_STREAMS = counter("toolfleet.ended.streams", "{stream}", &[REASON],
        "Streams of events that have ended at this gateway, by why");
    STREAM_GAPS = counter("toolfleet.stream.gaps", "{gap}", &[],
        "Times that a follower at this gateway was told that events are missing");
    REFUSED_CONNECTIONS = counter("toolfleet.refused.connections", "{connection}", &[REASON],
        "Connections that this gateway closed: at once, because there were as many as may be, in all or from their address; or because answers that were not read took the room of others");
    WAITERS = gauge("toolfleet.waiters", "{caller}", &[],
        "Callers this dispatcher holds an answer for");
    BACKLOG = gauge("toolfleet.backlog", "{call}", &[STATE],
        "Open calls, from Postgres");
    HELD = gauge("toolfleet.held", "{call}", &[],
        "Calls that wait in the ledger for their turn, from Postgres");
    BREAKERS_OPEN = gauge("toolfleet.breakers.open", "{breaker}", &[],
        "Breakers that are open or half-open, from Postgres; those that an operator forces open among them, and none that no call meets any more");
    PAUSED = gauge("toolfleet.paused", "{call}", &[],
        "Calls that wait for the end of a pause, from Postgres");
    WAITING = gauge("toolfleet.waiting", "{call}", &[FOR],
        "Calls that wait for somebody outside the fleet, from Postgres");
    OLDEST_WAITING_AGE = gauge("toolfleet.oldest.waiting.age", "s", &[FOR],
        "How long the oldest call has waited for somebody outside the fleet, from Postgres");
    OLDEST_AGE = gauge("toolfleet.oldest.age", "s", &[STATE],
        "Age of the oldest open call, from Postgres: since its last pause before an attempt was over, and since it was accepted where workers put it back for what they lack; calls that a pause, a breaker or their tool's limit holds have none");
    QUEUE_CALLS = gauge("toolfleet.queue.calls", "{call}", &[QUEUE, STATE],
        "Open calls of a queue, from Postgres");
    QUEUE_OLDEST_AGE = gauge("toolfleet.queue.oldest.age", "s", &[QUEUE],
        "Age of the queue's oldest call that waits for a worker, from Postgres, counted as toolfleet.oldest.age is");
    QUEUE_SLOTS = gauge("toolfleet.queue.slots", "{slot}", &[QUEUE],
        "Slots of the queue's live workers, from Postgres; one that pulls several queues counts in equal parts");
    IN_DOUBT = gauge("toolfleet.in_doubt", "{call}", &[],
        "Calls in doubt, from Postgres");
    DEAD_LETTERS = gauge("toolfleet.dead.letters", "{call}", &[],
        "Calls that failed by the system and were neither retried nor discarded, from Postgres; at most 100,000 are counted");
    QUARANTINES = gauge("toolfleet.quarantines", "{loss}", &[],
        "Times that Postgres was found to have lost writes, from Postgres");
    OLDEST_SNAPSHOT = gauge("toolfleet.oldest.snapshot", "s", &[],
        "Age of the oldest snapshot that keeps vacuum from the rows of the ledger, from Postgres");
    LOCK_WAITERS = gauge("toolfleet.lock.waiters", "{session}", &[],
        "Sessions of the fleet that wait for a lock, from Postgres");
}
