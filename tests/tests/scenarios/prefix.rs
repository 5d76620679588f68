//! Two ledgers and one prefix: it belongs to the one that came first, and no process works for the other there.

use std::{path::Path, process::Output, time::Duration};

use async_nats::jetstream;
use fleet::{
    bus::{BusError, connect::Bus, prefix::PrefixClaim},
    config::BusArgs,
    ids::{CallId, LedgerId},
    lost_writes::{WalPosition, Watermark},
    owner::LedgerName,
};
use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    postgres::{Cluster, Database},
    process::Process,
    wait::{until, until_so},
    witness::Witness,
};
use futures_util::future::join_all;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::process::Command;
use uuid::Uuid;
use worker::Worker;

/// Where the watermark lies under the default prefix.
const STREAM: &str = "TOOLFLEET_GROUND";
const SUBJECT: &str = "toolfleet.ground";
const LONG: Duration = Duration::from_secs(600);
/// Calls that wait while others come and go.
const WAITING: usize = 20;

/// A ledger that has nothing to do with any other. A database made from a template is the same ledger as its template.
async fn another_ledger() -> Database {
    let database = Database::fresh().await;
    let made = sqlx::query("UPDATE toolfleet.fleet SET ledger_id = gen_random_uuid()");
    made.execute(&database.pool).await.unwrap();
    database
}

async fn identity(database: &Database) -> Uuid {
    let asking = sqlx::query_scalar("SELECT ledger_id FROM toolfleet.fleet");
    asking.fetch_one(&database.pool).await.unwrap()
}

async fn quarantines(database: &Database) -> i32 {
    let asking = sqlx::query_scalar("SELECT quarantines FROM toolfleet.fleet");
    asking.fetch_one(&database.pool).await.unwrap()
}

/// A fleet with calls that must not be made twice, and wait for a worker.
async fn with_waiting(witness: &Witness, dispatchers: usize) -> (Fleet, Vec<CallId>) {
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let fleet = Fleet::start(spec.dispatchers(dispatchers)).await;
    let waiting = (0..WAITING).map(async |n| {
        let what = format!("waiting-{n}");
        let call = fleet.submit("charge", &json!({"what": what})).key(&what);
        call.deadline(LONG).asynchronous().await.call_id()
    });
    let waiting = join_all(waiting).await;
    (fleet, waiting)
}

/// The watermark in NATS, and its place in the stream.
async fn left(fleet: &Fleet) -> Option<(u64, Value)> {
    let jetstream = jetstream::new(fleet.client.clone());
    let stream = jetstream.get_stream(STREAM).await.ok()?;
    let message = stream.get_last_raw_message_by_subject(SUBJECT).await.ok()?;
    let watermark = serde_json::from_slice(&message.payload).unwrap();
    Some((message.sequence, watermark))
}

/// Leaves this in NATS in the place of whatever is there.
async fn leave(fleet: &Fleet, watermark: &Value) -> u64 {
    let jetstream = jetstream::new(fleet.client.clone());
    let leaving = jetstream
        .publish(SUBJECT, watermark.to_string().into())
        .await;
    leaving.unwrap().await.unwrap().sequence
}

/// Waits until a watermark comes that was left after this one.
async fn until_left_anew(fleet: &Fleet, after: u64) -> Value {
    until("another watermark in NATS", async || {
        let (sequence, watermark) = left(fleet).await?;
        (sequence > after).then_some(watermark)
    })
    .await
}

/// A process that is refused names both ledgers, and says what to do.
async fn says_whose_it_is(said: &str, owner: &Database, stranger: &Database) {
    let name = |database: &Database| database.url.rsplit_once('/').unwrap().1.to_owned();
    for part in [
        identity(owner).await.to_string(),
        identity(stranger).await.to_string(),
        name(owner),
        name(stranger),
        "DATABASE_URL".to_owned(),
        "--prefix".to_owned(),
        "toolfleet doctor --take-prefix".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
}

#[tokio::test]
async fn another_ledger_is_refused_and_the_first_one_starts_again_without_a_doubt() {
    let witness = Witness::start().await;
    let (mut fleet, waiting) = with_waiting(&witness, 1).await;
    let other = another_ledger().await;

    // While the fleet runs, and while only its watermark is there.
    let mut running = fleet.dispatcher_of(&other, &[]).await;
    let beside = running.starts().await;
    fleet.dispatchers[0].drain().await;
    let mut alone = fleet.dispatcher_of(&other, &[]).await;
    let after = alone.starts().await;
    let mut worker = fleet.worker_of(&other, Worker::builder(), &[]).await;
    let worker = worker.starts().await;
    if after.is_ok() {
        // As it was once: the stranger's watermark is there when the fleet comes back.
        until_so("the stranger to leave its watermark", async || {
            left(&fleet).await.is_some()
        })
        .await;
        drop((running, alone));
    }
    fleet.add_dispatcher().await;

    let doubts = "SELECT count(*) FROM toolfleet.calls WHERE state = 'in_doubt'";
    assert_eq!(
        fleet.count(doubts).await,
        0,
        "calls in doubt that have never run; the strangers: {beside:?}, {after:?}, {worker:?}"
    );
    for said in [beside, after, worker] {
        let said = said.expect_err("a stranger works on the prefix");
        says_whose_it_is(&said, &fleet.database, &other).await;
    }
    assert_eq!(quarantines(&fleet.database).await, 0);
    assert_eq!(quarantines(&other).await, 0);
    fleet.add_worker(&[]).await;
    for call in waiting {
        fleet.until_state(call, "succeeded").await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn who_comes_second_is_refused_whichever_ledger_that_is() {
    let witness = Witness::start().await;
    let (mut fleet, waiting) = with_waiting(&witness, 1).await;
    fleet.dispatchers[0].drain().await;
    // As on a new nats-server: nothing is known of any ledger.
    fleet.stop_nats().await;
    fleet.wipe_nats();
    fleet.start_nats().await;
    let other = another_ledger().await;
    let mut first = fleet.dispatcher_of(&other, &[]).await;
    first.ready().await;

    let mut own = fleet.dispatcher_of(&fleet.database, &[]).await;
    let refused = own.starts().await.expect_err("two ledgers on one prefix");
    says_whose_it_is(&refused, &other, &fleet.database).await;
    let mut worker = fleet
        .worker_of(&fleet.database, Worker::builder(), &[])
        .await;
    let refused = worker
        .starts()
        .await
        .expect_err("two ledgers on one prefix");
    says_whose_it_is(&refused, &other, &fleet.database).await;
    assert_eq!(quarantines(&fleet.database).await, 0);

    // A prefix of its own is what it needs.
    let mut own = fleet
        .dispatcher_of(&fleet.database, &["--prefix", "mine"])
        .await;
    own.ready().await;
    own.drain().await;

    // Or this one, once the other ledger is gone, as a person says.
    let taking = ["--take-prefix", "--by", "ada", "--note", "it was a trial"];
    let ran = doctor(&fleet, &taking).await;
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(
        said.contains("1 dispatcher of it answers callers"),
        "{said}"
    );
    let ran = doctor(&fleet, &["--rebuild-stream"]).await;
    assert_eq!(ran.status.code(), Some(64), "{ran:?}");
    first.drain().await;
    let ran = doctor(&fleet, &taking).await;
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let taken = "SELECT count(*) FROM toolfleet.prefix_takeovers \
                 WHERE taken_by = 'ada' AND note = 'it was a trial' AND taken_at IS NOT NULL";
    assert_eq!(fleet.count(taken).await, 1);
    fleet.add_dispatcher().await;
    fleet.add_worker(&[]).await;
    for call in waiting {
        fleet.until_state(call, "succeeded").await;
    }
    assert_eq!(quarantines(&fleet.database).await, 0);
    let mut late = fleet.dispatcher_of(&other, &[]).await;
    let refused = late.starts().await.expect_err("two ledgers on one prefix");
    says_whose_it_is(&refused, &fleet.database, &other).await;
    invariants::hold(&fleet, &witness).await;
}

async fn doctor(fleet: &Fleet, flags: &[&str]) -> Output {
    let mut command = Command::new(built("fleet_tests_toolfleet"));
    command.arg("doctor").args(flags).env_clear();
    command.env("DATABASE_URL", &fleet.database.url);
    command.env("NATS_URL", fleet.nats_url());
    command.output().await.unwrap()
}

#[tokio::test]
async fn of_two_ledgers_that_start_at_the_same_moment_one_gets_the_prefix() {
    let fleet = Fleet::start(Spec::with([]).dispatchers(0).workers(0, &[])).await;
    let other = another_ledger().await;
    for round in 0..5 {
        let prefix = format!("round-{round}");
        let flags = ["--prefix", prefix.as_str()];
        let mut both = [
            fleet.dispatcher_of(&fleet.database, &flags).await,
            fleet.dispatcher_of(&other, &flags).await,
        ];
        let said = join_all(both.iter_mut().map(Process::starts)).await;
        let (owner, stranger, refused) = match &said[..] {
            [Ok(()), Err(refused)] => (&fleet.database, &other, refused),
            [Err(refused), Ok(())] => (&other, &fleet.database, refused),
            said => panic!("round {round}: {said:?}"),
        };
        says_whose_it_is(refused, owner, stranger).await;
    }
}

#[tokio::test]
async fn of_many_ledgers_that_claim_a_prefix_at_once_one_gets_it_and_keeps_it() {
    let fleet = Fleet::start(Spec::with([]).dispatchers(0).workers(0, &[])).await;
    let watermark = Watermark {
        ledger_id: None,
        system_identifier: "7001".to_owned(),
        timeline: 1,
        quarantines: 0,
        wal_lsn: WalPosition(100),
    };
    let later = Watermark {
        wal_lsn: WalPosition(200),
        ..watermark.clone()
    };
    for round in 0..20 {
        let prefix = format!("round-{round}").parse().unwrap();
        let args = BusArgs {
            prefix,
            ..BusArgs::at(SecretString::from(fleet.nats_url()))
        };
        let bus = Bus::connect(&args, "prefix").await.unwrap();
        let claims: Vec<PrefixClaim> = (0..8)
            .map(|_| {
                let id = LedgerId(Uuid::new_v4());
                PrefixClaim::new(bus.clone(), LedgerName { id, place: None })
            })
            .collect();
        let first = join_all(claims.iter().map(|claim| claim.hold(&watermark))).await;
        let again = join_all(claims.iter().map(|claim| claim.hold(&later))).await;
        let holds = |said: &[Result<(), BusError>]| -> Vec<bool> {
            let refused = |said: &Result<(), BusError>| match said {
                Ok(()) => false,
                Err(BusError::ForeignLedger(_)) => true,
                Err(error) => panic!("round {round}: {error}"),
            };
            said.iter().map(|said| !refused(said)).collect()
        };
        let owners = holds(&first).iter().filter(|holds| **holds).count();
        assert_eq!(owners, 1, "round {round}: {first:?}");
        assert_eq!(holds(&first), holds(&again), "round {round}");
    }
}

#[tokio::test]
async fn a_watermark_of_the_release_before_is_adopted_and_named() {
    let witness = Witness::start().await;
    let (mut fleet, waiting) = with_waiting(&witness, 1).await;
    let (sequence, mut watermark) = left(&fleet).await.unwrap();
    let object = watermark.as_object_mut().unwrap();
    assert_eq!(
        object.remove("ledger_id"),
        Some(json!(identity(&fleet.database).await.to_string()))
    );
    object.remove("place");
    // Beside a dispatcher of this release, which goes on and names it again.
    let nameless = leave(&fleet, &watermark).await;
    assert!(nameless > sequence);
    let named = until_left_anew(&fleet, nameless).await;
    assert_eq!(
        named["ledger_id"],
        json!(identity(&fleet.database).await.to_string())
    );
    // Before one of this release starts.
    fleet.dispatchers[0].drain().await;
    leave(&fleet, &watermark).await;
    fleet.add_dispatcher().await;
    fleet.add_worker(&[]).await;
    let (_, named) = left(&fleet).await.unwrap();
    assert_eq!(
        named["ledger_id"],
        json!(identity(&fleet.database).await.to_string())
    );
    for call in waiting {
        fleet.until_state(call, "succeeded").await;
    }
    assert_eq!(quarantines(&fleet.database).await, 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn who_finds_itself_on_the_prefix_of_another_ledger_stops_and_leaves_its_watermark_alone() {
    let witness = Witness::start().await;
    let (mut fleet, waiting) = with_waiting(&witness, 2).await;
    fleet.add_worker(&[]).await;
    for call in waiting {
        fleet.until_state(call, "succeeded").await;
    }
    // Another fleet's nats-server comes up in the place of this one's.
    let mut strange = Fleet::start_on(another_ledger().await, Spec::with([])).await;
    strange.dispatchers[0].drain().await;
    strange.workers[0].drain().await;
    strange.stop_nats().await;
    fleet.stop_nats().await;
    fleet.wipe_nats();
    copy(&strange.nats_files(), &fleet.nats_files()).await;
    fleet.start_nats().await;

    let processes = fleet.dispatchers.iter_mut().chain(&mut fleet.workers);
    for said in join_all(processes.map(Process::until_failed)).await {
        says_whose_it_is(&said, &strange.database, &fleet.database).await;
    }
    assert_eq!(fleet.dispatchers_heard().await, 0);
    let (_, watermark) = left(&fleet).await.unwrap();
    assert_eq!(
        watermark["ledger_id"],
        json!(identity(&strange.database).await.to_string())
    );
    assert_eq!(quarantines(&fleet.database).await, 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_watermark_that_cannot_be_read_lets_nobody_start_and_stays() {
    let witness = Witness::start().await;
    let (mut fleet, waiting) = with_waiting(&witness, 1).await;
    let other = another_ledger().await;
    // As a later release may write it, of whichever ledger.
    let strange = json!({ "format": 2, "ledger": "elsewhere" });
    let sequence = leave(&fleet, &strange).await;

    // The fleet that holds the prefix goes on, and leaves it where it is.
    let call = fleet
        .submit("charge", &json!({"what": "beside"}))
        .key("beside");
    let beside = call.asynchronous().await.call_id();
    for database in [&other, &fleet.database] {
        let mut second = fleet.dispatcher_of(database, &[]).await;
        let said = second
            .starts()
            .await
            .expect_err("it cannot be known whose the prefix is");
        for part in [
            "TOOLFLEET_GROUND",
            "cannot be read",
            "--prefix",
            "nats stream purge",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert_eq!(left(&fleet).await.unwrap(), (sequence, strange));

    // Emptied by a person: the next second the fleet has left its own.
    let jetstream = jetstream::new(fleet.client.clone());
    let stream = jetstream.get_stream(STREAM).await.unwrap();
    stream.purge().await.unwrap();
    let named = until_left_anew(&fleet, sequence).await;
    let ours = json!(identity(&fleet.database).await.to_string());
    assert_eq!(named["ledger_id"], ours);
    fleet.add_worker(&[]).await;
    for call in waiting.into_iter().chain([beside]) {
        fleet.until_state(call, "succeeded").await;
    }
    assert_eq!(quarantines(&fleet.database).await, 0);
    invariants::hold(&fleet, &witness).await;
}

async fn copy(from: &Path, to: &Path) {
    let copying = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copying.await.unwrap().success());
}

#[tokio::test]
async fn a_dump_in_another_cluster_is_the_same_ledger_with_lost_writes() {
    let witness = Witness::start().await;
    let (mut fleet, waiting) = with_waiting(&witness, 1).await;
    let cluster = Cluster::alone(true).await;
    let restored = cluster.empty_database().await;
    fleet.database.dump_into(&restored).await;
    assert_eq!(
        identity(&restored).await,
        identity(&fleet.database).await,
        "a ledger takes its identity along"
    );
    // What the dump does not have any more.
    let (sequence, _) = left(&fleet).await.unwrap();
    until_left_anew(&fleet, sequence).await;
    fleet.dispatchers[0].drain().await;

    fleet.database = restored;
    fleet.add_dispatcher().await;
    assert_eq!(quarantines(&fleet.database).await, 1);
    for call in waiting {
        assert_eq!(fleet.call(call).await["state"], "in_doubt");
    }
}
