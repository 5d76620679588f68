//! Resources, prompts and completion: of the fleet, and of a folder.

use std::fs;

use fleet::{ids::CallId, tokens::Scope};
use fleet_tests::{
    fleet::{Fleet, Spec},
    web::{Web, WebAnswer, WebRequest},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use super::{Client, MODERN, error, legacy, modern, result};
use crate::tokens::{known, token, with};

const DOCUMENT: &str = "
resources:
  - {uri: 'test://text', name: text, text: hello}
  - {uri: 'test://image', name: image, file: a.png}
  - {uri_template: 'test://data/{id}', name: data, mime_type: application/json, text: '{\"id\":\"{id}\"}', values: {id: [Paris, park, rome]}}
prompts:
  - {name: plain, description: Plain., messages: [{role: user, text: Hi.}]}
  - name: greet
    arguments: [{name: who, required: true, values: [ann, bob]}, {name: how}]
    messages: [{role: user, text: 'Greet {who} {how}'}, {role: assistant, file: a.png}]
  - {name: much, arguments: [{name: a}], messages: [{role: user, text: 'MUCH'}]}
  - name: asks
    ask: {more: {message: 'What?', fields: {context: {type: string}}}}
    messages: [{role: user, text: 'About {context}'}]
";

fn asked(client: Client, method: &str, params: &str, name: Option<&str>) -> WebRequest {
    let request = client.request("1", method, params, "");
    match name.filter(|_| client.revision == MODERN) {
        Some(name) => request.header("Mcp-Name", name),
        None => request,
    }
}

async fn read(client: Client, uri: &str) -> WebAnswer {
    let params = format!(r#""uri":"{uri}""#);
    asked(client, "resources/read", &params, Some(uri))
        .send()
        .await
}

async fn got(client: Client, name: &str, more: &str) -> WebAnswer {
    let params = format!(r#""name":"{name}"{more}"#);
    asked(client, "prompts/get", &params, Some(name))
        .send()
        .await
}

/// So many arguments.
fn many(count: usize) -> String {
    let arguments: Vec<String> = (0..count).map(|n| format!(r#""n{n}":"x""#)).collect();
    arguments.join(",")
}

fn names(list: &Value, of: &str) -> Vec<String> {
    let all = list.as_array().unwrap().iter();
    all.map(|one| one[of].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_folder_has_resources_and_prompts_in_both_revisions() {
    let folder = tempfile::tempdir().unwrap();
    // One value in many places.
    let document = DOCUMENT.replace("MUCH", &"{a}".repeat(100));
    fs::write(folder.path().join("content.yaml"), document).unwrap();
    fs::write(folder.path().join("a.png"), b"\x89PNG").unwrap();
    let fleet = Fleet::start(Spec::with([])).await;
    let path = folder.path().to_str().unwrap();
    let (mut gateway, web) = fleet.gateway(&["--mcp-content", path]).await;
    for client in [modern(web), legacy(web)] {
        let is_modern = client.revision == MODERN;
        let list = async |method: &str| result(&asked(client, method, "", None).send().await);
        let resources = list("resources/list").await;
        assert_eq!(
            names(&resources["resources"], "uri"),
            ["test://image", "test://text"]
        );
        let templates = list("resources/templates/list").await;
        assert_eq!(
            names(&templates["resourceTemplates"], "uriTemplate"),
            [
                "toolfleet://call/{id}",
                "toolfleet://file/{id}",
                "test://data/{id}"
            ]
        );
        let prompts = list("prompts/list").await;
        assert_eq!(
            names(&prompts["prompts"], "name"),
            ["toolfleet_instructions", "asks", "greet", "much", "plain"]
        );
        for page in [&resources, &templates, &prompts] {
            assert_eq!(page.get("ttlMs").is_some(), is_modern, "{page}");
            assert_eq!(page.get("resultType").is_some(), is_modern, "{page}");
        }
        let text = result(&read(client, "test://text").await);
        assert_eq!(
            text["contents"],
            json!([{"uri": "test://text", "mimeType": "text/plain", "text": "hello"}])
        );
        assert_eq!(text.get("cacheScope").is_some(), is_modern);
        let image = result(&read(client, "test://image").await);
        assert_eq!(image["contents"][0]["blob"], "iVBORw==");
        let data = result(&read(client, "test://data/%22x").await);
        assert_eq!(data["contents"][0]["text"], r#"{"id":"\"x"}"#);
        for uri in ["test://none", "test://data/", "other", ""] {
            let none = read(client, uri).await;
            let number = if is_modern { -32_602 } else { -32_002 };
            assert_eq!(error(&none), (200, number), "{uri}");
            assert_eq!(none.json()["error"]["data"]["uri"], uri);
        }
        let instructions = result(&got(client, "toolfleet_instructions", "").await);
        let text = &instructions["messages"][0]["content"]["text"];
        assert!(
            text.as_str().unwrap().contains("toolfleet_get"),
            "{instructions}"
        );
        let greet = got(client, "greet", r#","arguments":{"who":"Ann"}"#).await;
        let messages = result(&greet)["messages"].clone();
        assert_eq!(messages[0]["content"]["text"], "Greet Ann ");
        assert_eq!(messages[1]["content"]["type"], "image");
        for (name, more) in [
            ("greet", ""),
            ("greet", r#","arguments":{"who":1}"#),
            ("none", ""),
            (
                "greet",
                &format!(r#","arguments":{{"who":"{}"}}"#, "x".repeat(70_000)),
            ),
            (
                "greet",
                &format!(r#","arguments":{{"who":"x",{}}}"#, many(64)),
            ),
            (
                "much",
                &format!(r#","arguments":{{"a":"{}"}}"#, "x".repeat(60_000)),
            ),
        ] {
            let refused = got(client, name, more).await;
            assert_eq!(error(&refused), (200, -32_602), "{name}");
            let code = &refused.json()["error"]["data"]["code"];
            assert!(code.is_string(), "{name} {code}");
        }
        let much = result(&got(client, "much", r#","arguments":{"a":"x"}"#).await);
        let much = &much["messages"][0]["content"]["text"];
        assert_eq!(much.as_str().unwrap().len(), 100);
        // What a prompt asks may be given.
        let given = got(client, "asks", r#","arguments":{"context":"cats"}"#).await;
        assert_eq!(
            result(&given)["messages"][0]["content"]["text"],
            "About cats"
        );
        let completed = async |reference: &str, name: &str, value: &str| {
            let params =
                format!(r#""ref":{reference},"argument":{{"name":"{name}","value":"{value}"}}"#);
            asked(client, "completion/complete", &params, None)
                .send()
                .await
        };
        let data = r#"{"type":"ref/resource","uri":"test://data/{id}"}"#;
        let values = result(&completed(data, "id", "pa").await)["completion"].clone();
        assert_eq!(
            values,
            json!({"values": ["Paris", "park"], "total": 2, "hasMore": false})
        );
        let greet = r#"{"type":"ref/prompt","name":"greet"}"#;
        let values = result(&completed(greet, "who", "").await)["completion"]["values"].clone();
        assert_eq!(values, json!(["ann", "bob"]));
        let values = result(&completed(greet, "other", "").await)["completion"]["total"].clone();
        assert_eq!(values, 0);
        let none = completed(r#"{"type":"ref/prompt","name":"none"}"#, "who", "").await;
        assert_eq!(error(&none), (200, -32_602));
    }
    asks(web).await;
    let subscribed = asked(
        legacy(web),
        "resources/subscribe",
        r#""uri":"test://text""#,
        None,
    );
    assert_eq!(result(&subscribed.send().await), json!({}));
    gateway.drain().await;
}

/// A prompt that asks its user.
async fn asks(web: Web) {
    let says = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
    let get = |more: &str| {
        let params = format!(r#""name":"asks"{more}"#);
        let request = modern(web).saying("1", "prompts/get", &params, says, "");
        request.header("Mcp-Name", "asks")
    };
    let asked = result(&get("").send().await);
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(asked["inputRequests"]["more"]["params"]["message"], "What?");
    let answer =
        r#","inputResponses":{"more":{"action":"accept","content":{"context":"dogs"}},"other":1}"#;
    let got = result(&get(answer).send().await);
    assert_eq!(got["messages"][0]["content"]["text"], "About dogs");
    for wrong in [
        r#","inputResponses":{"more":1}"#,
        r#","inputResponses":null"#,
        r#","inputResponses":{"more":{"action":"decline"}}"#,
    ] {
        assert_eq!(error(&get(wrong).send().await), (200, -32_602), "{wrong}");
    }
    // Who shows no forms is told what it lacks.
    let plain = super::content::got(modern(web), "asks", "").await;
    assert_eq!(error(&plain), (400, -32_021));
    assert!(plain.json()["error"]["data"]["requiredCapabilities"]["elicitation"].is_object());
    let old = super::content::got(legacy(web), "asks", "").await;
    assert_eq!(error(&old), (200, -32_602));
}

#[tokio::test]
async fn calls_and_files_are_resources_for_who_may_see_them() {
    let witness = Witness::start().await;
    let guarded = witness.tool("charge", "once") + "approval: {by: caller}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read"), guarded])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let own = token(&fleet, "own", "default", &[Scope::Call], "charge").await;
    let all = token(&fleet, "all", "default", &[Scope::Call], "*").await;
    let foreign = token(&fleet, "foreign", "other", &[Scope::Call], "*").await;
    for held in [&own, &all, &foreign] {
        known(web, held).await;
    }
    witness.always("a", Reply::Done);
    let called = |tool: &str| web.post(&format!("/v1/call/{tool}"), r#"{"what":"a"}"#);
    let done = with(called("look"), &all).send().await;
    let done: CallId = done.header("Toolfleet-Call-Id").parse().unwrap();
    let waits = with(called("charge").header("Idempotency-Key", "k"), &all)
        .send()
        .await;
    assert!(waits.text().contains("\"token\""), "{}", waits.text());
    let waits: CallId = waits.header("Toolfleet-Call-Id").parse().unwrap();
    let file = with(web.post("/v1/files", "seven"), &all)
        .header("Content-Type", "text/plain")
        .header("Toolfleet-File-Name", "a.txt");
    let file = file.send().await.json()["file_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let read = async |held, uri: &str| {
        let params = format!(r#""uri":"{uri}""#);
        let request = asked(modern(web), "resources/read", &params, Some(uri));
        with(request, held).send().await
    };
    let contents = result(&read(&all, &format!("toolfleet://call/{done}")).await);
    let envelope: Value =
        serde_json::from_str(contents["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(envelope["result"], json!({"done": "a"}));
    assert_eq!(contents["cacheScope"], "private");
    let contents = result(&read(&own, &format!("toolfleet://call/{waits}")).await);
    let text = contents["contents"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("args_hash") && !text.contains("token"),
        "{text}"
    );
    let contents = result(&read(&all, &format!("toolfleet://file/{file}")).await);
    assert_eq!(contents["contents"][0]["text"], "seven");
    for (held, uri) in [
        (&own, format!("toolfleet://call/{done}")),
        (&foreign, format!("toolfleet://call/{done}")),
        (&foreign, format!("toolfleet://file/{file}")),
        (&all, format!("toolfleet://call/{}", CallId::generate())),
        (&all, "toolfleet://call/x".to_owned()),
        (&all, "toolfleet://file/x".to_owned()),
    ] {
        assert_eq!(error(&read(held, &uri).await), (200, -32_602), "{uri}");
    }
    gateway.drain().await;
}
