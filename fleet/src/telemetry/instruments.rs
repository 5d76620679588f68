//! Makes the instruments of metrics, each from its definition.

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};

use super::definitions::Definition;

/// Buckets from half a millisecond, where a healthy ledger answers, to the longest ordinary timeout.
const SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Buckets up to the size at which a batch closes.
const ROWS: [f64; 10] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0,
];

pub(super) fn counter(meter: &Meter, define: Definition) -> Counter<u64> {
    meter
        .u64_counter(define.name)
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

/// A counter without labels. It stands at zero from the start: where one appears with its first event, Prometheus sees no increase.
pub(super) fn from_zero(meter: &Meter, define: Definition) -> Counter<u64> {
    let counter = counter(meter, define);
    counter.add(0, &[]);
    counter
}

pub(super) fn gauge(meter: &Meter, define: Definition) -> Gauge<u64> {
    meter
        .u64_gauge(define.name)
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

pub(super) fn exact(meter: &Meter, define: Definition) -> Gauge<f64> {
    meter
        .f64_gauge(define.name)
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

pub(super) fn seconds(meter: &Meter, define: Definition) -> Histogram<f64> {
    let histogram = meter
        .f64_histogram(define.name)
        .with_boundaries(SECONDS.to_vec());
    histogram
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

pub(super) fn rows(meter: &Meter, define: Definition) -> Histogram<u64> {
    let histogram = meter
        .u64_histogram(define.name)
        .with_boundaries(ROWS.to_vec());
    histogram
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}
