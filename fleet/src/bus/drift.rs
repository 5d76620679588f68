//! Settings of the stream or of a consumer that differ from ours.
//!
//! Dispatchers change nothing that exists, so a stream that a person made or edited stays as it is.

use std::fmt::Debug;

use async_nats::jetstream::{consumer, stream};

/// One setting that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The setting, with its value and the value that it should have.
    pub what: String,
    /// Whether calls may be overlooked, refused or run twice because of it; else it only makes something slower.
    pub breaks: bool,
}

/// The settings of the stream that differ. Replicas, placement, compression and metadata are the operator's choice.
pub fn of_stream(wanted: &stream::Config, found: &stream::Config) -> Vec<Drift> {
    let mut drift = Drifts::default();
    drift.breaks("subjects", &wanted.subjects, &found.subjects);
    drift.breaks("retention", &wanted.retention, &found.retention);
    drift.breaks("discard", &wanted.discard, &found.discard);
    drift.breaks(
        "discard_new_per_subject",
        &wanted.discard_new_per_subject,
        &found.discard_new_per_subject,
    );
    drift.breaks(
        "max_msgs_per_subject",
        &wanted.max_messages_per_subject,
        &found.max_messages_per_subject,
    );
    drift.breaks("no_ack", &wanted.no_ack, &found.no_ack);
    drift.breaks("sealed", &wanted.sealed, &found.sealed);
    drift.breaks("deny_purge", &wanted.deny_purge, &found.deny_purge);
    drift.slows("storage", &wanted.storage, &found.storage);
    drift.slows("max_age", &wanted.max_age, &found.max_age);
    drift.slows(
        "max_msgs",
        &limit(wanted.max_messages),
        &limit(found.max_messages),
    );
    drift.slows(
        "max_bytes",
        &limit(wanted.max_bytes),
        &limit(found.max_bytes),
    );
    drift.0
}

/// The settings of a consumer that differ.
pub fn of_consumer(wanted: &consumer::Config, found: &consumer::Config) -> Vec<Drift> {
    let mut drift = Drifts::default();
    let filters = |config: &consumer::Config| {
        let mut filters = config.filter_subjects.clone();
        filters.extend((!config.filter_subject.is_empty()).then(|| config.filter_subject.clone()));
        filters
    };
    drift.breaks("filter_subject", &filters(wanted), &filters(found));
    drift.breaks(
        "deliver_subject",
        &wanted.deliver_subject,
        &found.deliver_subject,
    );
    drift.breaks(
        "deliver_policy",
        &wanted.deliver_policy,
        &found.deliver_policy,
    );
    drift.breaks("ack_policy", &wanted.ack_policy, &found.ack_policy);
    drift.breaks(
        "max_deliver",
        &limit(wanted.max_deliver),
        &limit(found.max_deliver),
    );
    drift.breaks("headers_only", &wanted.headers_only, &found.headers_only);
    drift.slows("ack_wait", &wanted.ack_wait, &found.ack_wait);
    drift.slows("backoff", &wanted.backoff, &found.backoff);
    drift.slows("rate_limit", &wanted.rate_limit, &found.rate_limit);
    drift.slows("max_waiting", &wanted.max_waiting, &found.max_waiting);
    drift.slows(
        "max_ack_pending",
        &wanted.max_ack_pending,
        &found.max_ack_pending,
    );
    drift.slows(
        "inactive_threshold",
        &wanted.inactive_threshold,
        &found.inactive_threshold,
    );
    drift.0
}

/// The server writes "no limit" as -1, a client as 0.
const fn limit(limit: i64) -> i64 {
    if limit <= 0 { -1 } else { limit }
}

#[derive(Default)]
struct Drifts(Vec<Drift>);

impl Drifts {
    fn breaks<T: PartialEq + Debug>(&mut self, name: &str, wanted: &T, found: &T) {
        self.compare(name, wanted, found, true);
    }

    fn slows<T: PartialEq + Debug>(&mut self, name: &str, wanted: &T, found: &T) {
        self.compare(name, wanted, found, false);
    }

    fn compare<T: PartialEq + Debug>(&mut self, name: &str, wanted: &T, found: &T, breaks: bool) {
        if wanted != found {
            let what = format!("{name} is {found:?} instead of {wanted:?}");
            self.0.push(Drift { what, breaks });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_nats::jetstream::{consumer::IntoConsumerConfig, stream::RetentionPolicy};

    use super::*;
    use crate::{bus::topology, wire::subjects::Subjects};

    fn subjects() -> Subjects {
        Subjects::new("toolfleet".parse().unwrap())
    }

    #[test]
    fn what_was_changed_is_named_and_weighed() {
        let wanted = topology::stream_config(&subjects());
        assert_eq!(of_stream(&wanted, &wanted), []);
        let mut found = wanted.clone();
        found.retention = RetentionPolicy::Limits;
        found.max_messages_per_subject = -1;
        found.max_age = Duration::from_secs(60);
        found.num_replicas = 3;
        let drift = of_stream(&wanted, &found);
        let breaks: Vec<bool> = drift.iter().map(|one| one.breaks).collect();
        assert_eq!(breaks, [true, true, false], "{drift:?}");
        assert_eq!(drift[1].what, "max_msgs_per_subject is -1 instead of 1");
    }

    #[test]
    fn a_consumer_that_gives_up_is_broken_and_one_that_is_slow_is_slow() {
        let wanted = topology::consumer_config(&subjects(), &"default".parse().unwrap());
        let wanted = wanted.into_consumer_config();
        assert_eq!(of_consumer(&wanted, &wanted), []);
        let mut found = wanted.clone();
        found.max_deliver = 5;
        found.ack_wait = Duration::from_secs(300);
        let drift = of_consumer(&wanted, &found);
        let breaks: Vec<bool> = drift.iter().map(|one| one.breaks).collect();
        assert_eq!(breaks, [true, false], "{drift:?}");
    }
}
