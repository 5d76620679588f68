//! What changes what may run, over HTTP: looked at page by page, as far as it concerns who looks, and changed in the name of a token.

use fleet::tokens::Scope;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    web::{Web, WebRequest},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use crate::tokens::{Held, is, known, token, told, with};

/// The values of this field in the rows of a page.
fn column(page: &Value, list: &str, field: &str) -> Vec<Value> {
    let rows = page[list].as_array().unwrap_or_else(|| panic!("{page}"));
    rows.iter().map(|row| row[field].clone()).collect()
}

async fn page(request: WebRequest) -> Value {
    let answer = request.send().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("Toolfleet-Answer"), "gateway");
    answer.json()
}

async fn change(web: Web, held: &Held, tenant: Option<&str>, wish: &Value) -> Value {
    let mut request = with(web.post("/v1/control", wish.to_string()), held);
    if let Some(tenant) = tenant {
        request = request.header("Toolfleet-Tenant", tenant);
    }
    let answer = request.send().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("Toolfleet-Answer"), "door");
    answer.json()
}

#[tokio::test]
async fn a_tenants_token_changes_what_is_its_own_and_one_of_all_tenants_everything() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools).shipped().roles()).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let acme = token(&fleet, "ann", "acme", &[Scope::Admin, Scope::Read], "*").await;
    let any = token(&fleet, "root", "*", &[Scope::Admin, Scope::Read], "*").await;
    for held in [&acme, &any] {
        known(web, held).await;
    }
    let pause = json!({"do": "pause", "tool": "look", "tenant": "acme", "note": "n"});
    let own = change(web, &acme, None, &pause).await;
    assert_eq!(own["result"], "set", "{own}");
    // The name of the token, and behind it where the dispatcher heard it from.
    assert_eq!(own["control"]["actor"], "ann (_INBOX_gateway)");
    let again = change(web, &acme, None, &pause).await;
    assert_eq!(again["result"], "already_set");
    let everybodys = json!({"do": "pause", "tool": "charge", "note": "the bank migrates"});
    let all = change(web, &any, None, &everybodys).await;
    assert_eq!(all["control"]["tenant"], json!(null), "{all}");
    // A token of all tenants that names one is that tenant's operator.
    let named = json!({"do": "pause", "tool": "charge", "tenant": "acme", "note": "n"});
    let named = change(web, &any, Some("acme"), &named).await;

    for (held, tenant, body, status, code) in [
        // Somebody else's name.
        (
            &acme,
            None,
            json!({"do": "pause", "tool": "look", "tenant": "acme", "note": "n", "actor": "root"}),
            400,
            "invalid_arguments",
        ),
        // What is not its own.
        (&acme, None, everybodys.clone(), 400, "invalid_arguments"),
        (
            &acme,
            None,
            json!({"do": "pause", "tool": "look", "tenant": "beta", "note": "n"}),
            400,
            "invalid_arguments",
        ),
        (&acme, Some("beta"), pause.clone(), 403, "forbidden"),
        (
            &acme,
            None,
            json!({"do": "breaker", "tool": "look", "position": "open", "note": "n"}),
            400,
            "invalid_arguments",
        ),
        (&acme, None, json!({"do": "stop"}), 400, "invalid_arguments"),
        (
            &any,
            None,
            json!({"do": "pause", "tool": "charge", "setting": "refuse", "note": "other"}),
            409,
            "conflict",
        ),
        (
            &any,
            None,
            json!({"do": "list", "actor": "root"}),
            400,
            "invalid_arguments",
        ),
    ] {
        let mut request = with(web.post("/v1/control", body.to_string()), held);
        if let Some(tenant) = tenant {
            request = request.header("Toolfleet-Tenant", tenant);
        }
        let refused = request.send().await;
        assert_eq!(
            told(&refused),
            is(status, code),
            "{body}: {}",
            refused.text()
        );
    }
    for (body, code) in [
        ("", "invalid_arguments"),
        ("{", "truncated_arguments"),
        ("[]", "invalid_arguments"),
    ] {
        let refused = with(web.post("/v1/control", body), &any).send().await;
        assert_eq!(told(&refused), is(400, code), "{body}");
    }

    // The list over NATS, and the pages of the view.
    let ids = |of: &[&Value]| -> Vec<Value> {
        of.iter()
            .map(|set| set["control"]["control_id"].clone())
            .collect()
    };
    let listed = change(web, &acme, None, &json!({"do": "list"})).await;
    assert_eq!(
        column(&listed, "controls", "control_id"),
        ids(&[&named, &own])
    );
    let get = |path: &str, held: &Held| with(web.get(path), held);
    let its = page(get("/v1/control", &acme)).await;
    assert_eq!(column(&its, "controls", "control_id"), ids(&[&named, &own]));
    assert_eq!(column(&its, "controls", "note"), [Value::Null, Value::Null]);
    let first = page(get("/v1/control?limit=2", &any)).await;
    assert_eq!(
        column(&first, "controls", "control_id"),
        ids(&[&named, &all])
    );
    assert_eq!(first["controls"][1]["note"], "the bank migrates");
    let next = format!("/v1/control?limit=2&before={}", first["before"]);
    let second = page(get(&next, &any)).await;
    assert_eq!(column(&second, "controls", "control_id"), ids(&[&own]));
    assert_eq!(second["before"], Value::Null);
    let of_tool = page(get("/v1/control?tool=look", &any)).await;
    assert_eq!(column(&of_tool, "controls", "control_id"), ids(&[&own]));
    let foreign = page(get("/v1/control", &any).header("Toolfleet-Tenant", "beta")).await;
    assert_eq!(column(&foreign, "controls", "control_id"), [Value::Null; 0]);

    let call = with(web.post("/v1/call/look", r#"{"what":"a"}"#), &acme)
        .send()
        .await;
    assert_eq!(
        told(&call),
        is(403, "forbidden"),
        "admin is no right to call"
    );
    for set in [&own, &all, &named] {
        let id = set["control"]["control_id"].clone();
        let resume = json!({"do": "resume", "control_id": id, "note": "over"});
        let over = change(web, &any, None, &resume).await;
        assert_eq!(over["result"], "unset", "{over}");
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn brakes_are_looked_at_as_far_as_they_concern_who_looks() {
    let witness = Witness::start().await;
    let breaker =
        "retry: {strategy: none}\nbreaker: {calls: 2, failures: 50%, window: 1m, open: 1m}\n";
    let tools = [
        witness.tool("look", "read") + breaker + "cache: {ttl: 1s}\n",
        witness.tool("find", "read") + "rate_limit: {calls: 100, per: 1s, by: tenant}\n",
        witness.tool("seek", "read") + "rate_limit: {calls: 100, per: 1s}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools).shipped().roles()).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let acme = token(&fleet, "ann", "acme", Scope::ALL, "*").await;
    let beta = token(&fleet, "bob", "beta", Scope::ALL, "*").await;
    let seeker = token(&fleet, "carl", "acme", Scope::ALL, "see*").await;
    let any = token(&fleet, "root", "*", Scope::ALL, "*").await;
    for held in [&acme, &beta, &seeker, &any] {
        known(web, held).await;
    }
    let get = |path: &str, held: &Held| with(web.get(path), held);
    witness.always("broken", Reply::Status(500));
    until_so("the breaker to be open", async || {
        let body = json!({"what": "broken"}).to_string();
        let call = with(web.post("/v1/call/look", body), &acme).header("Prefer", "wait=1");
        call.send().await;
        let rows = page(get("/v1/breakers?tool=look", &any)).await;
        column(&rows, "breakers", "state") == ["open"]
    })
    .await;
    for (held, tool) in [(&acme, "find"), (&beta, "find"), (&acme, "seek")] {
        let body = json!({"what": format!("{tool}-{}", held.id)}).to_string();
        let call = with(web.post(&format!("/v1/call/{tool}"), body), held)
            .send()
            .await;
        assert_eq!(
            call.header("Toolfleet-State"),
            "succeeded",
            "{}",
            call.text()
        );
    }

    let whole = page(get("/v1/breakers", &any)).await;
    assert!(
        whole["breakers"][0]["target"]
            .as_str()
            .unwrap()
            .starts_with("http"),
        "{whole}"
    );
    assert!(
        whole["breakers"][0]["why"]["failures"].as_u64().unwrap() >= 2,
        "{whole}"
    );
    let part = page(get("/v1/breakers", &acme)).await;
    let row = part["breakers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["tool"] == "look");
    assert_eq!(
        (
            &row.unwrap()["state"],
            row.unwrap().get("target"),
            row.unwrap().get("why")
        ),
        (&json!("open"), None, None)
    );

    let all = page(get("/v1/limits", &any)).await;
    let buckets = column(&all, "limits", "tenant");
    assert_eq!(
        buckets,
        [json!("acme"), json!("beta"), json!(null)],
        "{all}"
    );
    let its = page(get("/v1/limits", &acme)).await;
    assert_eq!(
        column(&its, "limits", "tenant"),
        [json!("acme"), json!(null)],
        "{its}"
    );
    let starts = column(&its, "limits", "starts");
    assert!(starts[0].is_u64(), "{its}");
    assert_eq!(starts[1], json!(null), "what all took is not for one");
    // Bucket by bucket.
    let (mut from, mut names) = (String::new(), Vec::new());
    loop {
        let one = page(get(&format!("/v1/limits?limit=1{from}"), &any)).await;
        names.extend(column(&one, "limits", "tenant"));
        match one["after"].as_str() {
            Some(after) => from = format!("&after={after}"),
            None => break,
        }
    }
    assert_eq!(names, buckets);
    let sought = page(get("/v1/limits?tool=seek", &seeker)).await;
    assert_eq!(column(&sought, "limits", "name"), ["seek"], "{sought}");

    let cache = async |path: &str, held: &Held| {
        let shown = page(get(path, held)).await;
        let rows = shown["interceptors"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["name"] == "cache")
    };
    // Workers count now and then.
    until_so("the cache to be counted", async || {
        let row = cache("/v1/interceptors", &any).await;
        row.is_some_and(|row| row["calls"].as_u64().unwrap() >= 1)
    })
    .await;
    for (mode, tenant) in [
        ("off", json!("acme")),
        ("observe", json!("beta")),
        ("observe", json!(null)),
    ] {
        let set = json!({"do": "set", "interceptor": "cache", "mode": mode, "tool": "look", "tenant": tenant, "note": "n"});
        change(web, &any, None, &set).await;
    }
    let its = cache("/v1/interceptors?tool=look", &acme).await.unwrap();
    assert_eq!(column(&its, "modes", "mode"), ["off", "observe"], "{its}");
    assert_eq!(its.get("calls"), None, "{its}");
    let other = cache("/v1/interceptors?tool=seek", &seeker).await.unwrap();
    assert_eq!(column(&other, "modes", "mode"), [Value::Null; 0], "{other}");

    for (path, held, status, code) in [
        ("/v1/breakers", &seeker, 403, "forbidden"),
        ("/v1/limits?tool=find", &seeker, 403, "forbidden"),
        ("/v1/control", &seeker, 403, "forbidden"),
        ("/v1/interceptors", &seeker, 403, "forbidden"),
        ("/v1/breakers?before=x", &any, 400, "invalid_arguments"),
        ("/v1/breakers?after=1", &any, 400, "invalid_arguments"),
        ("/v1/limits?after=1", &any, 400, "invalid_arguments"),
        ("/v1/limits?limit=0", &any, 400, "invalid_arguments"),
        (
            "/v1/interceptors?limit=1001",
            &any,
            400,
            "invalid_arguments",
        ),
        ("/v1/control?before=-", &any, 400, "invalid_arguments"),
        ("/v1/control?kind=pause", &any, 400, "invalid_arguments"),
    ] {
        let refused = get(path, held).send().await;
        assert_eq!(
            told(&refused),
            is(status, code),
            "{path}: {}",
            refused.text()
        );
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
