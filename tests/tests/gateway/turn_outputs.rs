//! What clients hand in for the calls of a turn: each output is answered for itself, and the same again is told from another one.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    web::{Web, WebAnswer},
    witness::Witness,
};
use serde_json::{Value, json};

use crate::turns::{output, turn, whole};

const CLIENT: &str = "name: ask_user\nversion: 1\ndescription: Asks.\neffect: read\n\
                      input_schema: {type: object}\nexecutor: {client: {}}\n";

/// A turn with a call that the client runs and one whose caller decides.
struct Scene {
    web: Web,
    id: String,
    /// The ids of both.
    calls: [String; 2],
    /// What a decision about the second one names.
    hash: Value,
    /// The request that was shown for it.
    request: String,
}

impl Scene {
    async fn of(web: Web) -> Self {
        let confirm = json!({"tool": "confirm", "args": {"what": "c"}});
        let asked = json!({"calls": [{"tool": "ask_user", "args": {}}, confirm]});
        let made = turn(web, "k", &asked).await.json();
        let id = made["turn_id"].as_str().unwrap().to_owned();
        let calls =
            [0, 1].map(|place: usize| made["items"][place]["call_id"].as_str().unwrap().to_owned());
        let items = output(&whole(web, &id, "", None).await);
        let mut items = items.as_array().unwrap().iter();
        let request = items.find(|item| item["type"] == "mcp_approval_request");
        let waiting = web.get(&format!("/v1/calls/{}", calls[1])).send().await;
        Self {
            web,
            id,
            hash: waiting.json()["awaiting"]["args_hash"].clone(),
            request: request.unwrap()["id"].as_str().unwrap().to_owned(),
            calls,
        }
    }

    fn result(&self, said: &str) -> Value {
        json!({"call_id": self.calls[0], "result": {"said": said}})
    }

    fn decision(&self, word: &str) -> Value {
        let (call, hash) = (&self.calls[1], &self.hash);
        json!({"call_id": call, "decision": word, "actor": "ann", "args_hash": hash})
    }

    async fn hand_in(&self, outputs: &[Value]) -> WebAnswer {
        let path = format!("/v1/turns/{}/outputs", self.id);
        let body = json!({ "outputs": outputs }).to_string();
        self.web.post(&path, body).send().await
    }

    /// Hands in what is refused as a whole: its status, its code, and which part of it is to blame.
    async fn refused(&self, outputs: &[Value]) -> (u16, String, String) {
        let answer = self.hand_in(outputs).await;
        let error = answer.json()["error"].clone();
        let path = error["path"].as_str().unwrap_or_default().to_owned();
        (answer.status, answer.code(), path)
    }

    async fn state_of(&self, call: usize) -> Value {
        let path = format!("/v1/calls/{}", self.calls[call]);
        self.web.get(&path).send().await.json()["state"].clone()
    }
}

fn is(status: u16, code: &str, path: &str) -> (u16, String, String) {
    (status, code.to_owned(), path.to_owned())
}

fn with(mut output: Value, field: &str, value: Value) -> Value {
    output[field] = value;
    output
}

async fn started() -> (Witness, Fleet) {
    let witness = Witness::start().await;
    let confirmed = witness.tool("confirm", "read") + "approval: {by: caller}\n";
    let spec = Spec::with([CLIENT.to_owned(), confirmed]);
    let fleet = Fleet::start(spec).await;
    (witness, fleet)
}

#[tokio::test]
async fn each_output_is_taken_or_refused_by_itself_and_the_same_again_is_told_the_same() {
    let (witness, fleet) = started().await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let scene = Scene::of(web).await;
    let (said, approved) = (scene.result("yes"), scene.decision("approve"));
    // The form of one of them keeps all from being handed in.
    let blind = with(approved.clone(), "args_hash", Value::Null);
    let refused = scene.refused(&[said.clone(), blind]).await;
    assert_eq!(
        refused,
        is(400, "invalid_arguments", "/outputs/1/args_hash")
    );
    assert_eq!(scene.state_of(0).await, "awaiting_client");

    // What one call refuses the other one takes.
    let wrong = with(approved.clone(), "args_hash", json!("0".repeat(64)));
    let mixed = scene.hand_in(&[said.clone(), wrong.clone()]).await;
    assert_eq!(mixed.status, 202, "{}", mixed.text());
    let items = mixed.json()["items"].clone();
    assert_eq!(items[0]["state"], "succeeded", "{items}");
    assert_eq!(items[1]["state"], "refused", "{items}");
    assert_eq!(items[1]["call_id"], scene.calls[1].as_str(), "{items}");
    assert_eq!(items[1]["error"]["code"], "conflict", "{items}");
    assert_eq!(items[1]["error"]["path"], "/outputs/1", "{items}");
    let alone = scene.refused(&[wrong]).await;
    assert_eq!(alone, is(409, "conflict", "/outputs/0"));

    // Another output for a call that has had one.
    let other = scene.refused(&[scene.result("no")]).await;
    assert_eq!(other, is(409, "conflict", "/outputs/0"));
    let again = scene.hand_in(std::slice::from_ref(&said)).await;
    assert_eq!(again.status, 202, "{}", again.text());
    assert_eq!(again.json()["items"][0]["result"]["said"], "yes");

    // By the request that was shown, and with the first one again, in any order.
    let mut by_request = approved.clone();
    by_request.as_object_mut().unwrap().remove("call_id");
    let by_request = with(by_request, "approval_request_id", json!(scene.request));
    let taken = scene.hand_in(&[by_request, said.clone()]).await;
    assert_eq!(taken.status, 202, "{}", taken.text());
    let taken = taken.json();
    let next = taken["response_id"].as_str().unwrap();
    assert_eq!(mixed.json()["response_id"], next);
    let told = output(&whole(web, &scene.id, &format!("?response_id={next}"), None).await);
    assert_eq!(
        told[0]["approval_request_id"],
        scene.request.as_str(),
        "{told}"
    );
    let again = scene.hand_in(&[said, approved]).await.json();
    assert_eq!(again["response_id"], next, "{again}");
    assert_eq!(again["items"].as_array().unwrap().len(), 2, "{again}");
    let denied = scene.refused(&[scene.decision("deny")]).await;
    assert_eq!(denied, is(409, "conflict", "/outputs/0"));
    assert_eq!(witness.asked("c"), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn who_hands_in_something_else_is_told_what_the_call_waits_for() {
    let (witness, fleet) = started().await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let scene = Scene::of(web).await;
    let result_for = |call: &str| json!({"call_id": call, "result": 1});
    for (outputs, told, words) in [
        (
            result_for(&scene.calls[1]),
            is(409, "conflict", "/outputs/0"),
            "waits for a decision",
        ),
        (
            with(scene.decision("deny"), "call_id", json!(scene.calls[0])),
            is(409, "conflict", "/outputs/0"),
            "hand in result or error",
        ),
        (
            with(scene.result("yes"), "token", json!("x")),
            is(400, "invalid_arguments", "/outputs/0/token"),
            "leave it out",
        ),
        (
            result_for("01980000-0000-7000-8000-000000000000"),
            is(404, "not_found", "/outputs/0/call_id"),
            "turn has no such call",
        ),
        (
            json!({"call_id": scene.calls[0], "result": 1, "input": {}}),
            is(400, "invalid_arguments", "/outputs/0"),
            "exactly one",
        ),
    ] {
        let answer = scene.hand_in(std::slice::from_ref(&outputs)).await;
        assert_eq!(scene.refused(&[outputs]).await, told);
        assert!(answer.text().contains(words), "{}", answer.text());
    }
    let path = format!("/v1/turns/{}/events?response_id=resp_x", scene.id);
    let unknown = web.get(&path).send().await;
    assert_eq!(unknown.status, 404);
    assert!(
        unknown.text().contains("no such response"),
        "{}",
        unknown.text()
    );
    let short = web.get("/v1/turns/turn_1bf713").send().await;
    assert!(
        short.text().contains("turn_id of a turn"),
        "{}",
        short.text()
    );
    // Nothing of that was taken.
    let states = [scene.state_of(0).await, scene.state_of(1).await];
    assert_eq!(states, ["awaiting_client", "awaiting_client"]);
    assert_eq!(witness.asked("c"), 0);
    let both = [scene.result("yes"), scene.decision("deny")];
    assert_eq!(scene.hand_in(&both).await.status, 202);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
