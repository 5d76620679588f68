//! What a message has to be: its headers, its version, its form; and what is none is told so by number.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::json;

use super::{IN_META, LEGACY, MODERN, error, legacy, modern, result};

#[tokio::test]
async fn both_revisions_are_served_without_a_session() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let found = result(
        &modern(web)
            .request("\"d\"", "server/discover", "", "")
            .send()
            .await,
    );
    assert_eq!(
        found["supportedVersions"],
        json!([MODERN, LEGACY, "2025-06-18"])
    );
    assert_eq!(
        (&found["resultType"], &found["cacheScope"]),
        (&json!("complete"), &json!("public"))
    );
    assert!(found["ttlMs"].is_u64() && found["capabilities"]["tools"].is_object());
    assert_eq!(
        found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "toolfleet"
    );

    let initialize = r#""protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}"#;
    let begun = legacy(web)
        .request("0", "initialize", initialize, "")
        .send()
        .await;
    // Who can be asked is asked in a session.
    assert!(begun.header("Mcp-Session-Id").starts_with("mcp-"));
    let begun = result(&begun);
    assert_eq!(begun["protocolVersion"], LEGACY);
    assert_eq!(begun["serverInfo"]["name"], "toolfleet");
    assert!(
        begun["instructions"]
            .as_str()
            .unwrap()
            .contains("toolfleet_get")
    );
    let notification = web
        .post(
            "/mcp",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        )
        .header("MCP-Protocol-Version", LEGACY);
    let taken = notification.send().await;
    assert_eq!((taken.status, taken.body.len()), (202, 0));
    let pong = legacy(web).request("\"p\"", "ping", "", "").send().await;
    assert_eq!(pong.text(), r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
    // In Chinese for who asks for it.
    let chinese = modern(web).request("1", "server/discover", "", "");
    let chinese = result(&chinese.header("Toolfleet-Language", "zh").send().await);
    assert!(
        chinese["instructions"]
            .as_str()
            .unwrap()
            .contains("仍在进行")
    );
    // There is nothing to listen to.
    let get = web
        .get("/mcp")
        .header("Accept", "text/event-stream")
        .send()
        .await;
    assert_eq!(get.status, 405, "{}", get.text());
    assert!(get.header("Allow").contains("POST"));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_is_no_message_is_told_so_by_number() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let body = |id: &str, method: &str, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{more}"_meta":{{{IN_META}}}}}}}"#
        )
    };
    let list = body("1", "tools/list", "");
    let call = body(
        "1",
        "tools/call",
        r#""name":"look","arguments":{"what":"bad"},"#,
    );
    let no_meta = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned();
    let twice = body(
        "1",
        "tools/call",
        r#""name":"look","name":"look","arguments":{"what":"bad"},"#,
    );
    let version = ("MCP-Protocol-Version", MODERN);
    let method = ("Mcp-Method", "tools/list");
    let calling = ("Mcp-Method", "tools/call");
    let name = ("Mcp-Name", "look");
    let kind = |kind| ("Content-Type", kind);
    let accept = |kinds| ("Accept", kinds);
    for (lines, body, status, number) in [
        (vec![version, method], list.clone(), 200, 0),
        (vec![method], list.clone(), 400, -32_020),
        (vec![version], list.clone(), 400, -32_020),
        (vec![version, version, method], list.clone(), 400, -32_020),
        (vec![version, method, method], list.clone(), 400, -32_020),
        (vec![version, calling], list.clone(), 400, -32_020),
        (
            vec![("MCP-Protocol-Version", LEGACY), method],
            list.clone(),
            400,
            -32_020,
        ),
        (vec![version, calling], call.clone(), 400, -32_020),
        (
            vec![version, calling, ("Mcp-Name", "charge")],
            call.clone(),
            400,
            -32_020,
        ),
        (
            vec![version, calling, name, name],
            call.clone(),
            400,
            -32_020,
        ),
        (vec![version, calling, name], twice, 400, -32_602),
        (
            vec![("MCP-Protocol-Version", "2024-11-05"), method],
            no_meta.clone(),
            400,
            -32_022,
        ),
        (
            vec![("MCP-Protocol-Version", "x"), method],
            list.replace(MODERN, "x"),
            400,
            -32_022,
        ),
        (vec![version, method], no_meta.clone(), 400, -32_602),
        (vec![], no_meta.clone(), 400, -32_020),
        (vec![version, method], format!("[{list}]"), 400, -32_600),
        (vec![version, method], "[]".to_owned(), 400, -32_600),
        (
            vec![version, method],
            body("null", "tools/list", ""),
            400,
            -32_600,
        ),
        (
            vec![version, method],
            body("1.0", "tools/list", ""),
            400,
            -32_600,
        ),
        (
            vec![version, method],
            body("{}", "tools/list", ""),
            400,
            -32_600,
        ),
        (
            vec![version, method],
            list.replace("2.0", "1.0"),
            400,
            -32_600,
        ),
        (vec![version, method], list[..40].to_owned(), 400, -32_700),
        (vec![version, method], String::new(), 400, -32_700),
        (
            vec![version, ("Mcp-Method", "roots/list")],
            body("1", "roots/list", ""),
            404,
            -32_601,
        ),
        (
            vec![version, ("Mcp-Method", "initialize")],
            body("1", "initialize", ""),
            404,
            -32_601,
        ),
        (
            vec![("MCP-Protocol-Version", LEGACY)],
            no_meta.replace("tools/list", "roots/list"),
            200,
            -32_601,
        ),
        (
            vec![("MCP-Protocol-Version", LEGACY)],
            no_meta.replace("tools/list", "server/discover"),
            200,
            -32_601,
        ),
        (
            vec![version, method, kind("text/plain")],
            list.clone(),
            415,
            -32_600,
        ),
        (
            vec![version, method, accept("application/json")],
            list.clone(),
            406,
            -32_600,
        ),
        (
            vec![version, method, accept("text/html")],
            list.clone(),
            406,
            -32_600,
        ),
        (
            vec![
                version,
                method,
                accept("*/*"),
                kind("application/json; charset=utf-8"),
            ],
            list.clone(),
            200,
            0,
        ),
        (
            vec![version, method, ("Idempotency-Key", "k")],
            list.clone(),
            400,
            -32_600,
        ),
    ] {
        let mut request = web.post("/mcp", body.clone());
        for (name, value) in &lines {
            request = request.header(name, value);
        }
        let answer = request.send().await;
        let got = match answer.json()["error"].is_null() {
            true => (answer.status, 0),
            false => error(&answer),
        };
        assert_eq!(got, (status, number), "{lines:?} {body}: {}", answer.text());
    }
    let unsupported = web
        .post("/mcp", no_meta)
        .header("MCP-Protocol-Version", "2024-11-05");
    let unsupported = unsupported.send().await.json();
    assert_eq!(unsupported["error"]["data"]["supported"][0], MODERN);
    assert_eq!(unsupported["error"]["data"]["requested"], "2024-11-05");

    // Too large: as at every endpoint, and before it is read.
    let large = web
        .request("POST /mcp HTTP/1.1")
        .header("Content-Length", "5242880");
    let answer = large.send().await;
    assert_eq!(
        (answer.status, answer.code()),
        (413, "payload_too_large".to_owned())
    );
    // Arguments as large as over NATS are taken, and larger ones refused by the door.
    for (size, code) in [
        (100_000, ""),
        (200_000, "string_too_long"),
        (300_000, "payload_too_large"),
    ] {
        let arguments = json!({"what": "z".repeat(size)}).to_string();
        let told = result(&modern(web).calling("look", &arguments, "").send().await);
        let got = super::said(&told)["error"]["code"]
            .as_str()
            .unwrap_or_default();
        assert_eq!(got, code, "{size}");
    }
    assert_eq!(witness.asked("bad"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
