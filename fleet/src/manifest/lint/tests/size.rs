//! Large manifests: few warnings, and not much longer to find them.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::*;
use crate::manifest::lint::warnings::WARNINGS_MAX;

/// So many properties, each with a warning and with a default that does not fit.
fn wide(properties: usize) -> Manifest {
    let property = |n: usize| (format!("p {n}"), json!({"type": "array", "default": n % 2}));
    let properties: Map<String, Value> = (0..properties).map(property).collect();
    let mut manifest = manifest(&json!({"effect": "once"}));
    manifest.input_schema = json!({"type": "object", "properties": properties});
    manifest
}

fn looked_at(manifest: &Manifest) -> Vec<ManifestProblem> {
    let mut found = Warnings::default();
    schema::lint(&Linted::of(manifest), &mut found);
    let unfit = crate::arguments::unfit_defaults(&manifest.input_schema);
    let declared = manifest.input_schema["properties"]
        .as_object()
        .map(Map::len);
    assert_eq!(Some(unfit.len()), declared);
    found.bounded()
}

#[test]
fn the_warnings_about_a_large_schema_are_few() {
    let found = looked_at(&wide(490));
    assert_eq!(found.len(), WARNINGS_MAX + 1);
    assert!(
        found[WARNINGS_MAX].message.starts_with("and "),
        "{:?}",
        found[WARNINGS_MAX]
    );
}

#[test]
fn eight_times_the_schema_takes_no_longer_than_it_must() {
    // The time of this thread alone, and the shortest of several runs: the machine's other work makes no run shorter.
    let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let quickest = |manifest: &Manifest| {
        let time = |_| {
            let before = used();
            looked_at(manifest);
            used() - before
        };
        (0..9).map(time).min().unwrap()
    };
    let (small, large) = (quickest(&wide(60)), quickest(&wide(480)));
    // Linear would be 8, quadratic 64.
    assert!(large < small * 24, "{small:?}, then {large:?}");
}
