//! The stream of pointers: whether it and its consumers have our settings and hold what they should.

use std::{collections::BTreeMap, time::Duration};

use async_nats::jetstream::{
    consumer::{self, IntoConsumerConfig},
    context::ConsumerInfoErrorKind,
    stream,
};
use fleet::{
    bus::{
        BusError,
        connect::Bus,
        drift::{self, Drift},
        events, orphans, topology,
    },
    explain::Servers,
    ids::QueueName,
    store::health,
    telemetry,
    wire::subjects::Subjects,
};

use super::{
    check::{Check, Status, count},
    postgres::Ledger,
};

/// The pause before an odd finding is checked again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const REBUILD: &str =
    "toolfleet doctor --rebuild-stream makes it anew; it costs time, never a call";

/// Checks all of it, as far as JetStream answers. `dispatchers` would make what is missing.
pub(super) async fn look(bus: &Bus, ledger: &Ledger, dispatchers: Option<usize>) -> Vec<Check> {
    let mut checks = Vec::new();
    let looked = look_into(bus, ledger, dispatchers, &mut checks).await;
    let looked = match looked {
        Ok(()) => look_into_events(bus, &mut checks).await,
        Err(problem) => Err(problem),
    };
    if let Err(problem) = looked {
        checks.push(Check::error("stream", problem, &Servers::default()));
    }
    checks
}

/// No call depends on it, so a problem is a warning at most.
async fn look_into_events(bus: &Bus, checks: &mut Vec<Check>) -> Result<(), BusError> {
    let name = bus.subjects.events_stream();
    let without = "without it only followers that listen at the moment hear of a session's calls";
    let check = match events::find(bus).await? {
        Some(stream) => {
            let wanted = events::stream_config(&bus.subjects);
            let drifts = drift::of_stream(&wanted, &stream.cached_info().config);
            let drifts: Vec<String> = drifts.into_iter().map(|drift| drift.what).collect();
            if drifts.is_empty() {
                Check::ok("events", format!("{name} is as wanted"))
            } else {
                let advice = format!("Delete it, and dispatchers make it anew; {without}");
                Check::warn("events", format!("{name}: {}", drifts.join(", ")), advice)
            }
        }
        None => {
            let advice = format!("Dispatchers make it; {without}");
            Check::warn("events", format!("there is no stream {name}"), advice)
        }
    };
    checks.push(check);
    Ok(())
}

async fn look_into(
    bus: &Bus,
    ledger: &Ledger,
    dispatchers: Option<usize>,
    checks: &mut Vec<Check>,
) -> Result<(), BusError> {
    let name = bus.subjects.jobs_stream();
    let Some(mut stream) = topology::find(bus).await? else {
        checks.push(missing(
            "stream",
            &format!("there is no stream {name}"),
            dispatchers,
        ));
        return Ok(());
    };
    let wanted = topology::stream_config(&bus.subjects);
    let drifts = drift::of_stream(&wanted, &stream.cached_info().config);
    checks.push(judge_drift("stream", &name, &drifts));

    let mut consumers = BTreeMap::new();
    for queue in ledger.queues.keys() {
        let consumer = Subjects::jobs_consumer(queue);
        match stream.consumer_info(&consumer).await {
            Ok(info) => {
                consumers.insert(queue.clone(), info);
            }
            Err(error) if matches!(error.kind(), ConsumerInfoErrorKind::NotFound) => {
                let found = format!("queue {queue} has no consumer");
                checks.push(missing("consumers", &found, dispatchers));
            }
            Err(error) => return Err(BusError::unavailable("look at a consumer", error)),
        }
    }
    checks.extend(judge_consumers(bus, &consumers));
    checks.push(pointers(bus, ledger, &mut stream).await?);
    Ok(())
}

/// Dispatchers make what is missing within seconds; without a dispatcher it is expected to be missing.
fn missing(name: &'static str, found: &str, dispatchers: Option<usize>) -> Check {
    if dispatchers.unwrap_or_default() == 0 {
        return Check::warn(name, found, "A dispatcher makes it when it starts");
    }
    let advice = "Dispatchers make it within 5 s; if it does not come, look at their logs";
    Check::fail(name, found, advice)
}

fn judge_drift(check: &'static str, name: &str, drifts: &[Drift]) -> Check {
    let said = |breaks: bool| {
        let said = drifts.iter().filter(|drift| drift.breaks == breaks);
        let said: Vec<&str> = said.map(|drift| drift.what.as_str()).collect();
        (!said.is_empty()).then(|| format!("{name}: {}", said.join(", ")))
    };
    if let Some(found) = said(true) {
        return Check::fail(check, found, REBUILD);
    }
    match said(false) {
        Some(found) => Check::warn(check, found, format!("It may slow calls down. {REBUILD}")),
        None => Check::ok(check, format!("{name} is as wanted")),
    }
}

fn judge_consumers(bus: &Bus, consumers: &BTreeMap<QueueName, consumer::Info>) -> Vec<Check> {
    let judge = |(queue, info): (&QueueName, &consumer::Info)| {
        let name = Subjects::jobs_consumer(queue);
        if info.paused {
            let found = format!("{name} is paused: no worker gets calls of queue {queue}");
            let advice = format!("nats consumer resume {} {name}", info.stream_name);
            return Check::fail("consumers", found, advice);
        }
        let wanted = topology::consumer_config(&bus.subjects, queue).into_consumer_config();
        judge_drift(
            "consumers",
            &name,
            &drift::of_consumer(&wanted, &info.config),
        )
    };
    let (fine, odd): (Vec<Check>, Vec<Check>) = consumers
        .iter()
        .map(judge)
        .partition(|check| check.status == Status::Ok);
    let fine = (!fine.is_empty()).then(|| {
        let found = format!("{} as wanted", count(fine.len(), "consumer"));
        Check::ok("consumers", found)
    });
    odd.into_iter().chain(fine).collect()
}

/// Compares pointers with calls; twice when the first look is odd, because both change.
async fn pointers(
    bus: &Bus,
    ledger: &Ledger,
    stream: &mut stream::Stream,
) -> Result<Check, BusError> {
    let mut orphaned = orphaned_queues(bus, ledger, None).await?;
    let mut waiting = ledger.waiting.iter().map(|queue| queue.calls).sum();
    let mut there = messages(stream).await?;
    if !orphaned.is_empty() || waiting > there {
        tokio::time::sleep(AGAIN_AFTER).await;
        orphaned = orphaned_queues(bus, ledger, Some(&orphaned)).await?;
        waiting = match health::waiting(&ledger.pool).await {
            Ok(queues) => queues.iter().map(|queue| queue.calls).sum(),
            Err(problem) => {
                let found = telemetry::report(&problem).to_string();
                return Ok(Check::warn("pointers", found, "Look again"));
            }
        };
        there = messages(stream).await?;
    }
    Ok(judge_pointers(waiting, there, orphaned.keys()))
}

async fn messages(stream: &mut stream::Stream) -> Result<i64, BusError> {
    let info = stream.info().await;
    let info = info.map_err(|error| BusError::unavailable("count pointers", error))?;
    Ok(i64::try_from(info.state.messages).unwrap_or(i64::MAX))
}

/// Queues with messages that no worker will get, by this look and the one before.
async fn orphaned_queues(
    bus: &Bus,
    ledger: &Ledger,
    before: Option<&BTreeMap<QueueName, orphans::Look>>,
) -> Result<BTreeMap<QueueName, orphans::Look>, BusError> {
    let mut orphaned = BTreeMap::new();
    for queue in ledger.queues.keys() {
        if let Some(now) = orphans::look(bus, queue).await? {
            let before = before.map_or(Some(now), |before| before.get(queue).copied());
            if before.is_some_and(|before| now.repair(before).is_some()) {
                orphaned.insert(queue.clone(), now);
            }
        }
    }
    Ok(orphaned)
}

fn judge_pointers<'a>(
    waiting: i64,
    there: i64,
    orphaned: impl Iterator<Item = &'a QueueName>,
) -> Check {
    let name = "pointers";
    let found = format!("{there} in the stream for {waiting} calls that may run");
    let orphaned: Vec<&str> = orphaned.map(QueueName::as_str).collect();
    if !orphaned.is_empty() {
        let found = format!(
            "{found}; those of {} were rolled back and reach no worker",
            orphaned.join(", ")
        );
        let advice = format!(
            "A dispatcher purges them within 15 s; if they stay, look at its log. {REBUILD}"
        );
        return Check::warn(name, found, advice);
    }
    if waiting > there {
        let found = format!("{found}: {} lost", waiting - there);
        let advice =
            "A dispatcher publishes them again within seconds; if it stays so, look at its log";
        return Check::warn(name, found, advice);
    }
    Check::ok(name, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(check: &Check) -> (Status, bool) {
        (check.status, check.advice.is_some())
    }

    #[test]
    fn what_breaks_fails_and_what_only_slows_warns() {
        let drift = |what: &str, breaks| Drift {
            what: what.to_owned(),
            breaks,
        };
        let (slow, broken) = (drift("max_age", false), drift("retention", true));
        assert_eq!(
            status(&judge_drift("stream", "S", &[])),
            (Status::Ok, false)
        );
        let check = judge_drift("stream", "S", std::slice::from_ref(&slow));
        assert_eq!(status(&check), (Status::Warn, true));
        let check = judge_drift("stream", "S", &[slow, broken]);
        assert_eq!(status(&check), (Status::Fail, true));
        assert_eq!(check.found, "S: retention");
    }

    #[test]
    fn a_missing_stream_is_a_failure_only_where_somebody_should_have_made_it() {
        for (dispatchers, expected) in [
            (None, Status::Warn),
            (Some(0), Status::Warn),
            (Some(1), Status::Fail),
        ] {
            assert_eq!(missing("stream", "none", dispatchers).status, expected);
        }
    }

    #[test]
    fn pointers_that_are_missing_or_lead_to_nobody_are_counted() {
        let queue: QueueName = "slow".parse().unwrap();
        assert_eq!(judge_pointers(3, 5, [].iter()).status, Status::Ok);
        let lost = judge_pointers(5, 3, [].iter());
        assert_eq!(lost.status, Status::Warn);
        assert!(lost.found.ends_with("2 lost"), "{}", lost.found);
        let orphans = judge_pointers(5, 5, [queue].iter());
        assert_eq!(orphans.status, Status::Warn);
        assert!(orphans.found.contains("slow"), "{}", orphans.found);
    }
}
