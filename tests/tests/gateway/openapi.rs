//! The document that describes the API, as it is served.

use fleet::tokens::Scope;
use fleet_tests::{
    fleet::{Fleet, Spec},
    witness::Witness,
};
use serde_json::Value;

use crate::tokens::{is, known, token, told, with};

#[tokio::test]
async fn the_document_is_told_to_everybody_and_the_tools_to_who_may_call_them() {
    let witness = Witness::start().await;
    let unlisted = witness.tool("inner", "read") + "visibility: unlisted\n";
    let tools = [
        witness.tool("look", "read"),
        witness.tool("charge", "once"),
        unlisted,
    ];
    let fleet = Fleet::start(Spec::with(tools).shipped().roles()).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let full = token(&fleet, "full", "default", &[Scope::Call], "*").await;
    let looker = token(&fleet, "looker", "default", &[Scope::Read], "lo*").await;
    for held in [&full, &looker] {
        known(web, held).await;
    }
    let plain = web.get("/v1/openapi.json").send().await;
    assert_eq!(plain.status, 200, "{}", plain.text());
    assert_eq!(&plain.json(), gateway::document());
    assert_eq!(plain.json()["openapi"], "3.1.0");
    for path in ["/v1/openapi.json?tools=0", "/v1/openapi.json?tools=false"] {
        assert_eq!(web.get(path).send().await.body, plain.body);
    }
    // Who says who it is says it truly, here too.
    let wrong = web
        .get("/v1/openapi.json")
        .header("Authorization", "Bearer tf_x");
    assert_eq!(told(&wrong.send().await), is(401, "unauthenticated"));
    let nobody = web.get("/v1/openapi.json?tools=1").send().await;
    assert_eq!(told(&nobody), is(401, "unauthenticated"));
    let odd = web.get("/v1/openapi.json?tools=all").send().await;
    assert_eq!(told(&odd), is(400, "invalid_arguments"));

    let paths = |document: &Value| -> Vec<String> {
        let paths = document["paths"].as_object().unwrap().keys();
        let own = paths.filter(|path| path.starts_with("/v1/call/") && !path.contains('{'));
        own.cloned().collect()
    };
    let all = with(web.get("/v1/openapi.json?tools=1"), &full)
        .send()
        .await;
    let all = all.json();
    assert_eq!(paths(&all), ["/v1/call/charge", "/v1/call/look"]);
    let schema = &all["paths"]["/v1/call/look"]["post"]["requestBody"]["content"]["application/json"]
        ["schema"];
    let own = schema["$ref"].as_str().unwrap().strip_prefix('#').unwrap();
    let listed = with(web.get("/v1/tools/look"), &full).send().await.json();
    assert_eq!(all.pointer(own), Some(&listed["input_schema"]));
    let part = with(web.get("/v1/openapi.json?tools=1"), &looker)
        .send()
        .await;
    assert_eq!(paths(&part.json()), ["/v1/call/look"]);
    gateway.drain().await;
}
