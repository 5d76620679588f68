//! The examples of `docs/executors/sql.md` and `transaction.md`, as they stand there.

use std::fs;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::{Map, Value};

/// The blocks of a page with this mark.
fn blocks<'a>(page: &'a str, mark: &str) -> Vec<&'a str> {
    let fence = format!("\n```{mark}\n");
    let after = page.split(&fence).skip(1);
    after
        .map(|rest| rest.split("\n```").next().unwrap())
        .collect()
}

/// The block that holds this.
fn block_with<'a>(page: &'a str, mark: &str, what: &str) -> &'a str {
    let mut blocks = blocks(page, mark).into_iter();
    blocks.find(|block| block.contains(what)).expect(what)
}

async fn run(fleet: &Fleet, sql: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
        .execute(&mut fleet.database.connect().await)
        .await
        .unwrap();
}

/// What `toolfleet call TOOL NAME=NUMBER… --key KEY` asks.
async fn call(fleet: &Fleet, line: &str) -> Value {
    let words: Vec<_> = line.split(' ').collect();
    let ["toolfleet", "call", tool, arguments @ ..] = &words[..] else {
        panic!("{line}")
    };
    let numbers = arguments.iter().filter_map(|word| word.split_once('='));
    let arguments: Map<String, Value> = numbers
        .map(|(name, number)| (name.to_owned(), number.parse::<i64>().unwrap().into()))
        .collect();
    let key = words
        .iter()
        .position(|word| *word == "--key")
        .map(|at| words[at + 1]);
    let asked = fleet.submit(tool, &arguments.into());
    let asked = match key {
        Some(key) => asked.key(key),
        None => asked,
    };
    (*asked.wait().await).clone()
}

#[tokio::test]
async fn the_example_of_sql_tools_finds_its_order() {
    let page = include_str!("../../../docs/executors/sql.md");
    let secrets = tempfile::tempdir().unwrap();
    let flags = ["--secrets", secrets.path().to_str().unwrap()];
    let manifest = blocks(page, "yaml")[0].to_owned();
    let mut fleet = Fleet::start(Spec::with([manifest]).workers(0, &[])).await;
    fs::write(
        secrets.path().join("SHOP_DATABASE"),
        fleet.database.tool_url(),
    )
    .unwrap();
    fleet.add_worker(&flags).await;
    let tables = block_with(page, "sql", "shop.orders");
    run(&fleet, &tables.replace("shop_reader", "toolfleet_tool")).await;
    let answer = call(
        &fleet,
        block_with(page, "text", "toolfleet call find_order"),
    )
    .await;
    assert_eq!(answer["state"], "succeeded", "{answer}");
    let result = format!("\"result\":{}", answer["result"]);
    assert!(page.contains(&result), "{result}");
    invariants::hold(&fleet, &Witness::start().await).await;
}

#[tokio::test]
async fn the_example_of_transactions_moves_the_money_once() {
    let page = include_str!("../../../docs/executors/transaction.md");
    let manifest = blocks(page, "yaml")[0].to_owned();
    let fleet = Fleet::start(Spec::with([manifest])).await;
    run(
        &fleet,
        block_with(page, "sql", "CREATE TABLE tools.accounts"),
    )
    .await;
    let line = block_with(page, "text", "toolfleet call transfer");
    let (first, again) = (call(&fleet, line).await, call(&fleet, line).await);
    assert_eq!(first["state"], "succeeded", "{first}");
    assert_eq!(first["call_id"], again["call_id"]);
    let refused = line
        .replace("amount=30", "amount=300")
        .replace("first", "second");
    assert_eq!(call(&fleet, &refused).await["outcome"], "business_error");
    let missing = line.replace("to=2", "to=3").replace("first", "third");
    assert_eq!(call(&fleet, &missing).await["outcome"], "business_error");
    let balances = "SELECT 1000 * min(balance) + max(balance) FROM tools.accounts";
    assert_eq!(fleet.count(balances).await, 30_070);
    // The page's question about attempts can be asked.
    run(&fleet, block_with(page, "sql", "toolfleet.attempts")).await;
    invariants::hold(&fleet, &Witness::start().await).await;
}
