//! What a call costs the ledger: the statements that the server itself has seen.

use std::collections::HashMap;

use fleet_tests::{
    fleet::{Fleet, Spec},
    postgres::Cluster,
    witness::Witness,
};
use serde_json::json;
use sqlx::Executor as _;

/// More than any loop of the fleet sends while so many calls are made one after another.
const CALLS: usize = 300;

/// The statements in a log, each as its text, and how often they were executed.
fn executed(log: &str) -> HashMap<String, usize> {
    let mut found = HashMap::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let said = line.split_once("LOG:  ").map(|(_, said)| said);
        let Some(first) = said.and_then(|said| said.strip_prefix("execute ")?.split_once(": "))
        else {
            continue;
        };
        let mut text = first.1.to_owned();
        // The further lines of a statement begin with a tab.
        while let Some(more) = lines.next_if(|line| line.starts_with('\t')) {
            text.push(' ');
            text.push_str(more.trim());
        }
        *found.entry(text).or_default() += 1;
    }
    found
}

/// A call without brakes has three: it is accepted, claimed and completed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_has_no_brake_costs_three_statements() {
    let cluster = Cluster::alone(true).await;
    let database = cluster.database().await;
    let mut connection = database.connect().await;
    for sql in [
        "ALTER SYSTEM SET log_statement = 'all'",
        "SELECT pg_reload_conf()",
    ] {
        connection.execute(sql).await.unwrap();
    }
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read"),
        witness.tool("braked", "read")
            + "rate_limit: {calls: 100000, per: 1s, burst: 1000}\nbreaker: {}\nretry: {budget: 0.2}\n",
        witness.tool("kept", "read") + "cache: {ttl: 5m}\n",
        // What its tool answers needs nothing to stand in.
        witness.tool("stood_by", "read") + "fallback: {stub: {known: false}}\n",
        witness.tool("ruled", "read")
            + "policy: {at_most: {calls: 1000, per: run}, never_after: [braked]}\n",
    ];
    let fleet = Fleet::start_on(database, Spec::with(tools)).await;
    for tool in ["look", "stood_by"] {
        let first = fleet.submit(tool, &json!({"what": "x"})).wait().await;
        assert_eq!(first["state"], "succeeded");
        each_call_costs(3, tool, &fleet, &cluster).await;
    }
    // The witness counts what it is asked; all of that were attempts.
    assert_eq!(witness.asked("x"), 2 * (CALLS + 1));
    // What its policy says costs one more, at the gate; the claim asks in its own.
    each_call_costs(4, "ruled", &fleet, &cluster).await;
}

/// Makes so many calls of a tool, and sees so many statements executed once for each.
async fn each_call_costs(statements: usize, tool: &str, fleet: &Fleet, cluster: &Cluster) {
    let before = executed(&std::fs::read_to_string(cluster.log()).unwrap());
    for _ in 0..CALLS {
        let call = fleet.submit(tool, &json!({"what": "x"}));
        let answer = call.header("Toolfleet-Run", "r").wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
    }
    let after = executed(&std::fs::read_to_string(cluster.log()).unwrap());
    let mut often: Vec<(usize, &str)> = after
        .iter()
        .map(|(text, times)| {
            (
                times - before.get(text).copied().unwrap_or(0),
                text.as_str(),
            )
        })
        .filter(|(times, _)| *times >= CALLS)
        .collect();
    often.sort_unstable();
    let times: Vec<usize> = often.iter().map(|(times, _)| *times).collect();
    assert_eq!(times, vec![CALLS; statements], "{often:#?}");
}
