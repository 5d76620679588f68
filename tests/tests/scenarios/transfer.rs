//! Money that moves between accounts by a `transaction` tool, while workers die, backends are ended, and connections break
//! around the COMMIT: whatever happens, each transfer has happened once or not at all, and the ledger says which.

use std::time::Duration;

use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    proxy::{Broken, Proxy},
    real::Real,
    wait::until_within,
    witness::Witness,
};
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const ACCOUNTS: u64 = 64;
/// What every account has at first.
const BALANCE: i64 = 200;
/// The least that each way to break a COMMIT must have happened in the whole of it.
const BROKEN_MIN: usize = 200;

/// How much is done, and to whom.
struct Plan {
    transfers: u64,
    callers: usize,
    workers: usize,
    /// Every how-manieth COMMIT breaks its connection.
    break_every: usize,
    /// Between two workers that are killed.
    kill_every: Duration,
    /// Between two backends that are ended.
    end_every: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_transfers_happen_once_or_not_at_all() {
    let plan = Plan {
        transfers: 1_000,
        callers: 24,
        workers: 2,
        break_every: 8,
        kill_every: Duration::from_secs(3),
        end_every: Duration::from_millis(150),
    };
    let (fleet, broken) = Box::pin(transfer(plan)).await;
    assert!(broken.iter().all(|times| *times > 0), "{broken:?}");
    // Every call by itself too.
    invariants::hold(&fleet, &Witness::start().await).await;
}

/// `make prove`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make prove"]
async fn twenty_thousand_transfers_happen_once_or_not_at_all() {
    let plan = Plan {
        transfers: 20_000,
        callers: 48,
        workers: 3,
        break_every: 25,
        kill_every: Duration::from_secs(5),
        end_every: Duration::from_millis(200),
    };
    let (_fleet, broken) = Box::pin(transfer(plan)).await;
    assert!(
        broken.iter().all(|times| *times >= BROKEN_MIN),
        "too few COMMITs were broken: {broken:?}"
    );
}

/// The example as it stands in the folder, and accounts 1 to 4.
async fn example() -> Fleet {
    let example = include_str!("../../../examples/tools/transfer.yaml").to_owned();
    let fleet = Fleet::start(Spec::with([example])).await;
    sqlx::raw_sql(
        "CREATE TABLE tools.accounts (id int PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0)); \
         INSERT INTO tools.accounts SELECT n, 100 FROM generate_series(1, 4) n",
    )
    .execute(&mut fleet.database.connect().await)
    .await
    .unwrap();
    fleet
}

#[tokio::test]
async fn the_example_makes_and_loses_no_money_where_an_account_is_missing_or_both_are_one() {
    let fleet = example().await;
    let total = "SELECT sum(balance)::bigint FROM tools.accounts";
    for (case, from, to, amount, message) in [
        (
            "to-one-that-is-missing",
            1,
            9,
            30,
            "Expected exactly 2 rows, found 1",
        ),
        (
            "from-one-that-is-missing",
            9,
            1,
            30,
            "Expected exactly 2 rows, found 1",
        ),
        (
            "between-two-that-are-missing",
            8,
            9,
            30,
            "Expected exactly 2 rows, found 0",
        ),
        ("to-itself", 1, 1, 30, "Expected exactly 2 rows, found 1"),
        ("more-than-there-is", 1, 2, 101, "check constraint"),
    ] {
        let args = json!({"from": from, "to": to, "amount": amount});
        let answer = fleet.submit("transfer", &args).key(case).wait().await;
        assert_eq!(fleet.count(total).await, 400, "{case}: {:?}", *answer);
        assert_eq!(
            (
                &answer["state"],
                &answer["outcome"],
                &answer["effect"],
                answer.code()
            ),
            (
                &json!("failed"),
                &json!("business_error"),
                &json!("not_applied"),
                "tool_error"
            ),
            "{case}: {:?}",
            *answer
        );
        let told = answer["error"]["message"].as_str().unwrap();
        assert!(told.contains(message), "{case}: {told}");
    }
    let args = json!({"from": 1, "to": 1, "amount": 30});
    let chinese = fleet.submit("transfer", &args).key("zh");
    let chinese = chinese.header("Toolfleet-Language", "zh").wait().await;
    let told = chinese["error"]["message"].as_str().unwrap();
    assert!(
        told.starts_with("预期恰好 2 行，实际 1 行。操作没有生效。"),
        "{told}"
    );
    let unmoved = "SELECT count(*) FROM tools.accounts WHERE balance = 100";
    assert_eq!(fleet.count(unmoved).await, 4);
    invariants::hold(&fleet, &Witness::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_keeps_the_total_while_many_transfers_of_every_kind_run_at_once() {
    const TRANSFERS: i64 = 400;
    let fleet = example().await;
    // Of every account to every account; 5 and 6 are missing.
    let plan = |n: i64| (1 + n % 6, 1 + n / 6 % 6, 1 + n % 60);
    let answers = stream::iter(0..TRANSFERS)
        .map(|n| {
            let (from, to, amount) = plan(n);
            let args = json!({"from": from, "to": to, "amount": amount});
            let asked = fleet.submit("transfer", &args).key(&format!("t{n}"));
            async move { (n, asked.wait().await) }
        })
        .buffer_unordered(32)
        .collect::<Vec<(i64, Answer)>>()
        .await;
    let mut balances = [100_i64; 4];
    let mut succeeded = 0;
    for (n, answer) in &answers {
        let (from, to, amount) = plan(*n);
        if answer["state"] == "succeeded" {
            succeeded += 1;
            assert!(
                from != to && from <= 4 && to <= 4,
                "{from} to {to}: {:?}",
                **answer
            );
            balances[usize::try_from(from - 1).unwrap()] -= amount;
            balances[usize::try_from(to - 1).unwrap()] += amount;
        } else {
            assert_eq!(answer["outcome"], "business_error", "{:?}", **answer);
            assert_eq!(answer["effect"], "not_applied", "{:?}", **answer);
        }
    }
    assert!(succeeded > 20, "only {succeeded} were possible");
    let mut found = fleet.database.connect().await;
    let found: Vec<i64> = sqlx::query_scalar("SELECT balance FROM tools.accounts ORDER BY id")
        .fetch_all(&mut found)
        .await
        .unwrap();
    assert_eq!(
        found, balances,
        "what the answers say is what the accounts have"
    );
    assert_eq!(found.iter().sum::<i64>(), 400, "the total");
    invariants::hold(&fleet, &Witness::start().await).await;
}

#[expect(clippy::print_stdout, reason = "a proof says what it did")]
async fn transfer(plan: Plan) -> (Fleet, [usize; 3]) {
    let began = Instant::now();
    let fleet = Fleet::start(Spec::with([transfer_tool()]).workers(0, &[])).await;
    lay_out(&fleet).await;
    let wire = Proxy::to(port(&fleet)).await;
    wire.break_commits(plan.break_every);
    let stop = CancellationToken::new();
    let (answers, killed, ended) = tokio::join!(
        async {
            let answers = stream::iter(0..plan.transfers)
                .map(|n| insist(&fleet, n))
                .buffer_unordered(plan.callers)
                .collect::<Vec<Answer>>()
                .await;
            stop.cancel();
            answers
        },
        kill_workers(&fleet, &wire, &plan, &stop),
        end_backends(&fleet, &plan, &stop),
    );
    let broken = Broken::ALL.map(|how| wire.broken(how));
    let told = check(&fleet, &plan, &answers).await;
    println!(
        "transfers | {} calls, {told} | workers killed {killed}, backends ended {ended}, \
         COMMITs broken before {}, during {}, after {} | {:.0} s",
        plan.transfers,
        broken[0],
        broken[1],
        broken[2],
        began.elapsed().as_secs_f64()
    );
    (fleet, broken)
}

/// What must be so at the end, and what came of it in words.
async fn check(fleet: &Fleet, plan: &Plan, answers: &[Answer]) -> String {
    let count = async |sql: &'static str| fleet.count(sql).await;
    assert_eq!(
        count("SELECT sum(balance)::bigint FROM tools.accounts").await,
        i64::try_from(ACCOUNTS).unwrap() * BALANCE,
        "the total"
    );
    assert_eq!(
        count("SELECT count(*) FROM (SELECT n FROM tools.journal GROUP BY n HAVING count(*) > 1) twice").await,
        0,
        "transfers that happened twice"
    );
    assert_eq!(
        count(
            "SELECT count(*) FROM (SELECT (args->>'n')::bigint AS n FROM toolfleet.calls WHERE state = 'succeeded') c \
             FULL JOIN tools.journal j USING (n) WHERE c.n IS NULL OR j.n IS NULL"
        )
        .await,
        0,
        "effects without a success, and successes without an effect"
    );
    assert_eq!(
        count(
            "SELECT count(*) FROM toolfleet.calls c JOIN tools.journal j ON j.n = (c.args->>'n')::bigint \
             WHERE (j.from_account, j.to_account, j.amount) \
                IS DISTINCT FROM ((c.args->>'from')::int, (c.args->>'to')::int, (c.args->>'amount')::bigint)"
        )
        .await,
        0,
        "transfers of something else"
    );
    assert_eq!(count("SELECT count(*) FROM toolfleet.in_doubt").await, 0);
    assert_eq!(
        count("SELECT count(*) FROM toolfleet.call_events WHERE to_state = 'in_doubt'").await,
        0,
        "calls that ever were in doubt"
    );
    assert_eq!(
        count("SELECT count(*) FROM toolfleet.calls").await,
        i64::try_from(plan.transfers).unwrap()
    );
    // What callers were told is what the ledger says.
    let mut by_outcome = std::collections::BTreeMap::<String, usize>::new();
    for answer in answers {
        let word = match answer["state"].as_str().unwrap() {
            "succeeded" => "succeeded".to_owned(),
            state => format!("{state} ({})", answer.code()),
        };
        *by_outcome.entry(word).or_default() += 1;
        let effect = if answer["state"] == "succeeded" {
            "applied"
        } else {
            "not_applied"
        };
        assert_eq!(answer["effect"], effect, "{:?}", **answer);
    }
    let succeeded = answers
        .iter()
        .filter(|answer| answer["state"] == "succeeded");
    assert_eq!(
        i64::try_from(succeeded.count()).unwrap(),
        count("SELECT count(*) FROM tools.journal").await
    );
    let words: Vec<String> = by_outcome
        .iter()
        .map(|(word, times)| format!("{times} {word}"))
        .collect();
    words.join(", ")
}

/// Asks until there is an answer that decides it, always with the same key.
async fn insist(fleet: &Fleet, n: u64) -> Answer {
    let (from, to) = (n * 7 % ACCOUNTS, (n * 13 + 5) % ACCOUNTS);
    let to = if from == to { (to + 1) % ACCOUNTS } else { to };
    // Now and then more than any account has.
    let amount = if n.is_multiple_of(50) {
        1_000_000
    } else {
        1 + n % 40
    };
    let args = json!({"n": n, "from": from, "to": to, "amount": amount});
    let key = format!("transfer-{n}");
    loop {
        let call = fleet.submit("transfer", &args).key(&key);
        let answer = call.patience(Duration::from_secs(35)).try_wait().await;
        if let Some(answer) = answer
            && ["succeeded", "failed", "expired", "cancelled"]
                .contains(&answer["state"].as_str().unwrap_or_default())
        {
            return answer;
        }
    }
}

/// Kills one worker after the other, and starts another for each. Returns how many.
async fn kill_workers(fleet: &Fleet, wire: &Proxy, plan: &Plan, stop: &CancellationToken) -> usize {
    let url = fleet.database.tool_url_through(wire.port());
    let mut started = 0;
    let mut start = || {
        started += 1;
        let name = format!("mortal-{started}");
        let flags = ["--tool-database-url", &url, "--concurrency", "16"];
        fleet.real_worker(&name, &flags, None)
    };
    let mut workers: Vec<Real> = (0..plan.workers).map(|_| start()).collect();
    for worker in &mut workers {
        worker.ready().await;
    }
    let mut killed = 0;
    while stop
        .run_until_cancelled(tokio::time::sleep(plan.kill_every))
        .await
        .is_some()
    {
        let mut worker = workers.remove(0);
        worker.end().await;
        killed += 1;
        fleet.report_death(&mut worker).await;
        let mut next = start();
        next.ready().await;
        workers.push(next);
    }
    // They go on until nothing is left to do, and nothing that a dead one held and no other would take.
    until_within(
        Duration::from_secs(120),
        "every call to be over",
        async || {
            let open = fleet
                .count("SELECT count(*) FROM toolfleet.open_calls")
                .await;
            (open == 0 && fleet.pointers().await == Some(0)).then_some(())
        },
    )
    .await;
    for worker in workers {
        worker.kill().await;
    }
    killed
}

/// Ends one backend of the tools after the other. Returns how many. Not that by which a worker looks at their role when it
/// starts: it says then that a server is not reachable, and ends, for its supervisor to start it again.
async fn end_backends(fleet: &Fleet, plan: &Plan, stop: &CancellationToken) -> i64 {
    let mut ticks = interval(plan.end_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = 0;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        ended += fleet
            .count(
                "SELECT count(pg_terminate_backend(pid)) FROM ( \
                     SELECT pid FROM pg_stat_activity \
                     WHERE datname = current_database() AND usename = 'toolfleet_tool' AND state <> 'idle' \
                       AND application_name = 'toolfleet tool' \
                     ORDER BY random() LIMIT 1) one",
            )
            .await;
    }
    ended
}

fn transfer_tool() -> String {
    let retry = json!({"strategy": "jittered", "max_attempts": 20, "base": "10ms", "factor": 1.5, "cap": "500ms"});
    let number = json!({"type": "integer", "minimum": 0});
    json!({
        "name": "transfer",
        "version": 1,
        "description": "Moves money between two accounts.",
        "effect": "transaction",
        "timeout": "10s",
        "retry": retry,
        "input_schema": {
            "type": "object",
            "properties": {"n": number, "from": number, "to": number, "amount": number},
            "required": ["n", "from", "to", "amount"],
            "additionalProperties": false,
        },
        "executor": {"sql": {
            "database": "fleet",
            // Locked in their order, so that two transfers never wait for each other.
            "statement": "WITH locked AS MATERIALIZED ( \
                    SELECT id FROM tools.accounts WHERE id IN ($1, $2) ORDER BY id FOR UPDATE), \
                moved AS ( \
                    UPDATE tools.accounts a SET balance = a.balance + CASE WHEN a.id = $1 THEN -$3::bigint ELSE $3::bigint END \
                    FROM locked WHERE a.id = locked.id RETURNING a.id, a.balance), \
                noted AS ( \
                    INSERT INTO tools.journal (n, from_account, to_account, amount) VALUES ($4, $1, $2, $3)) \
                SELECT id, balance FROM moved ORDER BY id",
            "params": ["{from}", "{to}", "{amount}", "{n}"],
            "rows": {"min": 2, "max": 2},
        }},
    })
    .to_string()
}

async fn lay_out(fleet: &Fleet) {
    let mut owner = fleet.database.connect().await;
    let tables = format!(
        "CREATE TABLE tools.accounts (id int PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0)); \
         CREATE TABLE tools.journal (n bigint NOT NULL, from_account int NOT NULL, to_account int NOT NULL, \
                                     amount bigint NOT NULL); \
         INSERT INTO tools.accounts SELECT n, {BALANCE} FROM generate_series(0, {ACCOUNTS} - 1) n"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(tables))
        .execute(&mut owner)
        .await
        .unwrap();
}

fn port(fleet: &Fleet) -> u16 {
    let (front, _) = fleet.database.url.rsplit_once('/').unwrap();
    front.rsplit_once(':').unwrap().1.parse().unwrap()
}
