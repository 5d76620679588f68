//! The lane: every row is told what became of it, once, whatever the server does.

use std::{
    cell::RefCell,
    collections::HashSet,
    sync::{Arc, Mutex},
};

use fleet::checkpoint::Checkpoint;
use futures_util::future::{BoxFuture, join};
use shuttle::{
    future::{block_on, spawn, yield_now},
    rand::{Rng as _, thread_rng},
};

use crate::{
    check::{finds, holds, saw},
    world::{
        ledger::{PgConnection, Postgres, refusal},
        once_in,
        time::{Duration, timeout},
    },
    woven::lane::{BATCH_ROWS_MAX, Lane, Locks, Reply, Statement},
};

thread_local! {
    /// The rows, in the order in which the lane took them out of its queue.
    static ARRIVED: RefCell<Vec<u32>> = RefCell::default();
}

/// A row: what it is, what it must not share a batch with, and what the server thinks of it.
#[derive(Debug, Clone, Copy)]
struct Row {
    id: u32,
    key: u32,
    unit: u32,
    is_bad: bool,
    is_locked: bool,
}

#[derive(Default)]
struct Write {
    faulty: bool,
}

impl Statement for Write {
    type Row = Row;
    type Answer = u32;
    type Key = u32;

    const NAME: &'static str = "write";
    const SENT: Option<Checkpoint> = None;

    fn key(row: &Row) -> u32 {
        row.key
    }

    /// The lane asks it of every unit that arrives, in that order, and again of what was held back.
    fn weight(row: &Row) -> usize {
        ARRIVED.with_borrow_mut(|arrived| {
            if !arrived.contains(&row.id) {
                arrived.push(row.id);
            }
        });
        1
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [Row],
        locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<u32>>, sqlx::Error>> {
        Box::pin(self.write(connection, rows, locks))
    }
}

impl Write {
    async fn write(
        &self,
        connection: &mut PgConnection,
        rows: &[Row],
        locks: Locks,
    ) -> Result<Vec<Option<u32>>, sqlx::Error> {
        let one_unit = rows.iter().all(|row| row.unit == rows[0].unit);
        assert!(
            rows.len() <= BATCH_ROWS_MAX || one_unit,
            "a batch is too large"
        );
        let keys: HashSet<u32> = rows.iter().map(|row| row.key).collect();
        assert_eq!(keys.len(), rows.len(), "a key is twice in a statement");
        let ids: Vec<u32> = rows.iter().map(|row| row.id).collect();
        let statement = connection.begin(&ids).await;
        if self.faulty && once_in(12) {
            return Err(statement.no_answer().await);
        }
        if self.faulty && once_in(12) {
            return statement.answer(Err(refusal("53100")));
        }
        if rows.iter().any(|row| row.is_bad) {
            return statement.answer(Err(refusal("23514")));
        }
        if locks == Locks::Wait && rows.iter().any(|row| row.is_locked) {
            return statement.answer(Err(refusal("55P03")));
        }
        let moved: Vec<Option<u32>> = rows
            .iter()
            .map(|row| (!row.is_locked).then_some(row.id))
            .collect();
        statement.keep(&moved).await;
        if self.faulty && once_in(12) {
            return Err(statement.no_answer().await);
        }
        statement.answer(Ok(moved))
    }
}

/// What happens to the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Sound,
    FaultyServer,
    EndsEarly,
}

/// A row, and what its caller was told of it.
type Answered = (Row, Reply<u32>);

/// What the callers were told, row by row.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Answered>>>);

impl Told {
    fn note(&self, row: Row, reply: Reply<u32>) {
        self.0.lock().unwrap().push((row, reply));
    }
}

const fn row(id: u32, key: u32) -> Row {
    Row {
        id,
        key,
        unit: id,
        is_bad: false,
        is_locked: false,
    }
}

/// Callers at once: two rows of one key one behind the other, a unit that does not fit behind them, one that is larger
/// than a batch, one that the server refuses, one that another session has locked, and one whose sender does not wait for the answer.
fn callers(run: Run) {
    block_on(async move {
        ARRIVED.take();
        let (postgres, told) = (Postgres::default(), Told::default());
        let (lane, running) = Lane::new(
            Arc::new(Write {
                faulty: run == Run::FaultyServer,
            }),
            postgres.clone(),
        );
        let running = spawn(running);
        let mut callers = Vec::new();
        let one = |row: Row| {
            let (lane, told) = (lane.clone(), told.clone());
            async move { told.note(row, lane.send(row).await) }
        };
        let unit = |rows: Vec<Row>| {
            let (lane, told) = (lane.clone(), told.clone());
            async move {
                let replies = lane.send_all(rows.clone()).await;
                assert_eq!(replies.len(), rows.len(), "one answer per row");
                for (row, reply) in rows.into_iter().zip(replies) {
                    told.note(row, reply);
                }
            }
        };
        callers.push(spawn(async_pair(one(row(1, 1)), one(row(2, 1)))));
        callers.push(spawn(unit(vec![
            Row {
                unit: 3,
                ..row(3, 3)
            },
            Row {
                unit: 3,
                is_bad: true,
                ..row(4, 4)
            },
        ])));
        let large = (10..14).map(|id| Row {
            unit: 10,
            ..row(id, id)
        });
        callers.push(spawn(unit(large.collect())));
        callers.push(spawn(async_pair(
            one(Row {
                is_locked: true,
                ..row(5, 5)
            }),
            one(row(6, 3)),
        )));
        let hasty = one(row(7, 7));
        callers.push(spawn(async move {
            drop(timeout(Duration::from_millis(1), hasty).await);
        }));
        drop(lane);
        if run == Run::EndsEarly {
            for _ in 0..thread_rng().gen_range(0..60) {
                yield_now().await;
            }
            running.abort();
        }
        for caller in callers {
            caller.await.unwrap();
        }
        if running.await.is_err() {
            assert_eq!(run, Run::EndsEarly, "a lane ends by itself");
            saw("ended early");
        }
        judge(run, &postgres, &told);
    });
}

async fn async_pair(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    join(one, other).await;
}

/// Holds what the callers were told against what was done.
fn judge(run: Run, postgres: &Postgres, told: &Told) {
    let (kept, told) = (postgres.kept(), told.0.lock().unwrap());
    let done: HashSet<u32> = kept.done.iter().copied().collect();
    assert_eq!(done.len(), kept.done.len(), "a row was done twice");
    let answered: HashSet<u32> = told.iter().map(|(row, _)| row.id).collect();
    assert_eq!(answered.len(), told.len(), "a row was answered twice");
    for id in (1..=6).chain(10..14) {
        assert!(answered.contains(&id), "row {id} was not answered");
    }
    for (row, reply) in told.iter() {
        saw(match reply {
            Reply::Done(_) => "done",
            Reply::Undecided => "undecided",
            Reply::Refused(_) => "refused",
            Reply::Unknown => "unknown",
            Reply::NotSent => "not sent",
        });
        let is_done = done.contains(&row.id);
        let fits = match reply {
            Reply::Done(id) => is_done && *id == row.id,
            Reply::Undecided => !is_done && (row.is_locked || matches!(row.key, 1 | 3)),
            Reply::Refused(_) => !is_done && row.is_bad,
            Reply::Unknown => run == Run::EndsEarly || kept.unanswered.contains(&row.id),
            Reply::NotSent => !is_done,
        };
        assert!(fits, "row {} was told {reply:?}; done: {is_done}", row.id);
    }
    first_come_first_served(&told);
}

/// Of two rows with one key the one that came first is not sent away because of the other.
fn first_come_first_served(told: &[Answered]) {
    let arrived = ARRIVED.take();
    for key in [1, 3] {
        let rivals = |id: &&u32| told.iter().any(|(row, _)| row.id == **id && row.key == key);
        let first = arrived.iter().find(rivals);
        let sent_away =
            |(row, reply): &&Answered| Some(&row.id) == first && matches!(reply, Reply::Undecided);
        let sent_away = told.iter().find(sent_away);
        assert!(sent_away.is_none(), "{sent_away:?} although it came first");
    }
}

fn beside_each_other() {
    callers(Run::Sound);
}

fn with_a_faulty_server() {
    callers(Run::FaultyServer);
}

fn that_ends_early() {
    callers(Run::EndsEarly);
}

const REPLIES: [&str; 5] = ["done", "undecided", "refused", "unknown", "not sent"];

#[test]
fn every_row_is_told_what_became_of_it() {
    // Nothing is unknown of a server that does not fail, but when it is too slow: that need not come up.
    let sound = REPLIES.into_iter().filter(|reply| *reply != "unknown");
    holds("lane", &sound.collect::<Vec<_>>(), beside_each_other);
}

#[test]
fn a_server_that_fails_leaves_no_row_untold() {
    holds("lane, faulty server", &REPLIES, with_a_faulty_server);
}

#[test]
fn a_lane_that_ends_early_leaves_no_row_untold() {
    holds("lane, ended early", &REPLIES, that_ends_early);
}

#[test]
fn mistakes_in_the_lane_are_found() {
    finds(
        "what did not fit is forgotten",
        "told Unknown",
        beside_each_other,
    );
    finds(
        "the later half is forgotten",
        "told Unknown",
        beside_each_other,
    );
    finds(
        "a key is twice in a batch",
        "a key is twice in a statement",
        beside_each_other,
    );
    finds(
        "what was held back goes last",
        "although it came first",
        beside_each_other,
    );
    finds(
        "a silent connection is used again",
        "used again after a silence",
        with_a_faulty_server,
    );
    finds(
        "silence counts as not sent",
        "told NotSent",
        with_a_faulty_server,
    );
    finds("an end counts as not sent", "told NotSent", that_ends_early);
}
