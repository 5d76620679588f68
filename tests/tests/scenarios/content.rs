//! Tools whose answers are blocks of content: what they have to look like, and what becomes of one that does not.

mod large;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const CONTENT: &str = "output: content\noutput_schema: {type: object, properties: {late: {type: integer}}, required: [late]}\n";

fn blocks() -> Value {
    json!([
        {"type": "text", "text": "Seven orders are late."},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///late.csv", "text": "1,2"}},
        {"type": "resource_link", "uri": "https://shop.example.com/late", "name": "late orders"},
    ])
}

#[tokio::test]
async fn an_answer_of_blocks_is_checked_and_kept_as_it_is() {
    let witness = Witness::start().await;
    let once = witness.tool("charge", "once") + CONTENT;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + CONTENT, once])).await;
    let good = json!({"content": blocks(), "structured": {"late": 7}});
    witness.always("good", Reply::Body(good.to_string()));
    let answer = fleet.submit("look", &json!({"what": "good"})).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert_eq!(answer["result"], good);

    let secret = "do not quote me";
    for (n, (bad, place)) in [
        (json!({"content": blocks()}), "structured"),
        (json!({"content": blocks(), "structured": {"late": secret}}), "/late"),
        (json!(blocks()), "content"),
        (json!(secret), "content"),
        (
            json!({"content": [{"type": "text", "text": secret}, {"type": secret}], "structured": {"late": 1}}),
            "/content/1/type",
        ),
        (
            json!({"content": [{"type": "image", "data": secret, "mimeType": "image/png"}], "structured": {"late": 1}}),
            "/content/0/data",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("bad{n}");
        witness.always(&what, Reply::Body(bad.to_string()));
        let asked = json!({"what": what});
        let failed = fleet.submit("look", &asked).wait().await;
        let error = &failed["error"];
        assert_eq!((&failed["state"], &error["code"]), (&json!("failed"), &json!("output_invalid")), "{bad}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(place) && !message.contains(secret), "{message}");
        // What was done was done.
        let done = fleet.submit("charge", &asked).key(&what).wait().await;
        assert_eq!(
            (&done["state"], &done["error"]["code"], &done["result"]),
            (&json!("succeeded"), &json!("output_invalid"), &bad)
        );
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_answer_of_blocks_is_checked_before_it_is_shortened() {
    let witness = Witness::start().await;
    let large = "output: content\noutput_limit: 8MiB\nlarge_result: {over: 32KiB, preview: 2KiB}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + large])).await;
    let image = |data: String| {
        let block = json!({"type": "image", "data": data, "mimeType": "image/png"});
        // Larger than what is shown, and no large block.
        let text = format!("a map {}", "of it ".repeat(10_000));
        json!({"content": [{"type": "text", "text": text}, block]})
    };
    for (what, data, state) in [
        (
            "good",
            "aGk=aGk=".repeat(200_000).replace('=', "A"),
            "succeeded",
        ),
        ("bad", "aGk=aGk=".repeat(200_000), "failed"),
    ] {
        witness.always(what, Reply::Body(image(data).to_string()));
        let answer = fleet.submit("look", &json!({"what": what})).wait().await;
        assert_eq!(answer["state"], state, "{what}");
        if state == "succeeded" {
            assert!(
                answer["result"]["preview"]
                    .as_str()
                    .unwrap()
                    .contains("a map")
            );
        }
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_is_handed_in_for_a_client_tool_is_held_against_it_and_the_call_waits_on() {
    let tool = "name: look\nversion: 1\ndescription: Looks something up.\neffect: read\noutput: content\n\
                input_schema: {type: object}\nexecutor: {client: {}}\n";
    let fleet = Fleet::start(Spec::with([tool.to_owned()]).workers(0, &[])).await;
    let waiting = fleet.submit("look", &json!({})).wait().await;
    let hands_in = async |result: Value| {
        let body = json!({
            "call_id": waiting["call_id"], "token": waiting["awaiting"]["token"], "result": result,
        });
        fleet.ask("toolfleet.v1.default.output", &body).await
    };
    let refused = hands_in(json!([{"type": "text", "text": "hi"}])).await;
    assert_eq!(
        refused["error"]["code"], "invalid_arguments",
        "{}",
        *refused
    );
    let content = json!({"content": [{"type": "text", "text": "hi"}]});
    let done = hands_in(content.clone()).await;
    assert_eq!(
        (&done["state"], &done["result"]),
        (&json!("succeeded"), &content)
    );
}
