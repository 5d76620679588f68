//! The metrics of this process, as verbs: `metrics().accepted(&tool)`.
//!
//! Before [`super::start`] every verb does nothing. Labels are closed sets: words of our enums, static words, and tool
//! names up to [`TOOLS_MAX`] of them.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use opentelemetry::{
    KeyValue, global,
    metrics::{Counter, Gauge, Histogram, Meter, MeterProvider},
};
use opentelemetry_sdk::{
    Resource,
    metrics::{SdkMeterProvider, Stream},
};
use prometheus::{Registry, TextEncoder};

use super::{
    TelemetryError,
    definitions::{self as define, Definition},
    fields,
};
use crate::{call::State, ids::ToolName, outcome::OutcomeWord, wire::code::Code};

/// How many tools have a label of their own; those first seen after that share `other`.
pub const TOOLS_MAX: usize = 500;

/// How long figures from Postgres are shown after they were read. Old figures are left out, never repeated.
pub const FIGURES_FRESH: Duration = Duration::from_secs(15);

/// The metrics of this process; they do nothing until telemetry is started.
pub fn metrics() -> &'static Metrics {
    static SILENT: LazyLock<Metrics> = LazyLock::new(|| Metrics::new(&global::meter("toolfleet")));
    INSTALLED
        .get()
        .map_or_else(|| &*SILENT, |installed| &installed.metrics)
}

/// The metrics of this process in Prometheus's text format; empty until telemetry is started.
pub fn metrics_text() -> String {
    INSTALLED.get().map(Exposition::text).unwrap_or_default()
}

/// What the dispatcher read from Postgres for a scrape.
#[derive(Debug, Clone, Default)]
pub struct LedgerFigures {
    /// Open calls per state.
    pub backlog: Vec<(State, u64)>,
    /// Age of the oldest open call per state; a state without calls is left out.
    pub oldest_age: Vec<(State, Duration)>,
    /// Calls in doubt.
    pub in_doubt: u64,
}

/// Every instrument, made once.
#[derive(Debug)]
pub struct Metrics {
    tools: ToolLabels,
    figures: Arc<Figures>,
    accepted_calls: Counter<u64>,
    rejected_calls: Counter<u64>,
    publish_lag: Histogram<f64>,
    queue_wait: Histogram<f64>,
    skipped_claims: Counter<u64>,
    execute_duration: Histogram<f64>,
    ended_attempts: Counter<u64>,
    retried_attempts: Counter<u64>,
    fenced_attempts: Counter<u64>,
    lost_leases: Counter<u64>,
    settled_messages: Counter<u64>,
    swept_calls: Counter<u64>,
    ledger_batch_rows: Histogram<u64>,
    ledger_duration: Histogram<f64>,
    waiters: Gauge<u64>,
}

impl Metrics {
    /// A call was committed for the first time.
    pub fn accepted(&self, tool: &ToolName) {
        self.accepted_calls.add(1, &[self.tools.label(tool)]);
    }

    /// A call was refused at the door.
    pub fn rejected(&self, code: Code) {
        self.rejected_calls
            .add(1, &[word(fields::ERROR_TYPE, code.as_str())]);
    }

    /// JetStream answered for a call's pointer, this long after its commit.
    pub fn published(&self, lag: Duration) {
        self.publish_lag.record(lag.as_secs_f64(), &[]);
    }

    /// A call was claimed, this long after it might have run.
    pub fn claimed(&self, wait: Duration) {
        self.queue_wait.record(wait.as_secs_f64(), &[]);
    }

    /// A pointer did not become an attempt.
    pub fn skipped(&self, reason: &'static str) {
        self.skipped_claims.add(1, &[word(fields::REASON, reason)]);
    }

    /// A tool ran this long.
    pub fn executed(&self, tool: &ToolName, outcome: OutcomeWord, ran: Duration) {
        let labels = [
            self.tools.label(tool),
            word(fields::OUTCOME, outcome.as_str()),
        ];
        self.execute_duration.record(ran.as_secs_f64(), &labels);
    }

    /// An attempt's outcome was recorded.
    pub fn ended(&self, tool: &ToolName, outcome: OutcomeWord) {
        let labels = [
            self.tools.label(tool),
            word(fields::OUTCOME, outcome.as_str()),
        ];
        self.ended_attempts.add(1, &labels);
    }

    /// An attempt ended, and another is due.
    pub fn retried(&self, tool: &ToolName) {
        self.retried_attempts.add(1, &[self.tools.label(tool)]);
    }

    /// An attempt's outcome came too late to decide the call.
    pub fn fenced(&self) {
        self.fenced_attempts.add(1, &[]);
    }

    /// The worker could not renew its lease in time.
    pub fn lost_lease(&self) {
        self.lost_leases.add(1, &[]);
    }

    /// NATS was told what became of a message.
    pub fn settled(&self, settlement: &'static str) {
        self.settled_messages
            .add(1, &[word(fields::SETTLEMENT, settlement)]);
    }

    /// A pass of the sweep moved this many calls.
    pub fn swept(&self, pass: &'static str, calls: u64) {
        self.swept_calls.add(calls, &[word(fields::PASS, pass)]);
    }

    /// A statement of the ledger was answered.
    pub fn wrote(&self, statement: &'static str, rows: usize, took: Duration) {
        let labels = [word(fields::STATEMENT, statement)];
        self.ledger_batch_rows.record(rows as u64, &labels);
        self.ledger_duration.record(took.as_secs_f64(), &labels);
    }

    /// This many callers are waiting for an answer here.
    pub fn waiting(&self, callers: usize) {
        self.waiters.record(callers as u64, &[]);
    }

    /// Shows these figures until they are [`FIGURES_FRESH`] old or replaced.
    pub fn counted(&self, figures: LedgerFigures) {
        self.figures.set(figures, Instant::now());
    }

    fn new(meter: &Meter) -> Self {
        let figures = Arc::new(Figures::default());
        observe(meter, &figures);
        Self {
            tools: ToolLabels::default(),
            figures,
            accepted_calls: counter(meter, define::ACCEPTED_CALLS),
            rejected_calls: counter(meter, define::REJECTED_CALLS),
            publish_lag: seconds(meter, define::PUBLISH_LAG),
            queue_wait: seconds(meter, define::QUEUE_WAIT),
            skipped_claims: counter(meter, define::SKIPPED_CLAIMS),
            execute_duration: seconds(meter, define::EXECUTE_DURATION),
            ended_attempts: counter(meter, define::ENDED_ATTEMPTS),
            retried_attempts: counter(meter, define::RETRIED_ATTEMPTS),
            fenced_attempts: counter(meter, define::FENCED_ATTEMPTS),
            lost_leases: counter(meter, define::LOST_LEASES),
            settled_messages: counter(meter, define::SETTLED_MESSAGES),
            swept_calls: counter(meter, define::SWEPT_CALLS),
            ledger_batch_rows: rows(meter, define::LEDGER_BATCH_ROWS),
            ledger_duration: seconds(meter, define::LEDGER_DURATION),
            waiters: gauge(meter, define::WAITERS),
        }
    }
}

static INSTALLED: OnceLock<Exposition> = OnceLock::new();

/// The metrics with what is needed to write them out.
#[derive(Debug)]
pub(super) struct Exposition {
    metrics: Metrics,
    registry: Registry,
    // The reader behind the registry goes silent when this is dropped.
    _provider: SdkMeterProvider,
}

impl Exposition {
    pub(super) fn new(resource: Resource) -> Result<Self, TelemetryError> {
        let registry = Registry::new();
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()
            .map_err(|error| TelemetryError::Metrics(Box::new(error)))?;
        // The SDK folds label sets past 2,000 into one; tools times outcomes is a little more than that.
        let series_max = (TOOLS_MAX + 1) * OutcomeWord::ALL.len();
        let provider = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_reader(reader)
            .with_view(move |_: &_| {
                Stream::builder()
                    .with_cardinality_limit(series_max)
                    .build()
                    .ok()
            })
            .build();
        let metrics = Metrics::new(&provider.meter("toolfleet"));
        Ok(Self {
            metrics,
            registry,
            _provider: provider,
        })
    }

    pub(super) fn install(self) -> Result<(), TelemetryError> {
        INSTALLED
            .set(self)
            .map_err(|_already| TelemetryError::AlreadyStarted)
    }

    fn text(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_else(|error| {
                tracing::error!(error = %error, "metrics could not be written out");
                String::new()
            })
    }
}

/// Buckets from half a millisecond, where a healthy ledger answers, to the longest ordinary timeout.
const SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Buckets up to the size at which a batch closes.
const ROWS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];

fn counter(meter: &Meter, define: Definition) -> Counter<u64> {
    meter
        .u64_counter(define.name)
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

fn gauge(meter: &Meter, define: Definition) -> Gauge<u64> {
    meter
        .u64_gauge(define.name)
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

fn seconds(meter: &Meter, define: Definition) -> Histogram<f64> {
    let histogram = meter
        .f64_histogram(define.name)
        .with_boundaries(SECONDS.to_vec());
    histogram
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

fn rows(meter: &Meter, define: Definition) -> Histogram<u64> {
    let histogram = meter
        .u64_histogram(define.name)
        .with_boundaries(ROWS.to_vec());
    histogram
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

/// Has the figures from Postgres read whenever metrics are written out. The handles that `build` returns carry
/// nothing: the meter keeps the callbacks.
fn observe(meter: &Meter, figures: &Arc<Figures>) {
    let define = define::BACKLOG;
    let source = Arc::clone(figures);
    let gauge = meter
        .u64_observable_gauge(define.name)
        .with_unit(define.unit)
        .with_description(define.help);
    gauge
        .with_callback(move |observer| {
            for (state, calls) in source
                .fresh(Instant::now())
                .iter()
                .flat_map(|figures| &figures.backlog)
            {
                observer.observe(*calls, &[word(fields::STATE, state.as_str())]);
            }
        })
        .build();

    let define = define::OLDEST_AGE;
    let source = Arc::clone(figures);
    let gauge = meter
        .f64_observable_gauge(define.name)
        .with_unit(define.unit)
        .with_description(define.help);
    gauge
        .with_callback(move |observer| {
            for (state, age) in source
                .fresh(Instant::now())
                .iter()
                .flat_map(|figures| &figures.oldest_age)
            {
                observer.observe(age.as_secs_f64(), &[word(fields::STATE, state.as_str())]);
            }
        })
        .build();

    let define = define::IN_DOUBT;
    let source = Arc::clone(figures);
    let gauge = meter
        .u64_observable_gauge(define.name)
        .with_unit(define.unit)
        .with_description(define.help);
    gauge
        .with_callback(move |observer| {
            if let Some(figures) = source.fresh(Instant::now()) {
                observer.observe(figures.in_doubt, &[]);
            }
        })
        .build();
}

fn word(label: &'static str, word: &'static str) -> KeyValue {
    KeyValue::new(label, word)
}

#[derive(Debug, Default)]
struct Figures(Mutex<Option<(Instant, LedgerFigures)>>);

impl Figures {
    fn set(&self, figures: LedgerFigures, at: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, figures));
    }

    fn fresh(&self, now: Instant) -> Option<LedgerFigures> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, figures) = held.as_ref()?;
        (now.saturating_duration_since(*at) < FIGURES_FRESH).then(|| figures.clone())
    }
}

/// Tool names come from manifests; a fleet that churns through them must not grow its metrics without end.
#[derive(Debug, Default)]
struct ToolLabels(RwLock<HashSet<Arc<str>>>);

impl ToolLabels {
    fn label(&self, tool: &ToolName) -> KeyValue {
        let known = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(tool.as_str())
            .cloned();
        let name = known.or_else(|| self.admit(tool.as_str()));
        name.map_or_else(
            || word(fields::TOOL, "other"),
            |name| KeyValue::new(fields::TOOL, name),
        )
    }

    fn admit(&self, tool: &str) -> Option<Arc<str>> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= TOOLS_MAX && !names.contains(tool) {
            return None;
        }
        let name: Arc<str> = Arc::from(tool);
        names.insert(Arc::clone(&name));
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposition() -> Exposition {
        Exposition::new(Resource::builder_empty().build()).unwrap()
    }

    fn tool(name: &str) -> ToolName {
        name.parse().unwrap()
    }

    #[test]
    fn every_definition_is_written_under_its_documented_name() {
        let exposition = exposition();
        let metrics = &exposition.metrics;
        let echo = tool("echo");
        metrics.accepted(&echo);
        metrics.rejected(Code::InvalidArguments);
        metrics.published(Duration::from_millis(1));
        metrics.claimed(Duration::from_millis(1));
        metrics.skipped("terminal");
        metrics.executed(&echo, OutcomeWord::Applied, Duration::from_millis(3));
        metrics.ended(&echo, OutcomeWord::Applied);
        metrics.retried(&echo);
        metrics.fenced();
        metrics.lost_lease();
        metrics.settled("ack");
        metrics.swept("republish", 2);
        metrics.wrote("claim", 7, Duration::from_millis(2));
        metrics.waiting(4);
        metrics.counted(LedgerFigures {
            backlog: vec![(State::Queued, 5)],
            oldest_age: vec![(State::Queued, Duration::from_millis(1500))],
            in_doubt: 1,
        });
        let text = exposition.text();
        for define in define::ALL {
            let kind = format!("{:?}", define.kind).to_lowercase();
            let line = format!("# TYPE {} {kind}\n", define.prometheus_name());
            assert!(text.contains(&line), "{line}{text}");
        }
        for line in [
            r#"toolfleet_rejected_calls_total{error_type="invalid_arguments"} 1"#,
            r#"toolfleet_ended_attempts_total{outcome="applied",tool="echo"} 1"#,
            r#"toolfleet_execute_duration_seconds_bucket{outcome="applied",tool="echo",le="0.0025"} 0"#,
            r#"toolfleet_execute_duration_seconds_bucket{outcome="applied",tool="echo",le="0.005"} 1"#,
            r#"toolfleet_ledger_batch_rows_bucket{statement="claim",le="10"} 1"#,
            r#"toolfleet_swept_calls_total{pass="republish"} 2"#,
            r#"toolfleet_oldest_age_seconds{state="queued"} 1.5"#,
            "toolfleet_in_doubt 1",
            "toolfleet_waiters 4",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("otel_scope"), "{text}");
    }

    #[test]
    fn tools_past_the_cap_share_one_label() {
        let exposition = exposition();
        for number in 0..TOOLS_MAX + 7 {
            exposition
                .metrics
                .accepted(&tool(&format!("tool_{number}")));
        }
        exposition.metrics.accepted(&tool("tool_0"));
        let text = exposition.text();
        assert!(
            text.contains(r#"toolfleet_accepted_calls_total{tool="other"} 7"#),
            "{text}"
        );
        assert!(
            text.contains(r#"toolfleet_accepted_calls_total{tool="tool_0"} 2"#),
            "{text}"
        );
    }

    #[test]
    fn all_tools_fit_with_all_outcomes() {
        let exposition = exposition();
        for number in 0..TOOLS_MAX + 1 {
            for outcome in OutcomeWord::ALL {
                exposition
                    .metrics
                    .ended(&tool(&format!("tool_{number}")), *outcome);
            }
        }
        assert!(!exposition.text().contains("overflow"));
    }

    #[test]
    fn old_figures_are_left_out() {
        let figures = Figures::default();
        let read_at = Instant::now();
        figures.set(LedgerFigures::default(), read_at);
        assert!(
            figures
                .fresh(read_at + FIGURES_FRESH - Duration::from_millis(1))
                .is_some()
        );
        assert!(figures.fresh(read_at + FIGURES_FRESH).is_none());
    }

    #[test]
    fn a_state_that_emptied_disappears() {
        let exposition = exposition();
        let queued = LedgerFigures {
            backlog: vec![(State::Queued, 5)],
            ..LedgerFigures::default()
        };
        exposition.metrics.counted(queued);
        assert!(exposition.text().contains("toolfleet_backlog{"));
        exposition.metrics.counted(LedgerFigures::default());
        assert!(!exposition.text().contains("toolfleet_backlog{"));
    }
}
