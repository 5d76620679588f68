//! The one set of metrics of this process, and its text for Prometheus.

use std::sync::{LazyLock, OnceLock};

use opentelemetry::{global, metrics::MeterProvider};
use opentelemetry_sdk::{
    Resource,
    metrics::{SdkMeterProvider, Stream},
};
use prometheus::{Registry, TextEncoder};

use super::{error::TelemetryError, labels::TOOLS_MAX, metrics::Metrics};
use crate::outcome::OutcomeWord;

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
        // The SDK folds label sets beyond 2,000 into one; tools times outcomes is more than that. What can be wrong with the
        // answer of a success are two outcomes more.
        let series_max = (TOOLS_MAX + 1) * (OutcomeWord::ALL.len() + 2);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        arguments::Rule,
        call::{Awaiting, CallOutcome, Source, State},
        ids::ToolName,
        modes::Brake,
        obstacle::Lack,
        store::{
            approvals::Ruling,
            model_calls::{EndedModelCall, SpentTokens},
        },
        telemetry::{
            definitions as define,
            figures::{LedgerFigures, QueueFigures},
            spans::AskedModel,
        },
        wire::code::Code,
    };

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
        metrics.coerced(&echo, Rule::Unwrap);
        metrics.rejected(Code::InvalidArguments, Some(&echo));
        metrics.rejected(Code::MalformedJson, None);
        metrics.refused_reply();
        metrics.unproven_answer();
        metrics.malformed_messages(|| 3);
        metrics.malformed_messages(|| 4);
        metrics.published(Duration::from_millis(1));
        metrics.released(Duration::from_millis(40));
        metrics.claimed(Duration::from_millis(1));
        metrics.skipped("terminal");
        metrics.looked(&echo, "hit");
        metrics.postponed(&echo, Lack::Secret);
        metrics.intercepted("redact", "continue");
        metrics.intercept_took("redact", Duration::from_millis(1), true);
        metrics.programs(3);
        metrics.corrected_permits(2);
        metrics.executed(&echo, OutcomeWord::Applied, Duration::from_millis(3));
        metrics.ended(&echo, OutcomeWord::Applied, None);
        metrics.ended(&echo, OutcomeWord::Applied, Some(Code::OutputInvalid));
        metrics.retried(&echo);
        metrics.tool_changed(&echo);
        metrics.route_misconfigured(&echo, "main");
        let asked = AskedModel {
            tool: &echo,
            route: "main",
            model: "large",
            provider: "openai",
        };
        let ended = EndedModelCall {
            run: Duration::from_millis(30),
            tokens: Some(SpentTokens {
                input: 1000,
                cached_input: 900,
                cache_write: 0,
                output: 7,
                reasoning: 3,
                estimated: false,
            }),
            cost: Some(("0.25".to_owned(), "USD".to_owned())),
            code: Some(Code::Timeout),
            ..EndedModelCall::default()
        };
        metrics.model_ended(&asked, &ended);
        metrics.waited_for_start(&echo, Duration::from_millis(700));
        metrics.suppressed(&echo);
        metrics.shortened(&echo);
        metrics.observed(&echo, Brake::Breaker);
        metrics.learned_timeout(&echo, Duration::from_millis(4_200));
        metrics.parked(&echo, Awaiting::Completion);
        metrics.ruled("echo", Ruling::Deny);
        metrics.replayed(&echo, true);
        metrics.finished(
            "echo",
            CallOutcome::Success,
            Source::Live,
            Duration::from_millis(7),
        );
        metrics.fenced();
        metrics.integrity_alarm();
        metrics.breaker_is_watched(&tool("calm"));
        metrics.has_retry_budget(&tool("calm"));
        metrics.repetitions_are_counted(&tool("calm"));
        metrics.breaker_opened(&echo);
        metrics.lost_lease();
        metrics.disposed_messages("ack");
        metrics.swept("republish", 2);
        metrics.wrote("claim", 7, Duration::from_millis(2));
        metrics.lost_answer("claim", true);
        metrics.ready("nats", false);
        metrics.refuses_server(true);
        metrics.answered_over_http("call", 200);
        metrics.answered_over_mcp("tools/call", "unknown_tool");
        metrics.streams(2);
        metrics.ended_stream("slow");
        metrics.told_gap();
        metrics.refused_connection("address");
        metrics.waiting(4);
        metrics.counted(LedgerFigures {
            queues: [(
                "default".to_owned(),
                QueueFigures {
                    calls: vec![(State::Queued, 5)],
                    oldest_age: Some(Duration::from_millis(1500)),
                    slots: 64,
                },
            )]
            .into(),
            held: 4,
            paused: 3,
            waiting: vec![(Awaiting::Client, 8)],
            oldest_waiting: vec![(Awaiting::Approval, Duration::from_secs(90))],
            breakers_open: 2,
            backlog: vec![(State::Queued, 5)],
            oldest_age: vec![(State::Queued, Duration::from_millis(1500))],
            in_doubt: 1,
            dead_letters: Some(9),
            quarantines: 2,
            oldest_snapshot: Duration::from_secs(3),
            lock_waiters: 6,
        });
        let text = exposition.text();
        for define in define::ALL {
            let kind = format!("{:?}", define.kind).to_lowercase();
            let line = format!("# TYPE {} {kind}\n", define.prometheus_name());
            assert!(text.contains(&line), "{line}{text}");
        }
        for line in [
            r#"toolfleet_rejected_calls_total{error_type="invalid_arguments",tool="echo"} 1"#,
            r#"toolfleet_rejected_calls_total{error_type="malformed_json"} 1"#,
            r#"toolfleet_ended_attempts_total{outcome="applied",tool="echo"} 1"#,
            r#"toolfleet_ended_attempts_total{error_type="output_invalid",outcome="applied",tool="echo"} 1"#,
            r#"toolfleet_execute_duration_seconds_bucket{outcome="applied",tool="echo",le="0.0025"} 0"#,
            r#"toolfleet_execute_duration_seconds_bucket{outcome="applied",tool="echo",le="0.005"} 1"#,
            r#"toolfleet_ledger_batch_rows_bucket{statement="claim",le="10"} 1"#,
            r#"toolfleet_lost_answers_total{found="done",statement="claim"} 1"#,
            r#"toolfleet_swept_calls_total{pass="republish"} 2"#,
            r#"toolfleet_model_tokens_total{kind="cached_input",route="main",tool="echo"} 900"#,
            r#"toolfleet_model_cost_total{currency="USD",route="main",tool="echo"} 0.25"#,
            r#"gen_ai_client_token_usage_bucket{gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="large",gen_ai_token_type="input",le="1024"} 1"#,
            r#"gen_ai_client_operation_duration_seconds_bucket{error_type="timeout",gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="large",le="0.04"} 1"#,
            r#"toolfleet_finished_calls_total{outcome="success",source="live",tool="echo"} 1"#,
            r#"toolfleet_call_duration_seconds_bucket{outcome="success",tool="echo",le="0.01"} 1"#,
            r#"toolfleet_decisions_total{decision="deny",tool="echo"} 1"#,
            r#"toolfleet_mcp_answers_total{code="unknown_tool",method="tools/call"} 1"#,
            r#"toolfleet_oldest_waiting_age_seconds{for="approval"} 90"#,
            r#"toolfleet_replayed_calls_total{key="caller",tool="echo"} 1"#,
            r#"toolfleet_queue_calls{queue="default",state="queued"} 5"#,
            r#"toolfleet_queue_oldest_age_seconds{queue="default"} 1.5"#,
            r#"toolfleet_queue_slots{queue="default"} 64"#,
            r#"toolfleet_oldest_age_seconds{state="queued"} 1.5"#,
            r#"toolfleet_postponed_calls_total{reason="secret",tool="echo"} 1"#,
            r#"toolfleet_intercept_verdicts_total{interceptor="redact",verdict="continue"} 1"#,
            r#"toolfleet_intercept_errors_total{interceptor="redact"} 1"#,
            r#"toolfleet_breaker_openings_total{tool="calm"} 0"#,
            r#"toolfleet_suppressed_retries_total{tool="calm"} 0"#,
            r#"toolfleet_rejected_calls_total{error_type="repeated_failure",tool="calm"} 0"#,
            r#"toolfleet_breaker_openings_total{tool="echo"} 1"#,
            "toolfleet_released_calls_total 1",
            r#"toolfleet_held_wait_seconds_bucket{le="0.05"} 1"#,
            "toolfleet_held 4",
            "toolfleet_paused 3",
            r#"toolfleet_waiting{for="client"} 8"#,
            "toolfleet_breakers_open 2",
            "toolfleet_in_doubt 1",
            "toolfleet_dead_letters 9",
            "toolfleet_quarantines 2",
            "toolfleet_lock_waiters 6",
            r#"toolfleet_ready{server="nats"} 0"#,
            "toolfleet_unsafe_ground 1",
            "toolfleet_waiters 4",
            "toolfleet_malformed_messages_total 7",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("otel_scope"), "{text}");
    }

    #[test]
    fn a_counter_without_labels_stands_at_zero_before_its_first_event() {
        let text = exposition().text();
        let is_plain = |define: &&define::Definition| {
            define.kind == define::MetricKind::Counter && define.labels.is_empty()
        };
        for define in define::ALL.iter().filter(is_plain) {
            let line = format!("\n{} 0\n", define.prometheus_name());
            assert!(text.contains(&line), "{line}{text}");
        }
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
                let tool = tool(&format!("tool_{number}"));
                exposition.metrics.ended(&tool, *outcome, None);
            }
            for useless in [Code::OutputInvalid, Code::OutputTooLarge] {
                let tool = tool(&format!("tool_{number}"));
                let (metrics, applied) = (&exposition.metrics, OutcomeWord::Applied);
                metrics.ended(&tool, applied, Some(useless));
            }
        }
        assert!(!exposition.text().contains("overflow"));
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
