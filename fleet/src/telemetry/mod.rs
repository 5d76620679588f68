//! What a process reports about itself: logs on stderr, spans to an OTLP collector, metrics for Prometheus.
//!
//! Only this folder knows the exporters. Names of fields are in [`fields`], names of metrics in [`definitions`]; both are
//! promises. Arguments, results, keys and secrets never go into either.
//!
//! Order matters: [`start`] comes first in `main`, before the runtime or inside it; [`Telemetry::shutdown`] last.

pub mod definitions;
mod error;
mod exposition;
pub mod fields;
pub mod figures;
mod instruments;
pub mod labels;
mod logs;
pub mod metrics;
mod models;
mod options;
mod otlp;
pub mod spans;
mod sums;
pub mod trace;

use std::{error::Error, time::Duration};

use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

pub use self::{
    error::TelemetryError,
    exposition::{metrics, metrics_text},
    figures::LedgerFigures,
    options::{LogFormat, TelemetryOptions},
};

use crate::explain::chain;

/// How long [`Telemetry::shutdown`] waits for the last spans to leave.
pub const FLUSH_MAX: Duration = Duration::from_secs(5);

/// Keeps spans being sent. Dropping it flushes them, so an early return loses none.
#[must_use = "spans are flushed when this is shut down or dropped"]
#[derive(Debug)]
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// The metrics of this process in Prometheus's text format.
    pub fn metrics_text(&self) -> String {
        metrics_text()
    }

    /// Sends the last spans, waiting at most [`FLUSH_MAX`].
    ///
    /// Blocks the thread; inside a runtime that serves others, call it from `spawn_blocking`.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(spans) = self.spans.take()
            && let Err(error) = spans.shutdown_with_timeout(FLUSH_MAX)
        {
            tracing::warn!(error = %error, "the last spans did not reach the collector");
        }
    }
}

/// Whether [`start`] would take these options. Nothing is installed.
///
/// # Errors
///
/// The filter is not valid, or the collector's address is not.
pub fn check(options: &TelemetryOptions) -> Result<(), TelemetryError> {
    logs::check(&options.log)?;
    let endpoint = options.otlp_endpoint.as_deref();
    endpoint
        .filter(|endpoint| !endpoint.is_empty())
        .map_or(Ok(()), otlp::check)
}

/// Starts logs, metrics and, when a collector is named, spans, for the whole process. `process` is its role:
/// `dispatcher`, `worker`, …
///
/// May be called inside or outside a runtime.
///
/// # Errors
///
/// Nothing is installed when it fails, except that a second call leaves the first in place.
pub fn start(
    process: &'static str,
    options: &TelemetryOptions,
) -> Result<Telemetry, TelemetryError> {
    let service = options
        .service_name
        .as_deref()
        .filter(|name| !name.is_empty());
    let resource = otlp::resource(process, service);
    let lines = logs::layer(options.log_format, &options.log, std::io::stderr)?;
    let spans = match options
        .otlp_endpoint
        .as_deref()
        .filter(|endpoint| !endpoint.is_empty())
    {
        Some(endpoint) => Some(otlp::provider(endpoint, resource.clone())?),
        None => None,
    };
    let exposition = exposition::Exposition::new(resource)?;
    tracing_subscriber::registry()
        .with(lines)
        .with(spans.as_ref().map(otlp::layer))
        .try_init()
        .map_err(|_already| TelemetryError::AlreadyStarted)?;
    exposition.install()?;
    Ok(Telemetry { spans })
}

/// The error with its causes on one line, for a log field: `claim call: connection closed: broken pipe`.
pub fn report(error: &(dyn Error + 'static)) -> String {
    chain(error)
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    #[test]
    fn a_report_tells_the_whole_chain() {
        let cause = std::io::Error::other("broken pipe");
        let error = TelemetryError::Exporter(Box::new(cause));
        assert_eq!(report(&error), "build the exporter of spans: broken pipe");
    }

    #[test]
    fn settings_come_from_flags() {
        let command = TelemetryOptions::augment_args(clap::Command::new("toolfleet"));
        let flags = [
            "toolfleet",
            "--log",
            "worker=debug",
            "--log-format",
            "json",
            "--service-name",
            "mine",
        ];
        let matches = command.try_get_matches_from(flags).unwrap();
        let options = TelemetryOptions::from_arg_matches(&matches).unwrap();
        assert_eq!(options.log, "worker=debug");
        assert_eq!(options.log_format, LogFormat::Json);
        assert_eq!(options.service_name.as_deref(), Some("mine"));
    }

    #[test]
    fn a_bad_setting_is_refused_by_its_name() {
        let wrong = TelemetryOptions {
            log: "info,=,".to_owned(),
            ..TelemetryOptions::default()
        };
        let error = start("test", &wrong).unwrap_err().to_string();
        assert!(error.contains("TOOLFLEET_LOG"), "{error}");
        for endpoint in [
            "127.0.0.1:4318",
            "ftp://host/",
            "http://",
            "http://user:secret@host/",
            "http://host/?a=1",
        ] {
            let endpoint = Some(endpoint.to_owned());
            let wrong = TelemetryOptions {
                otlp_endpoint: endpoint,
                ..TelemetryOptions::default()
            };
            let error = start("test", &wrong).unwrap_err().to_string();
            assert!(error.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
