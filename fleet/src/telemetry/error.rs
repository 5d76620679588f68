//! Why telemetry could not be started.

use std::error::Error;

/// Why telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not valid.
    #[error(
        "TOOLFLEET_LOG is not a log filter; write a level or target=level, such as info,worker=debug"
    )]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// The collector's address is not valid. The value is left out: it may contain a password.
    #[error(
        "OTEL_EXPORTER_OTLP_ENDPOINT must be an http:// or https:// URL without user, password or query, \
         such as http://127.0.0.1:4318; credentials go into OTEL_EXPORTER_OTLP_HEADERS"
    )]
    Endpoint,
    /// The exporter of spans could not be built.
    #[error("build the exporter of spans")]
    Exporter(#[source] Box<dyn Error + Send + Sync>),
    /// The exporter of metrics could not be built.
    #[error("build the exporter of metrics")]
    Metrics(#[source] Box<dyn Error + Send + Sync>),
    /// Logs and metrics of a process are set up once.
    #[error("telemetry was already started in this process")]
    AlreadyStarted,
}
