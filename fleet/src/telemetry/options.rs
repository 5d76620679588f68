//! What an operator chooses about logs and traces.

use clap::{Args, ValueEnum};

/// What an operator chooses about logs and traces.
#[derive(Debug, Clone, Args)]
pub struct TelemetryOptions {
    /// How a log line on stderr is written.
    #[arg(
        long,
        env = "TOOLFLEET_LOG_FORMAT",
        value_enum,
        default_value_t = LogFormat::Text,
        help_heading = "Telemetry"
    )]
    pub log_format: LogFormat,

    /// What is logged, as `level` or `target=level,…`, for example `info,worker=debug`.
    #[arg(
        long = "log",
        env = "TOOLFLEET_LOG",
        default_value = "info",
        value_name = "FILTER",
        help_heading = "Telemetry"
    )]
    pub log: String,

    /// The OTLP/HTTP collector that spans are sent to, for example `http://127.0.0.1:4318`; no spans without it.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        value_name = "URL",
        help_heading = "Telemetry"
    )]
    pub otlp_endpoint: Option<String>,

    /// The name of this service in traces and in `target_info`; `toolfleet-<process>` without it.
    #[arg(
        long,
        env = "OTEL_SERVICE_NAME",
        value_name = "NAME",
        help_heading = "Telemetry"
    )]
    pub service_name: Option<String>,
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self {
            log_format: LogFormat::Text,
            log: "info".to_owned(),
            otlp_endpoint: None,
            service_name: None,
        }
    }
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people: time, level, spans, target, message, fields.
    Text,
    /// For machines: one JSON object per line.
    Json,
}
