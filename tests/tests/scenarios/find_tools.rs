//! The fleet's own tool that finds others: what it names, and for whom.

use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::{Value, json};

const MODEL: &str = "
name: ask_model
version: 1
description: Answers a conversation about invoices.
effect: read
visibility: unlisted
tool_selection: {from: fleet}
executor: {chat: {protocol: anthropic, routes: [{name: main, url: \"http://127.0.0.1:1/\", model: m}]}}
";

fn names(answer: &Answer) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("{}", **answer));
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

async fn find(fleet: &Fleet, query: &str, tenant: &str) -> Answer {
    let asked = json!({ "query": query });
    let call = fleet.submit("find_tools", &asked).tenant(tenant);
    call.wait().await
}

/// A fleet with a model of its tools, and tools that deal with invoices.
async fn fleet_with_invoices() -> (Witness, Fleet) {
    let witness = Witness::start().await;
    let tool = |name: &str, description: &str, more: &str| {
        let tool = witness.tool(name, "read");
        let own = format!("description: {description}\n");
        tool.replace("description: Leaves a trace at the witness.\n", &own) + more
    };
    let mut tools = vec![
        MODEL.to_owned(),
        tool(
            "create_invoice",
            "Creates an invoice for a customer. 为客户开发票。",
            "",
        ),
        tool("list_invoices", "Lists invoices.", "visibility: hidden\n"),
        tool(
            "erase_invoices",
            "Erases all invoices.",
            "visibility: unlisted\n",
        ),
        tool("scan_invoice", "Reads an invoice.", ""),
        tool("get_weather", "Tells the weather.", ""),
    ];
    // What looks at the servers of a queue is for operators, whatever its manifest says of models.
    let discoverer = worker::discoverer_of(&"default".parse().unwrap());
    let mut discoverer = serde_json::to_value(&discoverer).unwrap();
    discoverer["description"] = json!("Discovers which invoices an MCP server has.");
    discoverer["visibility"] = json!("shown");
    tools.push(discoverer.to_string());
    let fleet = Fleet::start(Spec::with(tools)).await;
    (witness, fleet)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_are_found_by_what_they_do_and_only_those_that_the_tenant_may_see() {
    let (witness, fleet) = fleet_with_invoices().await;
    let found = find(&fleet, "create an invoice", "default").await;
    assert_eq!(
        names(&found),
        ["create_invoice", "list_invoices", "scan_invoice"]
    );
    let first = &found["result"]["tools"][0];
    assert_eq!(
        *first,
        json!({"name": "create_invoice", "description": "Creates an invoice for a customer. 为客户开发票。"})
    );
    let found = find(&fleet, "给客户开一张发票", "default").await;
    assert_eq!(names(&found), ["create_invoice"]);
    let none = find(&fleet, "paint the fence", "default").await;
    assert_eq!(none["result"], json!({"tools": []}));
    // It does not name itself, nor the model, which is unlisted.
    for query in ["find tools", "answers a conversation"] {
        let found = find(&fleet, query, "default").await;
        let found = names(&found);
        assert!(
            !found.contains(&"find_tools") && !found.contains(&"ask_model"),
            "{found:?}"
        );
    }
    // Operators see one more, and it is the dispatchers' decision for whom that is.
    for (tenant, sees) in [("default", false), ("other", false), ("_operator", true)] {
        let found = find(&fleet, "discovers invoices of a server", tenant).await;
        assert_eq!(names(&found).contains(&"mcp_discover"), sees, "{tenant}");
        let subject = format!("toolfleet.v1.{tenant}.tools");
        let listed = fleet.ask(subject.leak(), &json!({"format": "mcp"})).await;
        let listed = listed["tools"].as_array().unwrap();
        let is_listed = |name: &str| listed.iter().any(|tool| tool["name"] == name);
        assert_eq!(is_listed("mcp_discover"), sees, "{tenant}");
        assert!(is_listed("find_tools") && !is_listed("erase_invoices"));
    }
    for wrong in [
        json!({}),
        json!({"query": ""}),
        json!({"query": "a".repeat(1_025)}),
    ] {
        let refused: Value = fleet.submit("find_tools", &wrong).wait().await["error"].clone();
        assert_eq!(refused["code"], "invalid_arguments", "{wrong}");
    }
    fleet.retire("scan_invoice").await;
    until_so("the worker to know that a tool is retired", async || {
        let found = find(&fleet, "create an invoice", "default").await;
        names(&found) == ["create_invoice", "list_invoices"]
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}
