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

/// Buckets of the convention for generative AI.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Buckets of the same convention, for requests that take from a moment to minutes.
const LONG_SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
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

/// A counter of what is no whole number.
pub(super) fn money(meter: &Meter, define: Definition) -> Counter<f64> {
    meter
        .f64_counter(define.name)
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

pub(super) fn long_seconds(meter: &Meter, define: Definition) -> Histogram<f64> {
    let histogram = meter
        .f64_histogram(define.name)
        .with_boundaries(LONG_SECONDS.to_vec());
    histogram
        .with_unit(define.unit)
        .with_description(define.help)
        .build()
}

pub(super) fn tokens(meter: &Meter, define: Definition) -> Histogram<u64> {
    let histogram = meter
        .u64_histogram(define.name)
        .with_boundaries(TOKENS.to_vec());
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
