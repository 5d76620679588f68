//! What a client is shown: the tools that there are for it, by name, page by page.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::{Value, json};

use super::{error, legacy, modern, result};

fn names(page: &Value) -> Vec<String> {
    let tools = page["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn tools_are_listed_by_name_with_their_hints_and_the_key_of_those_that_write() {
    let witness = Witness::start().await;
    let own = witness.tool("has_own", "once").replace(
        "properties: {what: {type: string}}",
        "properties: {what: {type: string}, idempotency_key: {type: string}}",
    );
    let tools = [
        witness.tool("zoo", "read"),
        witness.tool("charge", "once"),
        witness.tool("send", "idempotent"),
        own,
        witness.tool("for_programs", "read") + "visibility: unlisted\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let new = result(&modern(web).request("1", "tools/list", "", "").send().await);
    let expected = ["charge", "has_own", "send", "toolfleet_get", "zoo"];
    assert_eq!(names(&new), expected);
    assert_eq!(
        (&new["ttlMs"], &new["cacheScope"], &new["resultType"]),
        (&json!(5_000), &json!("private"), &json!("complete"))
    );
    assert_eq!(
        new["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "toolfleet"
    );
    assert!(new.get("nextCursor").is_none());
    let old = result(&legacy(web).request("1", "tools/list", "", "").send().await);
    assert_eq!(old["tools"], new["tools"]);
    assert_eq!(old.as_object().unwrap().len(), 1, "{old}");

    let tool = |name: &str| {
        let tools = new["tools"].as_array().unwrap().iter();
        tools
            .clone()
            .find(|tool| tool["name"] == name)
            .unwrap()
            .clone()
    };
    for (name, reads, repeats, destroys, key) in [
        ("zoo", true, true, false, None),
        ("send", false, true, true, Some("idempotency_key")),
        ("charge", false, false, true, Some("idempotency_key")),
        (
            "has_own",
            false,
            false,
            true,
            Some("toolfleet_idempotency_key"),
        ),
    ] {
        let tool = tool(name);
        let hints = &tool["annotations"];
        assert_eq!(
            (
                &hints["readOnlyHint"],
                &hints["idempotentHint"],
                &hints["destructiveHint"]
            ),
            (&json!(reads), &json!(repeats), &json!(destroys)),
            "{name}"
        );
        let properties = tool["inputSchema"]["properties"].as_object().unwrap();
        let own = ["what", "idempotency_key"];
        let added: Vec<&String> = properties
            .keys()
            .filter(|name| !own[..1].contains(&name.as_str()))
            .collect();
        match key {
            None => assert!(added.is_empty(), "{added:?}"),
            Some(key) => assert!(
                properties[key]["description"]
                    .as_str()
                    .unwrap_or_default()
                    .contains("intention"),
                "{name}: {added:?}"
            ),
        }
    }
    // A tool's own argument of that name reaches it.
    let arguments = r#"{"what":"own","idempotency_key":"mine","toolfleet_idempotency_key":"k"}"#;
    result(&modern(web).calling("has_own", arguments, "").send().await);
    let body = witness.look(|seen| String::from_utf8_lossy(&seen.requests[0].body).into_owned());
    assert!(
        body.contains("mine") && !body.contains("toolfleet_idempotency_key"),
        "{body}"
    );

    // Who knows an unlisted tool by its name can call it; a new one is there as soon as the dispatchers have it.
    assert_eq!(
        modern(web).call("for_programs", "a").await["isError"],
        false
    );
    let unknown = modern(web)
        .calling("brand_new", r#"{"what":"a"}"#, "")
        .send()
        .await;
    assert_eq!(error(&unknown), (200, -32_602));
    fleet.apply(&witness.tool("brand_new", "read")).await;
    fleet_tests::wait::until_so("the new tool to be there", async || {
        let answer = modern(web)
            .calling("brand_new", r#"{"what":"a"}"#, "")
            .send()
            .await;
        answer.json()["error"].is_null()
    })
    .await;
    for cursor in ["\"zoo\"", "null"] {
        let params = format!(r#""cursor":{cursor}"#);
        let page = result(
            &modern(web)
                .request("1", "tools/list", &params, "")
                .send()
                .await,
        );
        assert_eq!(names(&page).is_empty(), cursor != "null", "{page}");
    }
    for cursor in ["\"\"", "\"A B\"", "7", "{}"] {
        let params = format!(r#""cursor":{cursor}"#);
        let answer = modern(web)
            .request("1", "tools/list", &params, "")
            .send()
            .await;
        assert_eq!(error(&answer), (200, -32_602), "{cursor}");
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
