//! The wire to Postgres. What came of a statement is asked of the server by another way.
//!
//! The statement that is struck is one that the wire takes for a worker's heartbeat.

use std::time::Duration;

use fleet::store::migrate;
use fleet_chaos::wire::{
    Side,
    postgres::{Fault, Refusal, Rewrite, Statement, Wire},
};
use fleet_tests::{
    postgres::Database,
    wait::{LONG, until, until_so},
};
use futures_util::StreamExt;
use sqlx::{Connection, PgConnection};
use tokio::{task::JoinHandle, time::timeout};

const BEAT: &str = "UPDATE pulse SET beat = beat + 1";
/// Far more than a lane ever sends.
const LARGE: usize = 8 * 1024 * 1024;
/// Much longer than a statement takes.
const LATE: u32 = 2_000;
const EVERY: [Refusal; 7] = [
    Refusal::SerializationFailure,
    Refusal::Deadlock,
    Refusal::QueryCanceled,
    Refusal::TooManyConnections,
    Refusal::DiskFull,
    Refusal::LockNotAvailable,
    Refusal::ReadOnly,
];

/// A database, and a wire to it.
struct Ward {
    database: Database,
    wire: Wire,
    url: String,
}

impl Ward {
    async fn new() -> Self {
        let database = Database::fresh().await;
        sqlx::raw_sql("CREATE TABLE pulse AS SELECT 0 AS beat")
            .execute(&mut database.connect().await)
            .await
            .unwrap();
        let (front, name) = database.url.rsplit_once('/').unwrap();
        let (front, port) = front.rsplit_once(':').unwrap();
        let wire = Wire::to(port.parse().unwrap()).await.unwrap();
        let url = format!("{front}:{}/{name}", wire.port());
        Self {
            database,
            wire,
            url,
        }
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// What the server says, by another way.
    async fn beat(&self) -> i32 {
        sqlx::query_scalar("SELECT beat FROM pulse")
            .fetch_one(&self.database.pool)
            .await
            .unwrap()
    }

    /// A connection whose next statement is struck, and what it comes to.
    async fn struck_by(&self, fault: Fault) -> JoinHandle<Result<(), sqlx::Error>> {
        let mut connection = self.connect().await;
        let nth = self.wire.passed(Statement::Beat) + 1;
        self.wire.arm(Statement::Beat, nth, fault);
        #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
        tokio::spawn(async move { beat(&mut connection).await })
    }

    fn was_struck(&self, fault: Fault) -> bool {
        let struck = self.wire.struck();
        struck
            .iter()
            .any(|(kind, _, done)| *kind == Statement::Beat && *done == fault)
    }
}

async fn beat(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(BEAT).execute(connection).await.map(drop)
}

fn is_broken(came_to: &Result<(), sqlx::Error>) -> bool {
    matches!(came_to, Err(sqlx::Error::Io(_)))
}

fn code(came_to: Result<(), sqlx::Error>) -> String {
    match came_to {
        Err(sqlx::Error::Database(error)) => error.code().unwrap().into_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_the_nth_statement_is_struck_and_all_are_counted() {
    let ward = Ward::new().await;
    ward.wire.arm(Statement::Beat, 3, Fault::CutBefore);
    let mut connection = ward.connect().await;
    for _ in 0..2 {
        beat(&mut connection).await.unwrap();
    }
    assert!(is_broken(&beat(&mut connection).await));
    assert_eq!(ward.beat().await, 2);
    let mut another = ward.connect().await;
    beat(&mut another).await.unwrap();
    assert_eq!(ward.beat().await, 3);
    assert_eq!(ward.wire.passed(Statement::Beat), 4);
    assert_eq!(ward.wire.struck(), [(Statement::Beat, 3, Fault::CutBefore)]);
}

#[tokio::test]
async fn cut_after_it_was_executed_and_nobody_knows() {
    let ward = Ward::new().await;
    let came_to = ward.struck_by(Fault::CutAfter).await.await.unwrap();
    assert!(is_broken(&came_to), "{came_to:?}");
    assert_eq!(ward.beat().await, 1);
    assert!(ward.was_struck(Fault::CutAfter));
}

#[tokio::test]
async fn in_an_outage_it_was_executed_and_nobody_behind_the_wire_reaches_the_server() {
    let ward = Ward::new().await;
    let outage = Fault::Outage(LATE);
    let mut bystander = ward.connect().await;
    let came_to = ward.struck_by(outage).await.await.unwrap();
    assert!(is_broken(&came_to), "{came_to:?}");
    assert!(is_broken(&beat(&mut bystander).await));
    assert_eq!(ward.beat().await, 1);
    assert!(ward.was_struck(outage));
    assert!(PgConnection::connect(&ward.url).await.is_err());
    until("the outage to be over", async || {
        PgConnection::connect(&ward.url).await.ok()
    })
    .await;
}

#[tokio::test]
async fn cut_within_its_answer_it_was_executed_and_some_of_the_answer_came() {
    let ward = Ward::new().await;
    ward.wire.arm(Statement::Beat, 1, Fault::CutWithin);
    let mut connection = ward.connect().await;
    let sql = "WITH beaten AS (UPDATE pulse SET beat = beat + 1 RETURNING beat) \
               SELECT n FROM beaten, generate_series(1, 500) n";
    let rows = sqlx::query(sql).fetch(&mut connection);
    let rows: Vec<_> = rows.collect().await;
    let (last, before) = rows.split_last().unwrap();
    assert!(last.is_err() && before.iter().all(Result::is_ok));
    assert!((100..400).contains(&before.len()), "{}", before.len());
    assert_eq!(ward.beat().await, 1);
    assert!(ward.was_struck(Fault::CutWithin));
}

#[tokio::test]
async fn a_late_question_is_executed_late() {
    let ward = Ward::new().await;
    let fault = Fault::DelayQuestion(LATE);
    let beating = ward.struck_by(fault).await;
    until_so("the question to be held back", async || {
        ward.was_struck(fault)
    })
    .await;
    assert_eq!(ward.beat().await, 0);
    assert!(!beating.is_finished());
    beating.await.unwrap().unwrap();
    assert_eq!(ward.beat().await, 1);
}

#[tokio::test]
async fn a_late_answer_is_of_what_was_executed_in_time() {
    let ward = Ward::new().await;
    let fault = Fault::DelayAnswer(LATE);
    let beating = ward.struck_by(fault).await;
    until_so("it to be executed", async || ward.beat().await == 1).await;
    assert!(!beating.is_finished());
    beating.await.unwrap().unwrap();
    assert!(ward.was_struck(fault));
}

#[tokio::test]
async fn a_swallowed_answer_never_comes_and_the_connection_stays() {
    let ward = Ward::new().await;
    let mut beating = ward.struck_by(Fault::SwallowAnswer).await;
    until_so("it to be executed", async || {
        ward.was_struck(Fault::SwallowAnswer)
    })
    .await;
    assert_eq!(ward.beat().await, 1);
    let silence = timeout(Duration::from_millis(300), &mut beating).await;
    assert!(silence.is_err(), "{silence:?}");
    ward.wire.cut();
    let came_to = beating.await.unwrap();
    assert!(is_broken(&came_to), "{came_to:?}");
}

#[tokio::test]
async fn an_error_is_told_and_the_connection_is_good_afterwards() {
    let ward = Ward::new().await;
    let mut connection = ward.connect().await;
    for (refusal, nth) in EVERY.into_iter().zip(1..) {
        ward.wire
            .arm(Statement::Beat, 2 * nth - 1, Fault::Error(refusal));
        assert_eq!(code(beat(&mut connection).await), refusal.code());
        beat(&mut connection).await.unwrap();
        assert!(ward.was_struck(Fault::Error(refusal)));
    }
    assert_eq!(ward.beat().await, 7);
}

#[tokio::test]
async fn an_error_within_a_transaction_fails_all_of_it() {
    let ward = Ward::new().await;
    ward.wire
        .arm(Statement::Beat, 2, Fault::Error(Refusal::Deadlock));
    let mut connection = ward.connect().await;
    let mut transaction = connection.begin().await.unwrap();
    beat(&mut transaction).await.unwrap();
    assert_eq!(code(beat(&mut transaction).await), "40P01");
    assert_eq!(code(beat(&mut transaction).await), "25P02");
    transaction.rollback().await.unwrap();
    assert_eq!(ward.beat().await, 0);
    beat(&mut connection).await.unwrap();
    assert_eq!(ward.beat().await, 1);
}

#[tokio::test]
async fn a_refused_commit_has_ended_its_transaction() {
    let ward = Ward::new().await;
    let refusal = Refusal::SerializationFailure;
    ward.wire.arm(Statement::Commit, 1, Fault::Error(refusal));
    let mut connection = ward.connect().await;
    for sql in ["BEGIN", BEAT] {
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }
    let committing = sqlx::raw_sql("SELECT; COMMIT")
        .execute(&mut connection)
        .await;
    assert_eq!(code(committing.map(drop)), refusal.code());
    assert_eq!(ward.beat().await, 0);
    // Outside a transaction a statement commits by itself.
    beat(&mut connection).await.unwrap();
    assert_eq!(ward.beat().await, 1);
}

#[tokio::test]
async fn a_commit_is_cut_before_or_after_it_has_happened() {
    let ward = Ward::new().await;
    for (fault, nth, beats) in [(Fault::CutBefore, 1, 0), (Fault::CutAfter, 2, 1)] {
        ward.wire.arm(Statement::Commit, nth, fault);
        let mut connection = ward.connect().await;
        let mut transaction = connection.begin().await.unwrap();
        beat(&mut transaction).await.unwrap();
        let came_to = transaction.commit().await;
        assert!(is_broken(&came_to), "{came_to:?}");
        assert_eq!(ward.beat().await, beats, "{fault:?}");
    }
}

#[tokio::test]
async fn a_shutdown_is_told_and_ends_the_connection() {
    let ward = Ward::new().await;
    let fault = Fault::Error(Refusal::AdminShutdown);
    ward.wire.arm(Statement::Beat, 2, fault);
    let mut connection = ward.connect().await;
    let mut transaction = connection.begin().await.unwrap();
    beat(&mut transaction).await.unwrap();
    assert_eq!(code(beat(&mut transaction).await), "57P01");
    assert!(is_broken(&beat(&mut transaction).await));
    assert_eq!(ward.beat().await, 0);
    beat(&mut ward.connect().await).await.unwrap();
    assert_eq!(ward.beat().await, 1);
}

#[tokio::test]
async fn an_answer_in_small_pieces_is_whole() {
    let ward = Ward::new().await;
    ward.wire.arm(Statement::Beat, 1, Fault::Trickle);
    let mut connection = ward.connect().await;
    let sql = "WITH beaten AS (UPDATE pulse SET beat = beat + 1 RETURNING beat) \
               SELECT n FROM beaten, generate_series(1, 1000) n";
    let rows: Vec<i32> = sqlx::query_scalar(sql)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert!(rows.iter().copied().eq(1..=1000));
    assert!(ward.was_struck(Fault::Trickle));
}

#[tokio::test]
async fn statements_are_changed_on_their_way_and_known_for_what_they_were() {
    let ward = Ward::new().await;
    let rewrite = |find: &str, replace: &str| Rewrite {
        find: find.to_owned(),
        replace: replace.to_owned(),
    };
    ward.wire.rewrite(vec![
        rewrite(
            "beat = beat + 1",
            "beat = beat + 1000 * (1 + $1::int) /* a mistake that was planted */",
        ),
        rewrite("not there", ""),
        rewrite(" /* a mistake", " /* a known mistake"),
    ]);
    let mut connection = ward.connect().await;
    for persistent in [false, true] {
        // The client has not read what the server reads: it binds what the server wants.
        let changed = sqlx::query("UPDATE pulse SET beat = beat + 1 WHERE $1::int IS NOT NULL");
        let changed = changed.bind(1).persistent(persistent);
        changed.execute(&mut connection).await.unwrap();
    }
    assert_eq!(ward.beat().await, 4_000);
    assert_eq!(ward.wire.rewritten(), [2, 0, 2]);
    assert_eq!(ward.wire.passed(Statement::Beat), 2);
}

#[tokio::test]
async fn large_statements_and_answers_pass() {
    let ward = Ward::new().await;
    let mut connection = ward.connect().await;
    let text = "x".repeat(LARGE);
    for fault in [None, Some(Fault::CutWithin), Some(Fault::DelayAnswer(1))] {
        let beaten = ward.wire.passed(Statement::Beat) + 1;
        if let Some(fault) = fault {
            ward.wire.arm(Statement::Beat, beaten, fault);
        }
        let sql = "WITH beaten AS (UPDATE pulse SET beat = beat + 1) SELECT $1::text || 'y'";
        let answer = sqlx::query_scalar(sql)
            .bind(&text)
            .fetch_one(&mut connection)
            .await;
        let answer: Result<String, _> = answer;
        assert_eq!(ward.beat().await, i32::try_from(beaten).unwrap());
        match fault {
            Some(Fault::CutWithin) => {
                assert!(is_broken(&answer.map(drop)));
                connection = ward.connect().await;
            }
            _harmless => assert_eq!(answer.unwrap().len(), LARGE + 1),
        }
    }
}

#[tokio::test]
async fn a_silent_wire_swallows_what_one_side_says_until_it_is_cut() {
    for (side, arrives) in [
        (Some(Side::Client), false),
        (Some(Side::Server), true),
        (None, false),
    ] {
        let ward = Ward::new().await;
        let mut connection = ward.connect().await;
        // Now the statement is prepared: it is one question.
        beat(&mut connection).await.unwrap();
        ward.wire.silence(side, true);
        #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
        let mut beating = tokio::spawn(async move { beat(&mut connection).await });
        if arrives {
            until_so("it to be executed", async || ward.beat().await == 2).await;
        }
        let silence = timeout(Duration::from_millis(200), &mut beating).await;
        assert!(silence.is_err(), "{side:?}: {silence:?}");
        let connecting = timeout(Duration::from_millis(200), PgConnection::connect(&ward.url));
        assert!(
            connecting.await.is_err(),
            "a new connection through silence"
        );
        ward.wire.silence(None, false);
        let came_to = beating.await.unwrap();
        assert!(is_broken(&came_to), "{side:?}: {came_to:?}");
        assert_eq!(ward.beat().await, if arrives { 2 } else { 1 }, "{side:?}");
        beat(&mut ward.connect().await).await.unwrap();
    }
}

#[tokio::test]
async fn a_wire_refuses_and_is_slow_until_it_is_healed() {
    let ward = Ward::new().await;
    let mut old = ward.connect().await;
    beat(&mut old).await.unwrap();
    ward.wire.refuse(true);
    let refused = timeout(LONG, PgConnection::connect(&ward.url))
        .await
        .unwrap();
    assert!(refused.is_err());
    beat(&mut old).await.unwrap();
    // There and back.
    ward.wire.slow(Some(Duration::from_millis(200)));
    let began = std::time::Instant::now();
    beat(&mut old).await.unwrap();
    let took = began.elapsed();
    assert!((400..4_000).contains(&took.as_millis()), "{took:?}");
    ward.wire.arm(Statement::Beat, 4, Fault::CutBefore);
    ward.wire.healed();
    beat(&mut old).await.unwrap();
    beat(&mut ward.connect().await).await.unwrap();
    assert_eq!((ward.beat().await, ward.wire.struck().len()), (5, 0));
    ward.wire.cut();
    assert!(is_broken(&beat(&mut old).await));
}

#[tokio::test]
async fn a_wire_whose_server_is_away_closes_its_connections() {
    // Nothing listens on port 1.
    let wire = Wire::to(1).await.unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", wire.port());
    let connecting = timeout(LONG, PgConnection::connect(&url)).await;
    assert!(connecting.unwrap().is_err());
}

#[tokio::test]
async fn a_process_that_starts_does_not_wait_for_ever_for_a_server_that_falls_silent() {
    let silent_at = |nth| async move {
        let ward = Ward::new().await;
        ward.wire.arm(Statement::Other, nth, Fault::SwallowAnswer);
        let ledger = ward.database.through(ward.wire.port());
        let checked = timeout(LONG, migrate::check_schema(&ledger)).await;
        let struck = ward.wire.struck();
        assert_eq!(struck, [(Statement::Other, nth, Fault::SwallowAnswer)]);
        checked.is_ok_and(|checked| checked.is_err())
    };
    let ended = tokio::join!(silent_at(1), silent_at(2), silent_at(3));
    assert_eq!(ended, (true, true, true));
}
