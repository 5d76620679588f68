//! Turns over HTTP: made once whatever is repeated, told in one order by any gateway, and made good where the stream has lost them.

use fleet_tests::{
    event_source::{Block, EventSource, text},
    fleet::{Fleet, Spec},
    invariants,
    web::{Web, WebAnswer},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use crate::streams::following;

/// A turn of these calls.
pub(crate) async fn turn(web: Web, key: &str, turn: &Value) -> WebAnswer {
    let request = web.post("/v1/turns", turn.to_string());
    request.header("Idempotency-Key", key).send().await
}

pub(crate) fn look(what: &str) -> Value {
    json!({"tool": "look", "args": {"what": what}})
}

/// Follows a turn behind this event.
pub(crate) async fn follow(web: Web, id: &str, query: &str, last: Option<&str>) -> EventSource {
    let request = web.get(&format!("/v1/turns/{id}/events{query}"));
    let request = match last {
        Some(last) => request.header("Last-Event-ID", last),
        None => request,
    };
    let follower = EventSource::open(request).await;
    assert_eq!(follower.head.status, 200, "{:?}", follower.head);
    follower
}

/// All of a turn, which has to end.
pub(crate) async fn whole(web: Web, id: &str, query: &str, last: Option<&str>) -> Vec<Block> {
    let mut follower = follow(web, id, query, last).await;
    let blocks = follower.rest().await;
    assert!(follower.is_complete, "{blocks:?}");
    blocks
}

/// What every story has: it begins and ends, its numbers have no gaps, and each item that was added is done.
pub(crate) fn is_whole(blocks: &[Block]) {
    let numbers = blocks
        .iter()
        .map(|block| block.json()["sequence_number"].as_u64().unwrap());
    assert!(numbers.eq(0..blocks.len() as u64), "{blocks:?}");
    assert_eq!(blocks[0].event, "response.created");
    assert!(blocks.last().unwrap().event.starts_with("response."));
    let count = |event: &str| blocks.iter().filter(|block| block.event == event).count();
    assert_eq!(
        count("response.output_item.added"),
        count("response.output_item.done")
    );
    for block in blocks {
        assert_eq!(block.json()["type"], block.event, "{block:?}");
    }
}

/// The items of the last event.
pub(crate) fn output(blocks: &[Block]) -> Value {
    blocks.last().unwrap().json()["response"]["output"].clone()
}

#[tokio::test]
async fn a_turn_is_made_once_and_every_gateway_tells_the_same_story() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut second, other) = fleet.gateway(&[]).await;
    witness.always("no", Reply::No("it is closed"));
    let asked =
        json!({"calls": [look("a"), look("no"), {"tool": "nothing", "args": {}}, look("b")]});
    let made = turn(web, "k", &asked).await;
    assert_eq!(made.status, 202, "{}", made.text());
    let said = made.json();
    let id = said["turn_id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("Location"), format!("/v1/turns/{id}"));
    assert_eq!(said["session"], id.as_str());
    let states: Vec<&Value> = said["items"].as_array().unwrap().iter().collect();
    assert_eq!(states.len(), 4);
    assert_eq!(states[2]["error"]["code"], "unknown_tool", "{said}");
    let blocks = whole(web, &id, "", None).await;
    is_whole(&blocks);
    let items = output(&blocks);
    let failed: Vec<bool> = items
        .as_array()
        .unwrap()
        .iter()
        .map(|item| !item["error"].is_null())
        .collect();
    assert_eq!(failed, [false, true, true, false], "{items}");

    // The same again: the same calls, and the same story, from each place of it.
    let again = turn(other, "k", &asked).await;
    assert_eq!(again.status, 202, "{}", again.text());
    for (one, two) in states.iter().zip(again.json()["items"].as_array().unwrap()) {
        assert_eq!(one["call_id"], two["call_id"]);
    }
    assert_eq!(text(&whole(other, &id, "", None).await), text(&blocks));
    let (last, others) = blocks.split_last().unwrap();
    for (place, block) in others.iter().enumerate() {
        let rest = whole(other, &id, "", Some(&block.id)).await;
        assert_eq!(text(&rest), text(&blocks[place + 1..]));
        let number = &block.json()["sequence_number"];
        let rest = whole(web, &id, &format!("?starting_after={number}"), None).await;
        assert_eq!(text(&rest), text(&blocks[place + 1..]));
    }
    // Who has had all of it comes back for nothing.
    let events = format!("/v1/turns/{id}/events");
    for request in [
        other.get(&events).header("Last-Event-ID", &last.id),
        web.get(&format!("{events}?starting_after=9999")),
    ] {
        let nothing = request.send().await;
        assert_eq!((nothing.status, nothing.text()), (204, String::new()));
    }
    assert_eq!(witness.asked("a") + witness.asked("b"), 2);
    let stands = web.get(&format!("/v1/turns/{id}")).send().await;
    let stands = stands.json();
    let states: Vec<&Value> = stands["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["state"])
        .collect();
    assert_eq!(
        states,
        ["succeeded", "failed", "refused", "succeeded"],
        "{stands}"
    );

    for reused in [
        json!({"calls": [look("a")]}),
        json!({"calls": [look("a"), look("no"), {"tool": "nothing", "args": {}}, look("c")]}),
        json!({"calls": asked["calls"], "order": "first_ready"}),
    ] {
        let refused = turn(web, "k", &reused).await;
        assert_eq!(
            (refused.status, refused.code()),
            (409, "idempotency_key_reused".to_owned())
        );
        let error = refused.json()["error"].clone();
        assert_eq!(error["details"]["turn_id"], id.as_str(), "{error}");
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
    second.drain().await;
}

/// One is hidden, one is the answer, and the others say as what they are shown.
#[tokio::test]
async fn calls_are_shown_as_the_manifests_of_their_tools_say() {
    let witness = Witness::start().await;
    let shown = |name: &str, how: &str| witness.tool(name, "read") + how + "\n";
    let spec = Spec::with([
        shown("draw", "presents: image_generation_call"),
        shown("search", "presents: web_search_call"),
        shown("peek", "visibility: hidden"),
        shown("answer", "final: true"),
        witness.tool("look", "read"),
    ]);
    let fleet = Fleet::start(spec).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let body = |what: &str, body: Value| witness.always(what, Reply::Body(body.to_string()));
    body("cat", json!({"mime": "image/png", "b64": "Y2F0"}));
    body("dog", json!({"url": "https://dogs.example/1.png"}));
    body(
        "rain",
        json!({"results": [{"url": "https://rain.example"}]}),
    );
    body("end", json!("Take the train."));
    let of = |tool: &str, what: &str| json!({"tool": tool, "args": {"what": what}});
    let calls = [
        of("draw", "cat"),
        of("search", "rain"),
        of("peek", "h"),
        look("a"),
        of("answer", "end"),
        of("draw", "dog"),
    ];
    let asked = json!({"order": "first_ready", "on_final": "await", "calls": calls});
    let made = turn(web, "k", &asked).await.json();
    assert_eq!(made["items"].as_array().unwrap().len(), 6, "{made}");
    let id = made["turn_id"].as_str().unwrap();
    let blocks = whole(web, id, "", None).await;
    is_whole(&blocks);
    let items = output(&blocks);
    let items = items.as_array().unwrap();
    assert_eq!(items.len(), 5, "{items:?}");
    let find = |place: usize| {
        let call = made["items"][place]["call_id"].as_str().unwrap();
        let name = call.replace('-', "");
        let is_its = |item: &&Value| item["id"].as_str().unwrap().contains(&name);
        items.iter().find(is_its)
    };
    let item = |place| find(place).unwrap();
    assert_eq!(item(0)["type"], "image_generation_call");
    assert_eq!(item(0)["result"], "Y2F0");
    assert_eq!(item(1)["type"], "web_search_call");
    let source = &item(1)["action"]["sources"][0];
    assert_eq!(source["url"], "https://rain.example");
    assert_eq!(find(2), None);
    assert_eq!(item(3)["type"], "mcp_call");
    assert_eq!(item(4)["content"][0]["text"], "Take the train.");
    // There was no image to show.
    assert_eq!(item(5)["type"], "mcp_call");
    let shown = item(5)["output"].as_str().unwrap();
    assert!(shown.contains("dogs.example"), "{shown}");
    assert_eq!(witness.asked("h"), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn the_final_answer_takes_the_other_calls_back_though_nobody_follows_the_turn() {
    let witness = Witness::start().await;
    let answering = witness.tool("answer", "read") + "final: true\n";
    let fleet = Fleet::start(Spec::with([answering, witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    for slow in ["first", "second"] {
        witness.always(slow, Reply::DoneWhenReleased);
    }
    let asked = |slow: &str, end: &str| {
        let answer = json!({"tool": "answer", "args": {"what": end}});
        json!({"on_final": "cancel", "calls": [look(slow), answer]})
    };
    let made = turn(web, "k", &asked("first", "end")).await.json();
    let slow = made["items"][0]["call_id"].as_str().unwrap();
    let ended = web.get(&format!("/v1/calls/{slow}?wait_ms=20000"));
    let ended = ended.send().await;
    assert_eq!(ended.json()["state"], "cancelled", "{}", ended.text());
    // One that has no answer takes nothing back.
    witness.always("no", Reply::No("it is closed"));
    let made = turn(web, "other", &asked("second", "no")).await.json();
    let [slow, end] = [0, 1].map(|place: usize| made["items"][place]["call_id"].as_str().unwrap());
    let failed = web.get(&format!("/v1/calls/{end}?wait_ms=20000"));
    assert_eq!(failed.send().await.json()["state"], "failed");
    witness.release("second");
    let ended = web.get(&format!("/v1/calls/{slow}?wait_ms=20000"));
    assert_eq!(ended.send().await.json()["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn another_gateway_goes_on_with_a_turn_behind_the_last_event() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (first, web) = fleet.gateway(&[]).await;
    let (mut second, other) = fleet.gateway(&[]).await;
    witness.always("late", Reply::DoneWhenReleased);
    let asked = json!({"calls": [look("a"), look("late"), look("b")], "order": "first_ready"});
    let made = turn(web, "k", &asked).await.json();
    let id = made["turn_id"].as_str().unwrap();
    let mut follower = follow(web, id, "", None).await;
    let mut read = follower.until("response.output_item.done").await;
    first.kill().await;
    read.extend(follower.rest().await);
    assert!(!follower.is_complete);
    let mut again = follow(other, id, "", Some(&read.last().unwrap().id)).await;
    witness.release("late");
    let rest = again.rest().await;
    assert!(again.is_complete);
    let whole = whole(other, id, "", None).await;
    is_whole(&whole);
    assert_eq!(text(&read) + &text(&rest), text(&whole));
    invariants::hold(&fleet, &witness).await;
    second.drain().await;
}

#[tokio::test]
async fn what_the_stream_has_lost_of_a_turn_is_told_from_its_rows() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let asked = json!({"calls": [look("a"), look("b")]});
    let made = turn(web, "k", &asked).await.json();
    let id = made["turn_id"].as_str().unwrap();
    let told = whole(web, id, "", None).await;
    let stood = web.get(&format!("/v1/turns/{id}")).send().await.json();
    let jetstream = async_nats::jetstream::new(fleet.client.clone());
    let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap();
    stream.purge().await.unwrap();
    // Nobody knows its header.
    let lost = whole(web, id, "", None).await;
    let events: Vec<&str> = lost.iter().map(|block| block.event.as_str()).collect();
    assert_eq!(events, ["gap", "snapshot", "snapshot", ""]);
    let behind = |id: &str, last: &Block| {
        let events = web.get(&format!("/v1/turns/{id}/events"));
        events.header("Last-Event-ID", &last.id).send()
    };
    assert_eq!(behind(id, lost.last().unwrap()).await.status, 204);
    // What only the stream knew is null, and the rest is the same.
    let rows = web.get(&format!("/v1/turns/{id}")).send().await.json();
    assert_eq!(rows["items"].as_array().unwrap().len(), 2, "{rows}");
    assert_eq!(
        (&rows["order"], &rows["items"][0]["index"]),
        (&Value::Null, &Value::Null)
    );
    for field in ["turn_id", "session", "response_id", "created_at"] {
        assert_eq!(rows[field], stood[field], "{rows}");
    }
    for field in ["call_id", "tool", "state", "outcome", "attempts", "code"] {
        let column = |turn: &Value| [0, 1].map(|place: usize| turn["items"][place][field].clone());
        let (mut now, mut before) = (column(&rows), column(&stood));
        now.sort_by_key(Value::to_string);
        before.sort_by_key(Value::to_string);
        assert_eq!(now, before, "{rows}");
    }
    // The same turn again says it anew.
    let again = turn(web, "k", &asked).await.json();
    assert_eq!(again["items"][0]["replayed"], true, "{again}");
    let blocks = whole(web, id, "", None).await;
    assert_eq!(blocks[0].event, "gap");
    is_whole(&blocks[1..]);
    assert_eq!(output(&blocks), output(&told));
    assert_eq!(behind(id, blocks.last().unwrap()).await.status, 204);
    assert_eq!(witness.asked("a") + witness.asked("b"), 2);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_last_word_that_was_lost_is_told_from_its_row() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut second, other) = fleet.gateway(&[]).await;
    let asked = json!({"calls": [look("a"), look("b")]});
    let made = turn(web, "k", &asked).await.json();
    let id = made["turn_id"].as_str().unwrap();
    let told = whole(web, id, "", None).await;
    let mut raw = EventSource::open(following(web, id, "?from=start")).await;
    let last = raw.until("finished").await.pop().unwrap();
    let (_, sequence) = last.id.split_once('-').unwrap();
    let jetstream = async_nats::jetstream::new(fleet.client.clone());
    let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap();
    let deleted = stream.delete_message(sequence.parse().unwrap()).await;
    assert!(deleted.unwrap());
    // The first one still has it.
    let blocks = whole(other, id, "", None).await;
    let blocks: Vec<Block> = blocks
        .into_iter()
        .filter(|block| block.text != ": keep\n\n")
        .collect();
    is_whole(&blocks);
    let results = |blocks: &[Block]| {
        let items = output(blocks);
        let mut results: Vec<String> = items
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["output"].to_string())
            .collect();
        results.sort();
        results
    };
    assert_eq!(results(&blocks), results(&told));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
    second.drain().await;
}

#[tokio::test]
async fn a_client_hands_in_what_it_ran_and_the_rest_is_told_in_the_next_response() {
    let witness = Witness::start().await;
    let client = "name: ask_user\nversion: 1\ndescription: Asks.\neffect: read\n\
                  input_schema: {type: object}\nexecutor: {client: {}}\n";
    let confirmed = witness.tool("confirm", "read") + "approval: {by: caller}\n";
    let spec = Spec::with([witness.tool("look", "read"), client.to_owned(), confirmed]);
    let fleet = Fleet::start(spec).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let confirm = json!({"tool": "confirm", "args": {"what": "c"}});
    let asked = json!({"calls": [look("a"), {"tool": "ask_user", "args": {}}, confirm]});
    let made = turn(web, "k", &asked).await.json();
    let id = made["turn_id"].as_str().unwrap();
    let blocks = whole(web, id, "", None).await;
    is_whole(&blocks);
    let items = output(&blocks);
    let types: Vec<&Value> = items
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert!(types.contains(&&json!("function_call")), "{items}");
    assert_eq!(blocks.last().unwrap().event, "response.completed");
    assert!(types.contains(&&json!("mcp_approval_request")), "{items}");
    let ids: Vec<&str> = [1, 2]
        .map(|place: usize| made["items"][place]["call_id"].as_str().unwrap())
        .to_vec();
    let path = format!("/v1/turns/{id}/outputs");
    // Who decides says about which arguments.
    let blind = json!({"outputs": [{"call_id": ids[1], "decision": "approve", "actor": "ann"}]});
    let refused = web.post(&path, blind.to_string()).send().await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let waiting = web.get(&format!("/v1/calls/{}", ids[1])).send().await;
    let hash = waiting.json()["awaiting"]["args_hash"].clone();
    let outputs = json!({"outputs": [
        {"call_id": ids[0], "result": {"said": "yes"}},
        {"call_id": ids[1], "decision": "approve", "actor": "ann", "args_hash": hash},
    ]});
    let handed_in = web.post(&path, outputs.to_string()).send().await;
    assert_eq!(handed_in.status, 202, "{}", handed_in.text());
    let said = handed_in.json();
    assert_eq!(said["items"][0]["state"], "succeeded", "{said}");
    let next = said["response_id"].as_str().unwrap().to_owned();
    let query = format!("?response_id={next}");
    let blocks = whole(web, id, &query, None).await;
    is_whole(&blocks);
    let response = blocks.last().unwrap().json()["response"].clone();
    assert_eq!(response["id"], next.as_str());
    assert_eq!(response["previous_response_id"], made["response_id"]);
    assert_eq!(
        response["output"].as_array().unwrap().len(),
        1,
        "{response}"
    );
    assert_eq!(witness.asked("c"), 1);
    // The same again finds it, and streams it to who wants that.
    let again = web.post(&path, outputs.to_string());
    let again = again.header("Accept", "text/event-stream");
    let mut again = EventSource::open(again).await;
    assert_eq!(text(&again.rest().await), text(&blocks));
    for (body, status) in [
        (json!({"outputs": []}), 400),
        (json!({"outputs": [{"call_id": "x"}]}), 400),
        (
            json!({"outputs": [{"call_id": "01980000-0000-7000-8000-000000000000", "result": 1}]}),
            404,
        ),
    ] {
        let refused = web.post(&path, body.to_string()).send().await;
        assert_eq!(refused.status, status, "{body}: {}", refused.text());
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_is_no_turn_is_refused_and_makes_no_call() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let many = |count: usize| json!({"calls": vec![look("a"); count]});
    for (body, code) in [
        (json!({}), "invalid_arguments"),
        (many(0), "invalid_arguments"),
        (many(65), "invalid_arguments"),
        (json!({"calls": [1]}), "invalid_arguments"),
        (
            json!({"calls": [look("a")], "order": "random"}),
            "invalid_arguments",
        ),
        (
            json!({"calls": [look("a")], "on_final": "kill"}),
            "invalid_arguments",
        ),
        (
            json!({"calls": [look("a")], "session": "s"}),
            "invalid_arguments",
        ),
        (
            json!({"calls": [{"tool": "look", "session": "s"}]}),
            "invalid_arguments",
        ),
        (
            json!({"calls": [{"tool": "look", "idempotency_key": "k"}]}),
            "invalid_arguments",
        ),
    ] {
        let refused = turn(web, "k", &body).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (400, code),
            "{body}"
        );
    }
    let body = json!({"calls": [look("a")]}).to_string();
    for (headers, code) in [
        (&[][..], "missing_idempotency_key"),
        (&[("Idempotency-Key", "")], "invalid_idempotency_key"),
        (
            &[("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
            "invalid_idempotency_key",
        ),
        (
            &[("Idempotency-Key", "a"), ("Toolfleet-Session", "s")],
            "header_invalid",
        ),
        (
            &[
                ("Idempotency-Key", "a"),
                ("Toolfleet-Meta", "{\"principal\":\"x\"}"),
            ],
            "header_invalid",
        ),
    ] {
        let mut request = web.post("/v1/turns", body.clone());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let refused = request.send().await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (400, code),
            "{headers:?}"
        );
    }
    let nobody = format!("turn_{}", "0".repeat(32));
    let made = turn(web, "k", &json!({"calls": [look("b")]})).await.json();
    let id = made["turn_id"].as_str().unwrap();
    let last = whole(web, id, "", None).await.pop().unwrap().id;
    let future = last.replace(".", "000.");
    for (path, last, status, code) in [
        (format!("/v1/turns/{nobody}"), None, 404, "not_found"),
        (format!("/v1/turns/{nobody}/events"), None, 404, "not_found"),
        ("/v1/turns/x".to_owned(), None, 400, "invalid_id"),
        (
            "/v1/turns/%2e%2e/events".to_owned(),
            None,
            400,
            "invalid_id",
        ),
        (
            format!("/v1/turns/{id}/events?extensions=yes"),
            None,
            400,
            "invalid_arguments",
        ),
        (
            format!("/v1/turns/{id}/events?starting_after=-1"),
            None,
            400,
            "invalid_arguments",
        ),
        (
            format!("/v1/turns/{id}/events?response_id=resp_x"),
            None,
            404,
            "not_found",
        ),
        (
            format!("/v1/turns/{id}/events"),
            Some("1-1"),
            400,
            "header_invalid",
        ),
        (
            format!("/v1/turns/{id}/events"),
            Some(future.as_str()),
            400,
            "header_invalid",
        ),
    ] {
        let request = web.get(&path);
        let request = match last {
            Some(last) => request.header("Last-Event-ID", last),
            None => request,
        };
        let refused = request.send().await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (status, code),
            "{path}"
        );
    }
    // Another tenant's turn is one that does not exist.
    let unknown = web.get(&format!("/v1/turns/{nobody}")).send().await;
    for path in [format!("/v1/turns/{id}"), format!("/v1/turns/{id}/events")] {
        let foreign = web
            .get(&path)
            .header("Toolfleet-Tenant", "acme")
            .send()
            .await;
        assert_eq!(
            (foreign.status, &foreign.body),
            (404, &unknown.body),
            "{path}"
        );
    }
    assert_eq!(witness.asked("a"), 0);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
