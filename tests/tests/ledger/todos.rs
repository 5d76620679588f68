//! Todo lists of sessions: what is written once, by several at a time, and forgotten.

use std::time::Duration;

use fleet::{
    ids::CallId,
    store::todos::{self, WrittenTodos},
    todo::{ITEMS_MAX, TodoChanges, TodoItem, TodoUpdate},
};
use fleet_tests::postgres::Database;
use futures_util::future::join_all;
use sqlx::{AssertSqlSafe, PgPool};

/// Titles of new items, and ids with new statuses.
fn changes(add: &[&str], update: &[(&str, &str)]) -> TodoChanges {
    let update = update.iter();
    TodoChanges {
        add: add.iter().map(|title| (*title).to_owned()).collect(),
        update: update
            .map(|(id, status)| TodoUpdate {
                id: (*id).to_owned(),
                status: (*status).to_owned(),
            })
            .collect(),
    }
}

async fn write(pool: &PgPool, session: &str, call: CallId, of: &TodoChanges) -> WrittenTodos {
    todos::write(pool, "acme", session, call, of).await.unwrap()
}

/// The items as a model reads them.
fn told(items: &[TodoItem]) -> Vec<String> {
    let tell = |item: &TodoItem| format!("{} {} {}", item.id, item.status, item.title);
    items.iter().map(tell).collect()
}

fn problems(written: &WrittenTodos) -> Vec<String> {
    let problems = written.problems.iter();
    problems
        .map(|problem| format!("{} {}", problem.place, problem.message))
        .collect()
}

#[tokio::test]
async fn changes_are_made_one_by_one_and_what_is_wrong_changes_nothing() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let first = write(pool, "s", CallId::generate(), &changes(&["a", "b"], &[])).await;
    assert_eq!(told(&first.items), ["t1 pending a", "t2 pending b"]);
    let wrong = changes(
        &["c", " "],
        &[
            ("t1", "completed"),
            ("t3", "completed"),
            ("t2", "done"),
            ("t2", "cancelled"),
            ("2", "in_progress"),
        ],
    );
    let second = write(pool, "s", CallId::generate(), &wrong).await;
    assert_eq!(
        told(&second.items),
        ["t1 completed a", "t2 in_progress b", "t3 pending c"]
    );
    let found = problems(&second);
    assert_eq!(found.len(), 3, "{found:?}");
    for (problem, (begins, says)) in found.iter().zip([
        ("/add/1 ", "empty"),
        ("/update/1 ", "no item \"t3\""),
        ("/update/2 ", "\"done\" is no status"),
    ]) {
        assert!(
            problem.starts_with(begins) && problem.contains(says),
            "{problem}"
        );
    }
    // Asking for nothing, or for nothing that can be, makes no list.
    for nothing in [changes(&[], &[]), changes(&[""], &[("x", "pending")])] {
        let empty = write(pool, "other", CallId::generate(), &nothing).await;
        assert_eq!(empty.items, []);
    }
    let rows: Vec<(String, String, i32)> = sqlx::query_as(
        "SELECT session, id, rev FROM toolfleet.todos ORDER BY tenant, session, number",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let row = |id: &str, rev| ("s".to_owned(), id.to_owned(), rev);
    assert_eq!(rows, [row("t1", 1), row("t2", 1), row("t3", 0)]);
}

#[tokio::test]
async fn writers_at_one_time_add_up() {
    const WRITERS: usize = 8;
    const EACH: usize = 5;
    let database = Database::fresh().await;
    let pool = &database.pool;
    let begun = write(
        pool,
        "s",
        CallId::generate(),
        &changes(&["0"; WRITERS], &[]),
    )
    .await;
    assert_eq!(begun.items.len(), WRITERS);
    let writing = (1..=WRITERS).map(|writer| async move {
        for n in 0..EACH {
            let (id, title) = (format!("t{writer}"), format!("{writer}/{n}"));
            let status = if n + 1 == EACH {
                "completed"
            } else {
                "in_progress"
            };
            let of = changes(&[&title], &[(&id, status)]);
            let written = write(pool, "s", CallId::generate(), &of).await;
            assert_eq!(written.problems, []);
        }
    });
    join_all(writing).await;
    let items = todos::list(pool, "acme", "s").await.unwrap();
    assert_eq!(items.len(), WRITERS + WRITERS * EACH);
    let numbers: Vec<i32> = items.iter().map(|item| item.id.0).collect();
    assert!(numbers.is_sorted());
    assert_eq!(numbers.last(), Some(&48));
    for writer in 1..=WRITERS {
        let own = format!("{writer}/");
        let titles: Vec<&str> = items
            .iter()
            .filter_map(|item| item.title.strip_prefix(&own))
            .collect();
        assert_eq!(titles, ["0", "1", "2", "3", "4"]);
        assert_eq!(items[writer - 1].status.as_str(), "completed");
    }
}

#[tokio::test]
async fn another_attempt_of_a_call_changes_nothing_again() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let (first, second) = (CallId::generate(), CallId::generate());
    let adds = changes(&["a", "b"], &[]);
    let written = write(pool, "s", first, &adds).await;
    assert_eq!(write(pool, "s", first, &adds).await, written);
    // Two attempts that run at one time are one as well.
    let updates = changes(&["c"], &[("t1", "in_progress")]);
    let both = tokio::join!(
        write(pool, "s", second, &updates),
        write(pool, "s", second, &updates)
    );
    assert_eq!(both.0.items.len(), 3);
    assert_eq!((&both.0.problems, &both.1.problems), (&vec![], &vec![]));
    // What another call has said since stays.
    let done = changes(&[], &[("t1", "completed")]);
    write(pool, "s", CallId::generate(), &done).await;
    let again = write(pool, "s", second, &updates).await;
    assert_eq!(
        told(&again.items),
        ["t1 completed a", "t2 pending b", "t3 pending c"]
    );
}

#[tokio::test]
async fn the_hundred_and_first_is_told_unless_one_is_finished() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let titles: Vec<String> = (1..=ITEMS_MAX + 1).map(|n| n.to_string()).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let call = CallId::generate();
    let written = write(pool, "s", call, &changes(&titles, &[])).await;
    assert_eq!(written.items.len(), ITEMS_MAX);
    let found = problems(&written);
    assert!(
        found.len() == 1 && found[0].starts_with("/add/100 the list has 100 items"),
        "{found:?}"
    );
    // Another attempt is told the same.
    assert_eq!(
        write(pool, "s", call, &changes(&titles, &[])).await,
        written
    );

    let more = changes(&["x", "y"], &[("t7", "completed"), ("t3", "in_progress")]);
    let written = write(pool, "s", CallId::generate(), &more).await;
    assert_eq!(written.items.len(), ITEMS_MAX);
    let found = problems(&written);
    assert!(
        found.len() == 1 && found[0].starts_with("/add/1 "),
        "{found:?}"
    );
    assert!(!written.items.iter().any(|item| item.id.0 == 7));
    assert_eq!(told(&written.items[ITEMS_MAX - 1..]), ["t101 pending x"]);
    assert_eq!(told(&written.items[2..3]), ["t3 in_progress 3"]);
}

#[tokio::test]
async fn another_tenant_and_another_session_have_lists_of_their_own() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    write(pool, "s", CallId::generate(), &changes(&["a"], &[])).await;
    for (tenant, session) in [("beta", "s"), ("acme", "s2")] {
        assert_eq!(todos::list(pool, tenant, session).await.unwrap(), []);
        let of = changes(&[], &[("t1", "completed")]);
        let written = todos::write(pool, tenant, session, CallId::generate(), &of);
        let written = written.await.unwrap();
        assert_eq!(written.items, []);
        assert_eq!(problems(&written).len(), 1);
    }
    let items = todos::list(pool, "acme", "s").await.unwrap();
    assert_eq!(told(&items), ["t1 pending a"]);
}

#[tokio::test]
async fn a_list_that_nobody_writes_is_forgotten_with_the_history() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    for (session, days) in [("quiet", 31), ("busy", 30), ("new", 0)] {
        write(pool, session, CallId::generate(), &changes(&["a"], &[])).await;
        let sql = format!(
            "UPDATE toolfleet.todo_lists SET day = day - {days} WHERE session = '{session}'"
        );
        sqlx::query(AssertSqlSafe(sql)).execute(pool).await.unwrap();
    }
    let mut upkeep = database.connect().await;
    let retention = Duration::from_secs(30 * 86_400);
    assert!(!todos::drop_old(&mut upkeep, retention).await.unwrap());
    let left: Vec<String> =
        sqlx::query_scalar("SELECT session FROM toolfleet.todos ORDER BY session")
            .fetch_all(pool)
            .await
            .unwrap();
    assert_eq!(left, ["busy", "new"]);
    // One that is forgotten begins anew.
    let anew = write(pool, "quiet", CallId::generate(), &changes(&["b"], &[])).await;
    assert_eq!(told(&anew.items), ["t1 pending b"]);
}
