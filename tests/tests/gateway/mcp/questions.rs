//! What a client is asked about its call: for a yes, and for what its tool wants to know; and what its answers come to.

use fleet::{ids::CallId, tokens::Scope};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    web::{Web, WebAnswer},
    witness::Witness,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use worker::{Effect, Tool, ToolContext, ToolError, Worker, tool::Settings};

use super::{Client, error, legacy, modern, result, said, texts};
use crate::tokens::{known, token, with};

pub(super) const FORMS: &str = r#"{"elicitation":{}}"#;
pub(super) const ALL: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#;

/// The same request with what was asked and answered.
pub(super) async fn answer(
    client: Client,
    tool: &str,
    arguments: &str,
    state: Option<&Value>,
    responses: &Value,
) -> WebAnswer {
    answering(client, tool, arguments, state, responses)
        .send()
        .await
}

pub(super) fn answering(
    client: Client,
    tool: &str,
    arguments: &str,
    state: Option<&Value>,
    responses: &Value,
) -> fleet_tests::web::WebRequest {
    let state = state.map_or_else(String::new, |state| format!(r#","requestState":{state}"#));
    let params =
        format!(r#""name":"{tool}","arguments":{arguments}{state},"inputResponses":{responses}"#);
    let request = client.request("2", "tools/call", &params, "");
    request.header("Mcp-Name", tool)
}

/// What a client is asked.
async fn asked(client: Client, tool: &str, arguments: &str) -> Value {
    let told = result(&client.calling(tool, arguments, "").send().await);
    assert_eq!(told["resultType"], "input_required", "{told}");
    told
}

fn decision(decision: &str) -> Value {
    json!({"approval": {"action": "accept", "content": {"decision": decision, "note": "asked for"}}})
}

pub(super) fn call_of(told: &Value) -> CallId {
    said(told)["id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_yes_is_asked_for_with_the_exact_arguments_and_makes_one_run() {
    let witness = Witness::start().await;
    let guarded = witness.tool("charge", "once") + "approval: {by: caller, reason: Money.}\n";
    let operators = witness.tool("transfer", "once") + "approval: {by: operator}\n";
    let fleet = Fleet::start(Spec::with([guarded, operators])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut other, elsewhere) = fleet.gateway(&[]).await;
    let client = modern(web).that_can(FORMS);
    let sent = r#"{"what":"a\u202eb"}"#;
    let told = asked(client, "charge", sent).await;
    let form = &told["inputRequests"]["approval"];
    assert_eq!(form["method"], "elicitation/create");
    let message = form["params"]["message"].as_str().unwrap();
    for part in ["charge", r#""what": "a\u202eb""#, "Money."] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(
        form["params"]["requestedSchema"]["required"],
        json!(["decision"])
    );
    let call = call_of(&told);
    assert_eq!(said(&told)["state"], "awaiting_client");
    assert!(!told.to_string().contains("token"), "{told}");
    // The same request again is asked the same about the same call.
    let again = asked(client, "charge", sent).await;
    assert_eq!(call_of(&again), call);

    let state = &told["requestState"];
    // Without an answer it is asked again.
    for nothing in [
        json!({}),
        json!({"approval": 7}),
        json!({"other": {"action": "accept"}}),
        decision("yes"),
    ] {
        let told = result(&answer(client, "charge", sent, Some(state), &nothing).await);
        assert_eq!(told["resultType"], "input_required", "{nothing} {told}");
        assert_eq!(call_of(&told), call);
    }
    let closed = json!({"approval": {"action": "cancel"}});
    let told = result(&answer(client, "charge", sent, Some(state), &closed).await);
    assert!(
        texts(&told)[0].contains("Nothing has happened yet"),
        "{told}"
    );
    // A yes is for what was shown: without that it is none.
    let told = result(&answer(client, "charge", sent, None, &decision("approve")).await);
    assert_eq!(told["resultType"], "input_required", "{told}");
    assert_eq!(witness.asked("a\u{202e}b"), 0);

    // Any gateway takes the answer.
    let at_other = modern(elsewhere).that_can(FORMS);
    let told = result(&answer(at_other, "charge", sent, Some(state), &decision("approve")).await);
    assert_eq!(
        (&told["isError"], call_of(&told)),
        (&json!(false), call),
        "{told}"
    );
    let rows = fleet
        .rows(
            "SELECT decision, note, args_hash FROM toolfleet.approvals WHERE call_id = $1",
            call,
        )
        .await;
    assert_eq!(
        (&rows[0]["decision"], &rows[0]["note"]),
        (&json!("approve"), &json!("asked for")),
        "{rows:?}"
    );
    // A question that was answered is no question: whatever is said then, the call is told.
    for late in [decision("deny"), json!({})] {
        let told = result(&answer(client, "charge", sent, Some(state), &late).await);
        assert_eq!(
            (&said(&told)["state"], call_of(&told)),
            (&json!("succeeded"), call),
            "{told}"
        );
    }
    assert_eq!(witness.applied("a\u{202e}b"), 1);

    for (what, responses) in [
        ("no", decision("deny")),
        ("never", json!({"approval": {"action": "decline"}})),
    ] {
        let sent = format!(r#"{{"what":"{what}"}}"#);
        let told = asked(client, "charge", &sent).await;
        let told = result(
            &answer(
                client,
                "charge",
                &sent,
                Some(&told["requestState"]),
                &responses,
            )
            .await,
        );
        assert_eq!(told["isError"], true);
        assert_eq!(said(&told)["error"]["code"], "denied", "{told}");
        assert_eq!(witness.asked(what), 0);
    }
    // Who cannot be asked reads who decides; of an operator's decision everybody does.
    for (client, tool) in [
        (modern(web), "charge"),
        (
            modern(web).that_can(r#"{"elicitation":{"url":{}}}"#),
            "charge",
        ),
        (legacy(web), "charge"),
        (client, "transfer"),
    ] {
        let told = client.call(tool, "text").await;
        assert!(
            texts(&told)[0].contains("Nothing has happened yet"),
            "{told}"
        );
        assert!(told.get("inputRequests").is_none());
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
    other.drain().await;
}

#[tokio::test]
async fn what_a_client_sends_back_is_of_its_request_and_of_nobody_else() {
    let witness = Witness::start().await;
    let guarded = |name: &str| witness.tool(name, "once") + "approval: {by: caller}\n";
    let fleet = Fleet::start(Spec::with([guarded("charge"), guarded("refund")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = token(&fleet, "ann", "acme", &[Scope::Call], "*").await;
    let bob = token(&fleet, "bob", "acme", &[Scope::Call], "*").await;
    let reader = token(&fleet, "reader", "acme", &[Scope::Read], "*").await;
    known(web, &reader).await;
    let client = modern(web).that_can(FORMS);
    let sent = r#"{"what":"a"}"#;
    let told = result(&with(client.calling("charge", sent, ""), &ann).send().await);
    let state = told["requestState"].as_str().unwrap();
    let mut flipped = state.to_owned().into_bytes();
    flipped[10] ^= 1;
    let flipped = String::from_utf8(flipped).unwrap();
    let yes = decision("approve");
    for (held, tool, arguments, state) in [
        (&ann, "charge", sent, json!(flipped)),
        (&ann, "charge", sent, json!(format!("{state}-TAMPERED"))),
        (&ann, "charge", sent, json!("")),
        (&ann, "charge", sent, json!(7)),
        (&ann, "charge", sent, json!(null)),
        (&ann, "charge", sent, json!("x".repeat(10_000))),
        (&ann, "charge", r#"{"what":"b"}"#, json!(state)),
        (&ann, "refund", sent, json!(state)),
        (&bob, "charge", sent, json!(state)),
    ] {
        let request = answering(client, tool, arguments, Some(&state), &yes);
        let refused = with(request, held).send().await;
        assert_eq!(error(&refused), (200, -32602), "{}", refused.text());
    }
    for wrong in [json!(null), json!([]), json!("x")] {
        let request = answering(client, "charge", sent, Some(&json!(state)), &wrong);
        let refused = with(request, &ann).send().await;
        assert_eq!(error(&refused), (200, -32602), "{wrong}");
    }
    let request = answering(client, "charge", sent, Some(&json!(state)), &yes);
    let forbidden = with(request.clone(), &reader).send().await;
    assert_eq!(forbidden.status, 403, "{}", forbidden.text());
    assert_eq!(witness.asked("a"), 0);
    let told = result(&with(request, &ann).send().await);
    assert_eq!(said(&told)["state"], "succeeded", "{told}");
    let row = fleet
        .rows(
            "SELECT actor FROM toolfleet.approvals WHERE call_id = $1",
            call_of(&told),
        )
        .await;
    assert!(
        row[0]["actor"].as_str().unwrap().starts_with("ann"),
        "{row:?}"
    );
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

/// What this tool asks, as its client is asked: its words say whose they are.
fn as_shown(asks: &Value) -> Value {
    let mut shown = asks["inputRequests"].clone();
    for request in shown.as_object_mut().unwrap().values_mut() {
        if let Some(message) = request["params"].get_mut("message") {
            *message = format!("The tool ask asks: {}", message.as_str().unwrap()).into();
        }
    }
    shown
}

/// Asks what it is told to ask.
struct Ask;

#[derive(Deserialize, JsonSchema)]
struct Args {
    /// What it asks, each once.
    asks: Vec<Value>,
}

impl Tool for Ask {
    type Args = Args;
    type Output = Value;
    const NAME: &'static str = "ask";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Asks what it is told to ask.";

    fn settings(&self) -> Settings {
        Settings::default().field("mcp", json!({"task": "preferred"}))
    }

    async fn call(&self, args: Args, context: ToolContext) -> Result<Value, ToolError> {
        let mut told = context.state::<Vec<Value>>()?.unwrap_or_default();
        if let Some(input) = context.input::<Value>()? {
            told.push(input);
        }
        let asked = context.state::<Vec<Value>>()?.map_or(0, |_| told.len());
        match args.asks.get(asked) {
            Some(asks) => Err(ToolError::needs(asks.clone(), Some(json!(told)))),
            None => Ok(json!({ "told": told })),
        }
    }
}

pub(super) async fn asking_fleet() -> (Fleet, fleet_tests::process::Process, Web) {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    fleet
        .add_worker_with(Worker::builder().tool(Ask), &[])
        .await;
    until_so("the tool to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        tools.to_string().contains("\"ask\"")
    })
    .await;
    let (gateway, web) = fleet.gateway(&[]).await;
    (fleet, gateway, web)
}

#[tokio::test]
async fn what_a_tool_asks_is_handed_on_and_its_answer_reaches_the_tool() {
    let (fleet, mut gateway, web) = asking_fleet().await;
    let form = json!({"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}});
    let model =
        json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 10}});
    let roots = json!({"method": "roots/list", "params": {}});
    let ann = json!({"action": "accept", "content": {"name": "Ann"}});
    let said_by_model =
        json!({"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"});
    let folders = json!({"roots": [{"uri": "file:///a"}]});

    // All at once, then one behind the other.
    let three = json!({"inputRequests": {"who": form, "model": model, "roots": roots}});
    let second = json!({"inputRequests": {"again": form}});
    let sent = json!({"asks": [three, second]}).to_string();
    let client = modern(web).that_can(ALL);
    let told = asked(client, "ask", &sent).await;
    assert_eq!(told["inputRequests"], as_shown(&three));
    let some = json!({"who": ann, "model": said_by_model});
    let more = result(&answer(client, "ask", &sent, Some(&told["requestState"]), &some).await);
    assert_eq!(more["inputRequests"], as_shown(&three), "{more}");
    let all = json!({"who": ann, "model": said_by_model, "roots": folders, "nobody": 1});
    let next = result(&answer(client, "ask", &sent, Some(&told["requestState"]), &all).await);
    assert_eq!(next["inputRequests"], as_shown(&second), "{next}");
    assert_ne!(next["requestState"], told["requestState"]);
    // The first question was answered: who answers it again is asked the second.
    let late = result(&answer(client, "ask", &sent, Some(&told["requestState"]), &all).await);
    assert_eq!(late["inputRequests"], as_shown(&second), "{late}");
    let declined = json!({"again": {"action": "decline"}});
    let done = result(&answer(client, "ask", &sent, Some(&next["requestState"]), &declined).await);
    let mut given = all.clone();
    given.as_object_mut().unwrap().remove("nobody");
    assert_eq!(
        done["structuredContent"],
        json!({"told": [{"inputResponses": given}, {"inputResponses": declined}]}),
        "{done}"
    );

    // Of what is asked only what is declared.
    let sampler = modern(web).that_can(r#"{"sampling":{}}"#);
    let told = asked(sampler, "ask", &sent).await;
    assert_eq!(told["inputRequests"], json!({ "model": model }));
    // Who knows what is asked answers with the request, and what is no answer is asked for.
    let sent = json!({"asks": [{"inputRequests": {"who": form}}]}).to_string();
    let at_once =
        result(&answer(client, "ask", &sent, None, &json!({"who": ann, "more": 1})).await);
    assert_eq!(
        at_once["structuredContent"]["told"][0]["inputResponses"],
        json!({"who": ann}),
        "{at_once}"
    );
    for wrong in [json!({"who": 12345}), json!({"whom": ann})] {
        let told = result(&answer(client, "ask", &sent, None, &wrong).await);
        assert_eq!(told["resultType"], "input_required", "{told}");
    }

    // What only a program can answer, where it does not: the call is taken back.
    let sent = json!({"asks": [{"inputRequests": {"model": model}}]}).to_string();
    let lacks = modern(web)
        .that_can(FORMS)
        .calling("ask", &sent, "")
        .send()
        .await;
    assert_eq!(error(&lacks), (400, -32021), "{}", lacks.text());
    assert_eq!(
        lacks.json()["error"]["data"]["requiredCapabilities"],
        json!({"sampling": {}})
    );
    let nobody = CallId::generate();
    let open =
        "SELECT state FROM toolfleet.calls WHERE call_id <> $1 ORDER BY call_id DESC LIMIT 1";
    assert_eq!(fleet.rows(open, nobody).await[0]["state"], "cancelled");
    // But not the call of an earlier request, whose client is asked.
    let key = r#""io.toolfleet/idempotency-key":"k-1""#;
    let earlier = result(&client.calling("ask", &sent, key).send().await);
    assert_eq!(earlier["resultType"], "input_required", "{earlier}");
    let later = modern(web).that_can(FORMS).calling("ask", &sent, key);
    let later = result(&later.send().await);
    assert!(
        texts(&later)[0].contains("Nothing has happened yet"),
        "{later}"
    );
    assert_eq!(call_of(&later), call_of(&earlier));
    let state = fleet.call(call_of(&earlier)).await["state"].clone();
    assert_eq!(state, "awaiting_client");
    gateway.drain().await;
}

#[tokio::test]
async fn what_a_tool_asks_in_its_own_words_becomes_a_form_or_a_text() {
    let (fleet, mut gateway, web) = asking_fleet().await;
    let client = modern(web).that_can(FORMS);
    let plain = json!({"question": "For how many?", "schema": {"people": "integer"}});
    let sent = json!({"asks": [plain]}).to_string();
    let told = asked(client, "ask", &sent).await;
    let form = &told["inputRequests"]["answer"]["params"];
    assert!(
        form["message"].as_str().unwrap().contains("For how many?"),
        "{told}"
    );
    assert_eq!(
        form["requestedSchema"]["properties"],
        json!({"people": {"type": "integer"}})
    );
    let four = json!({"answer": {"action": "accept", "content": {"people": 4}}});
    let done = result(&answer(client, "ask", &sent, Some(&told["requestState"]), &four).await);
    assert_eq!(
        done["structuredContent"],
        json!({"told": [{"people": 4}]}),
        "{done}"
    );

    let told = asked(client, "ask", &sent).await;
    let no = json!({"answer": {"action": "decline"}});
    let over = result(&answer(client, "ask", &sent, Some(&told["requestState"]), &no).await);
    assert_eq!(
        (&said(&over)["state"], &over["isError"]),
        (&json!("cancelled"), &json!(true)),
        "{over}"
    );

    for (client, requests) in [
        (client, json!({"question": "Which?"})),
        (
            modern(web),
            json!({"question": "Which?", "schema": {"a": "string"}}),
        ),
        (
            modern(web),
            json!({"inputRequests": {"a": {"method": "elicitation/create", "params": {}}}}),
        ),
    ] {
        let sent = json!({"asks": [requests]}).to_string();
        let told = result(&client.calling("ask", &sent, "").send().await);
        assert!(
            texts(&told)[0].contains("Nothing has happened yet"),
            "{told}"
        );
        fleet.until_state(call_of(&told), "awaiting_client").await;
    }
    gateway.drain().await;
}
