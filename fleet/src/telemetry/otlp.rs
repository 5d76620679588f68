//! Sends spans to a collector: OTLP over HTTP, in batches, from a thread of its own.
//!
//! The queue is bounded (`OTEL_BSP_MAX_QUEUE_SIZE`, 2048 spans): a collector that is slow or gone costs spans,
//! never a call.

use std::{error::Error, thread, time::Duration};

use axum::http::Uri;
use opentelemetry::{Key, KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use reqwest::{blocking::Client, redirect::Policy};
use rustls::crypto::{CryptoProvider, ring};
use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{filter::filter_fn, layer::Layer, registry::LookupSpan};

use super::error::TelemetryError;

/// How long one request to the collector may take, its repetitions included.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// The service. `OTEL_RESOURCE_ATTRIBUTES` is honoured; a name from our own settings wins over the one in there.
pub(super) fn resource(process: &str, service: Option<&str>) -> Resource {
    let detected = Resource::builder().build();
    let name = service.map(str::to_owned).unwrap_or_else(|| {
        let found = detected
            .get(&Key::from_static_str("service.name"))
            .map(|name| name.to_string());
        found
            .filter(|name| !name.starts_with("unknown_service"))
            .unwrap_or(format!("toolfleet-{process}"))
    });
    Resource::builder()
        .with_service_name(name)
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Batches spans and sends them to the collector at `endpoint`.
pub(super) fn provider(
    endpoint: &str,
    resource: Resource,
) -> Result<SdkTracerProvider, TelemetryError> {
    let plain = plain(endpoint).ok_or(TelemetryError::Endpoint)?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client(plain)?)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .with_timeout(REQUEST_MAX)
        .build()
        .map_err(|error| TelemetryError::Exporter(Box::new(error)))?;
    Ok(SdkTracerProvider::builder()
        .with_resource(resource)
        .with_batch_exporter(exporter)
        .build())
}

/// Whether this is a valid address of a collector.
pub(super) fn check(endpoint: &str) -> Result<(), TelemetryError> {
    plain(endpoint).map(drop).ok_or(TelemetryError::Endpoint)
}

/// Whether a valid address is plain HTTP. A password in it is refused, because the HTTP client logs addresses.
fn plain(endpoint: &str) -> Option<bool> {
    let uri: Uri = endpoint.parse().ok()?;
    if uri.query().is_some() || uri.authority()?.as_str().contains('@') {
        return None;
    }
    match uri.scheme_str()? {
        "http" => Some(true),
        "https" => Some(false),
        _ => None,
    }
}

/// Turns our spans into OpenTelemetry's. Spans of libraries are left out: they may contain what we never export.
pub(super) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("toolfleet"))
        // OpenTelemetry's own current context is not used, and keeping it costs time on every enter.
        .with_context_activation(false)
        .with_tracked_inactivity(false)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_level(false)
        .with_filter(filter_fn(exported).with_max_level_hint(LevelFilter::DEBUG))
}

fn exported(metadata: &Metadata<'_>) -> bool {
    let most = if metadata.is_span() {
        Level::DEBUG
    } else {
        Level::WARN
    };
    let root = metadata.target().split("::").next();
    *metadata.level() <= most
        && matches!(root, Some("fleet" | "dispatcher" | "worker" | "toolfleet"))
}

/// The blocking client, made on a thread of its own: making one inside a runtime panics.
///
/// The client needs a TLS provider and the system's certificates even when it never uses them. `main` has installed the
/// provider; plain HTTP must not depend on either.
fn client(plain: bool) -> Result<Client, TelemetryError> {
    if CryptoProvider::get_default().is_none() {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "it fails only when another thread was first, and then there is one"
        )]
        let _ = ring::default_provider().install_default();
    }
    let build = move || {
        let builder = Client::builder()
            .timeout(REQUEST_MAX)
            .redirect(Policy::none());
        if plain {
            builder.tls_certs_only([]).no_proxy().build()
        } else {
            builder.build()
        }
    };
    let failed = |error: Box<dyn Error + Send + Sync>| TelemetryError::Exporter(error);
    let made = thread::Builder::new()
        .name("otlp-client".to_owned())
        .spawn(build);
    let made = made.map_err(|error| failed(error.into()))?.join();
    made.map_err(|_panic| failed("the HTTP client panicked".into()))?
        .map_err(|error| failed(error.into()))
}
