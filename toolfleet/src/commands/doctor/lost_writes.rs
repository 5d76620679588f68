//! Whether Postgres lost writes: the watermark in the ledger against the one that the fleet remembers. And which ledger has the
//! prefix.

use std::time::Duration;

use fleet::{
    bus::{connect::Bus, watermark::recall},
    explain::Servers,
    lost_writes::{Comparison, Seen, Watermark, compare},
    owner::{LedgerName, PrefixOwner, owner},
    store::{
        StoreError, quarantine,
        session::{Postgres, within},
        watermark,
    },
    telemetry,
};

use super::{
    check::{Check, count},
    prefix,
};

/// How long the look may take.
const LOOK_MAX: Duration = Duration::from_secs(6);
/// As `docs/doctor.md` lists it.
const NAME: &str = "ground";
const SECTION: &str = "docs/operations.md, Postgres lost writes";

/// Compares the watermarks. Also returns the ledger that has the prefix, if it is another one.
pub(super) async fn look(
    postgres: &Postgres,
    bus: Option<&Bus>,
) -> (Vec<Check>, Option<LedgerName>) {
    let (mut checks, mut foreign) = (Vec::new(), None);
    let mut recalled = None;
    if let Some(bus) = bus {
        match recall(bus).await {
            Ok(found) => recalled = Some((found, bus.subjects.prefix())),
            Err(problem) => {
                let advice = "Let this user read the stream that keeps the watermark ($JS.API.>)";
                checks.push(Check::warn(NAME, telemetry::report(&problem), advice));
            }
        }
    }
    match within("look where the ledger stands", LOOK_MAX, see(postgres)).await {
        Ok(Some((seen, quarantined))) => {
            let mut asked = false;
            let mut remembered = None;
            if let Some((found, name)) = recalled {
                let ours = LedgerName {
                    id: seen.ledger_id,
                    place: Some(postgres.place()),
                };
                let owner = owner(ours.id, found.left);
                checks.push(prefix::judge(name, &ours, &owner));
                asked = !matches!(owner, PrefixOwner::Foreign(_));
                match owner {
                    PrefixOwner::Unnamed(watermark) | PrefixOwner::Ours(watermark) => {
                        remembered = Some(watermark)
                    }
                    PrefixOwner::Free => {}
                    PrefixOwner::Foreign(theirs) => foreign = Some(theirs),
                }
            }
            checks.push(place(&seen, remembered.as_ref()));
            checks.extend(memory(&seen, remembered.as_ref(), asked));
            checks.extend(doubts(&seen, quarantined));
        }
        // The check of the schema reports it.
        Ok(None) => {}
        Err(problem) => checks.push(Check::error(NAME, problem, &Servers::default())),
    }
    (checks, foreign)
}

async fn see(postgres: &Postgres) -> Result<Option<(Seen, i64)>, StoreError> {
    let mut connection = postgres.connect_to_look().await?;
    let Some(seen) = watermark::look(&mut connection).await? else {
        return Ok(None);
    };
    let quarantined = quarantine::count(&mut connection).await?;
    Ok(Some((seen, quarantined)))
}

fn place(seen: &Seen, remembered: Option<&Watermark>) -> Check {
    let comparison = compare(remembered, seen);
    match comparison {
        Comparison::Same => {
            let (timeline, position) = (seen.timeline, seen.wal_lsn);
            let found = format!("timeline {timeline}, position {position}: nothing is missing");
            Check::ok(NAME, found)
        }
        Comparison::First => Check::ok(NAME, "a new ledger, which the first process adopts"),
        // Another ledger's watermark says nothing about this one: the check of the prefix reports it.
        Comparison::OtherLedger => Check::unfit(NAME, comparison.what(), "Look at DATABASE_URL"),
        Comparison::Behind | Comparison::OtherTimeline | Comparison::OtherCluster => {
            let remembered = remembered.map_or_else(
                || "NATS remembers nothing".to_owned(),
                |watermark| format!("NATS remembers {watermark}"),
            );
            let found = format!("{}. Now {seen}; {remembered}", comparison.what());
            let advice = format!(
                "If this is the Postgres you want, start a dispatcher: before anything else it puts in doubt what may have run unseen; see {SECTION}"
            );
            Check::fail(NAME, found, advice)
        }
    }
}

/// NATS should remember a ledger that was used.
fn memory(seen: &Seen, remembered: Option<&Watermark>, asked: bool) -> Option<Check> {
    let forgotten = asked && seen.ledger.is_some() && remembered.is_none();
    forgotten.then(|| {
        let found = "NATS keeps no watermark of the ledger: a process that starts later would not notice an old copy";
        Check::warn(NAME, found, "A running dispatcher leaves one every second: look at its log")
    })
}

fn doubts(seen: &Seen, quarantined: i64) -> Option<Check> {
    (quarantined > 0).then(|| {
        let found = format!(
            "{} in doubt because Postgres lost writes; that has happened {}",
            count(usize::try_from(quarantined).unwrap_or_default(), "call"),
            count(
                usize::try_from(seen.quarantines).unwrap_or_default(),
                "time"
            ),
        );
        Check::warn(
            NAME,
            found,
            format!("Find out what became of them: {SECTION}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use fleet::ids::LedgerId;
    use uuid::Uuid;

    use super::{super::check::Status, *};

    fn watermark(wal_lsn: &str) -> Watermark {
        Watermark {
            ledger_id: None,
            system_identifier: "7001".to_owned(),
            timeline: 1,
            quarantines: 0,
            wal_lsn: wal_lsn.parse().unwrap(),
        }
    }

    fn seen(timeline: i32, ledger: Option<Watermark>) -> Seen {
        Seen {
            ledger_id: LedgerId(Uuid::nil()),
            system_identifier: "7001".to_owned(),
            timeline,
            wal_lsn: "0/9000".parse().unwrap(),
            ledger,
            quarantines: 0,
        }
    }

    #[test]
    fn lost_writes_are_told_with_both_places_and_what_to_do() {
        let promoted = place(
            &seen(2, Some(watermark("0/500"))),
            Some(&watermark("0/700")),
        );
        assert_eq!(promoted.status, Status::Fail);
        for part in ["promoted", "timeline 2", "timeline 1", "0/500", "0/700"] {
            assert!(promoted.found.contains(part), "{part}: {}", promoted.found);
        }
        assert!(promoted.advice.unwrap().contains("start a dispatcher"));
        let copy = place(
            &seen(1, Some(watermark("0/500"))),
            Some(&watermark("0/700")),
        );
        assert!(copy.status == Status::Fail && copy.found.contains("old copy"));
    }

    #[test]
    fn a_ledger_that_stands_where_it_stood_is_well_and_so_is_a_new_one() {
        let well = place(
            &seen(1, Some(watermark("0/500"))),
            Some(&watermark("0/500")),
        );
        assert_eq!(well.status, Status::Ok);
        assert_eq!(place(&seen(1, None), None).status, Status::Ok);
        assert!(memory(&seen(1, None), None, true).is_none());
        let forgotten = memory(&seen(1, Some(watermark("0/500"))), None, true);
        assert_eq!(forgotten.unwrap().status, Status::Warn);
    }

    #[test]
    fn calls_in_doubt_for_lost_writes_are_counted() {
        assert!(doubts(&seen(1, None), 0).is_none());
        assert!(
            doubts(&seen(1, None), 2)
                .unwrap()
                .found
                .starts_with("2 calls in doubt")
        );
    }
}
