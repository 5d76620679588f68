//! Which calls a filter lists, and that the history is not read as a whole for it.

use fleet::{
    call::State,
    ids::Label,
    store::{migrate::migrate, session},
    wire::code::Code,
};
use fleet_history::{
    calls::{calls, write},
    filter::Filter,
};
use sqlx::{Connection, PgConnection, PgPool, QueryBuilder};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime, macros::format_description};
use toolfleet::servers;
use uuid::Uuid;

use crate::support::{folder, ledger, postgres};

/// A ledger with calls of three days, some of them open.
struct Told {
    server: servers::Postgres,
    pool: PgPool,
    /// The beginning of the day in the middle, by UTC.
    today: OffsetDateTime,
    _folder: TempDir,
}

impl Told {
    async fn of(calls_a_day: i32) -> Self {
        let folder = folder();
        let server = postgres(folder.path(), true).await;
        let ledger = ledger(&server.url());
        migrate(&ledger).await.unwrap();
        let pool = ledger.pool_for_reading(1);
        let today = sqlx::query_scalar("SELECT date_trunc('day', now(), 'UTC')")
            .fetch_one(&pool)
            .await
            .unwrap();
        let told = Self {
            server,
            pool,
            today,
            _folder: folder,
        };
        told.fill(ledger, calls_a_day).await;
        told
    }

    /// Calls over three days, whose ids are up to two minutes before or behind their acceptance.
    async fn fill(&self, ledger: session::Postgres, calls_a_day: i32) {
        const COLUMNS: &str = "call_id, state, tenant, tool, tool_version, effect, queue, priority, key_retention_ms, args, \
            args_hash, session, run, language, accepted_at, deadline_at";
        const VALUES: &str = "'t-' || g % 3, 'tool', 1, 'read', 'q', 1, 0, '{}', '', \
            CASE WHEN g % 2 = 0 THEN 's-' || g % 100 END, CASE WHEN g % 5 = 0 THEN 'r-' || g % 200 END, 'en', \
            at + (g % 5 - 2) * interval '1 min', at + interval '1 day'";
        const ERROR: &str = "CASE WHEN g % 20 = 0 THEN json_build_object('code', \
            CASE WHEN g % 200 = 0 THEN 'timeout' ELSE 'rate_limited' END) END";
        let from = "FROM (SELECT g, $1::timestamptz + make_interval(days => day, secs => 60 + 86000.0 * g / $2::int) AS at \
                          FROM generate_series(-1, 1) day, generate_series(1, $2::int) g) f";
        let finished = format!(
            "INSERT INTO toolfleet.finished_calls ({COLUMNS}, error, rev, from_state, outcome, source, effect_known, finished_at, \
                 queued_ms, run_ms, attempts, actor, reason)
             SELECT toolfleet.uuid_floor(at),
                    (CASE WHEN g % 20 = 0 THEN 'failed' ELSE 'succeeded' END)::toolfleet.call_state, {VALUES}, {ERROR}, 1, \
                    'running', 'success', 'live', 'none', at, 0, 0, 1, 'test', 'test'
             {from} WHERE g % 10 <> 0 OR g % 20 = 0"
        );
        let open = format!(
            "INSERT INTO toolfleet.open_calls ({COLUMNS}, last_error, dispatcher_id, not_before, line)
             SELECT toolfleet.uuid_floor(at + interval '7 ms'), 'queued', {VALUES}, {ERROR}, gen_random_uuid(), at, 'q'
             {from} WHERE g % 10 = 0"
        );
        let mut connection = ledger.connect().await.unwrap();
        for sql in [finished, open] {
            // Made above.
            sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(self.today)
                .bind(calls_a_day)
                .execute(&mut connection)
                .await
                .unwrap();
        }
    }

    async fn plan(&self, filter: &Filter) -> String {
        let mut statement = QueryBuilder::new("EXPLAIN (COSTS OFF) ");
        write(&mut statement, filter);
        let lines: Vec<String> = statement
            .build_query_scalar()
            .fetch_all(&self.pool)
            .await
            .unwrap();
        lines.join("\n")
    }

    /// The names of the partitions that have rows.
    fn days(&self) -> [String; 3] {
        [-1, 0, 1].map(|day| {
            let day = self.today + Duration::days(day);
            let name = format_description!("finished_calls_[year][month][day]");
            day.format(name).unwrap()
        })
    }

    async fn end(self) {
        self.pool.close().await;
        self.server.stop().await;
    }
}

/// A call, as the view has it.
#[derive(Debug, sqlx::FromRow)]
struct Stored {
    call_id: Uuid,
    tenant: String,
    state: String,
    session: Option<String>,
    run: Option<String>,
    code: Option<String>,
    accepted_at: OffsetDateTime,
}

fn label(text: &str) -> Option<Label> {
    Some(text.parse().unwrap())
}

/// Whether this call is wanted: said once more, without SQL.
fn is_wanted(filter: &Filter, call: &Stored) -> bool {
    let is = |wanted: Option<&str>, found: Option<&str>| wanted.is_none() || wanted == found;
    let label = |wanted: &Option<Label>| wanted.as_ref().map(ToString::to_string);
    is(label(&filter.tenant).as_deref(), Some(&call.tenant))
        && is(filter.state.map(State::as_str), Some(&call.state))
        && is(label(&filter.session).as_deref(), call.session.as_deref())
        && is(label(&filter.run).as_deref(), call.run.as_deref())
        && is(filter.code.map(Code::as_str), call.code.as_deref())
        && filter.since.is_none_or(|since| call.accepted_at >= since)
        && filter.until.is_none_or(|until| call.accepted_at < until)
}

#[tokio::test]
async fn every_combination_of_filters_lists_the_calls_for_which_all_hold() {
    let told = Told::of(400).await;
    let stored: Vec<Stored> = sqlx::query_as(
        "SELECT call_id, tenant, state, session, run, error->>'code' AS code, accepted_at \
         FROM toolfleet.calls ORDER BY call_id DESC",
    )
    .fetch_all(&told.pool)
    .await
    .unwrap();
    assert_eq!(stored.len(), 3 * (380 + 40));
    let open = stored.iter().filter(|call| call.state == "queued").count();
    assert_eq!(open, 3 * 40, "calls that are not over");
    // Calls that were accepted at the very bounds: the first is in, the second is not.
    let since = stored[1000].accepted_at;
    let until = stored[150].accepted_at;
    let mut some = 0;
    for wanted in 0..128_u8 {
        let has = |bit: u8| wanted & (1 << bit) != 0;
        for limit in [1000, 3] {
            let filter = Filter {
                tool: None,
                session: label("s-0").filter(|_| has(0)),
                run: label("r-0").filter(|_| has(1)),
                code: Some(Code::Timeout).filter(|_| has(2)),
                since: Some(since).filter(|_| has(3)),
                until: Some(until).filter(|_| has(4)),
                tenant: label("t-1").filter(|_| has(5)),
                state: Some(State::Failed).filter(|_| has(6)),
                limit,
                ..Filter::default()
            };
            let expected: Vec<Uuid> = stored
                .iter()
                .filter(|call| is_wanted(&filter, call))
                .map(|call| call.call_id)
                .take(usize::try_from(limit).unwrap())
                .collect();
            let listed = calls(&told.pool, &filter).await.unwrap();
            let listed: Vec<Uuid> = listed
                .iter()
                .map(|row| row.read().unwrap().call_id.parse().unwrap())
                .collect();
            assert_eq!(listed, expected, "{filter:?}");
            some += usize::from(!expected.is_empty());
        }
    }
    assert!(some > 200, "{some} combinations have calls");
    told.end().await;
}

#[tokio::test]
async fn a_session_a_run_and_a_code_are_found_by_their_indexes_with_statistics_and_without() {
    let told = Told::of(3000).await;
    for analysed in [false, true] {
        if analysed {
            let mut connection = PgConnection::connect(&told.server.url()).await.unwrap();
            sqlx::query("ANALYZE toolfleet.finished_calls")
                .execute(&mut connection)
                .await
                .unwrap();
        }
        for index in ["session", "run", "code"] {
            let filter = Filter {
                session: label("s-42").filter(|_| index == "session"),
                run: label("r-20").filter(|_| index == "run"),
                code: Some(Code::Timeout).filter(|_| index == "code"),
                limit: 20,
                ..Filter::default()
            };
            let plan = told.plan(&filter).await;
            for day in told.days() {
                assert!(plan.contains(&format!("{day}_{index}")), "{day}: {plan}");
                for whole in [format!("Seq Scan on {day}"), format!("{day}_pkey")] {
                    assert!(!plan.contains(&whole), "{whole}: {plan}");
                }
            }
        }
    }
    told.end().await;
}

#[tokio::test]
async fn a_span_of_time_is_looked_for_in_its_days_only() {
    let told = Told::of(3000).await;
    let hours = |hours| Some(told.today + Duration::hours(hours));
    let span = Filter {
        since: hours(6),
        until: hours(7),
        limit: 20,
        ..Filter::default()
    };
    let [before, today, after] = told.days();
    let plan = told.plan(&span).await;
    assert!(plan.contains(&format!("{today}_pkey")), "{plan}");
    assert!(!plan.contains(&before) && !plan.contains(&after), "{plan}");
    // The same days, and in them the failed ones.
    let failed = Filter {
        code: Some(Code::Timeout),
        session: label("s-42"),
        ..span
    };
    let plan = told.plan(&failed).await;
    assert!(
        ["session", "code"]
            .iter()
            .any(|index| plan.contains(&format!("{today}_{index}"))),
        "{plan}"
    );
    assert!(!plan.contains(&before) && !plan.contains(&after), "{plan}");
    // What has no end goes up to the newest day.
    let lately = Filter {
        since: hours(6),
        limit: 20,
        ..Filter::default()
    };
    let plan = told.plan(&lately).await;
    assert!(plan.contains(&today) && plan.contains(&after), "{plan}");
    assert!(!plan.contains(&before), "{plan}");
    told.end().await;
}
