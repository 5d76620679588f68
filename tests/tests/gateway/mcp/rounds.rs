//! Questions one behind the other: of a call that another client has made, of a task, and those that a client cannot be asked.

use serde_json::{Value, json};

use super::{
    error, legacy, modern,
    questions::{ALL, FORMS, answer, answering, asking_fleet, call_of},
    result, said,
    tasks::{takes_tasks, task_of},
    texts,
};

fn form(message: &str) -> Value {
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}})
}

fn accepted(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

#[tokio::test]
async fn who_is_attached_to_a_call_never_takes_it_back_for_what_it_lacks() {
    let (fleet, mut gateway, web) = asking_fleet().await;
    let model =
        json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 10}});
    let sent = json!({"asks": [{"inputRequests": {"who": form("Who?")}}, {"inputRequests": {"model": model}}]});
    let sent = sent.to_string();
    let key = r#""io.toolfleet/idempotency-key":"k-1""#;
    let (maker, second) = (modern(web).that_can(ALL), modern(web).that_can(FORMS));
    let made = result(&maker.calling("ask", &sent, key).send().await);
    let attached = result(&second.calling("ask", &sent, key).send().await);
    assert_eq!(call_of(&attached), call_of(&made));
    assert_eq!(said(&made)["replayed"], false, "{made}");
    assert_eq!(said(&attached)["replayed"], true, "{attached}");
    // The one that is attached answers, and the tool asks what it cannot be asked.
    let who = json!({"who": accepted("Ann")});
    let state = Some(&attached["requestState"]);
    let lacks = result(&answer(second, "ask", &sent, state, &who).await);
    assert_eq!(call_of(&lacks), call_of(&made));
    assert_eq!(said(&lacks)["replayed"], true, "{lacks}");
    let told = texts(&lacks);
    assert!(told[0].contains("Nothing has happened yet"), "{lacks}");
    assert!(
        told[1].contains("the capability sampling is missing"),
        "{lacks}"
    );
    let row = fleet.call(call_of(&made)).await;
    assert_eq!(row["state"], "awaiting_client", "{row}");
    // The one that made it answers what is left; then both are told what became of it.
    let asked = result(&maker.calling("ask", &sent, key).send().await);
    assert_eq!(asked["inputRequests"], json!({ "model": model }));
    let says = json!({"model": {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"}});
    let done = result(&answer(maker, "ask", &sent, Some(&asked["requestState"]), &says).await);
    assert_eq!(done["isError"], false, "{done}");
    let late = result(&answer(second, "ask", &sent, state, &who).await);
    assert_eq!(
        (&said(&late)["state"], &said(&late)["replayed"]),
        (&json!("succeeded"), &json!(true)),
        "{late}"
    );
    assert!(texts(&late)[1].contains("nothing was run again"), "{late}");

    // One that made its call and lacks what is asked behind its answer takes it back.
    let own = json!({"asks": [{"inputRequests": {"who": form("Who now?")}}, {"inputRequests": {"model": model}}]});
    let own = own.to_string();
    let asked = result(&second.calling("ask", &own, "").send().await);
    let lacks = answering(second, "ask", &own, Some(&asked["requestState"]), &who);
    let lacks = lacks.send().await;
    assert_eq!(error(&lacks), (400, -32_021), "{}", lacks.text());
    fleet.until_state(call_of(&asked), "cancelled").await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_model_with_tools_is_asked_of_who_declares_that_and_others_read_what_they_lack() {
    let (_fleet, mut gateway, web) = asking_fleet().await;
    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let model = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 10, "tools": tools}});
    let sent = json!({"asks": [{"inputRequests": {"model": model}}]}).to_string();
    let full = modern(web).that_can(r#"{"sampling":{"tools":{}}}"#);
    let asked = result(&full.calling("ask", &sent, "").send().await);
    assert_eq!(asked["inputRequests"], json!({ "model": model }));
    let plain = modern(web).that_can(ALL).calling("ask", &sent, "");
    let plain = plain.send().await;
    assert_eq!(error(&plain), (400, -32_021), "{}", plain.text());
    let told = &plain.json()["error"];
    assert_eq!(
        told["data"]["requiredCapabilities"],
        json!({"sampling": {"tools": {}}})
    );
    assert!(
        told["message"].as_str().unwrap().contains("sampling.tools"),
        "{told}"
    );
    // As a task, and in an older revision, it waits, and a text says what is missing.
    let params = format!(r#""name":"ask","arguments":{sent}"#);
    let client = takes_tasks(web);
    let made = client
        .request("tools/call", &params)
        .header("Mcp-Name", "ask");
    let task = task_of(&result(&made.send().await));
    let mut said_so = String::new();
    fleet_tests::wait::until_so("the task to say what is missing", async || {
        let task = client.get(&task).await;
        said_so = task["statusMessage"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        task["status"] == "working" && said_so.contains("sampling.tools")
    })
    .await;
    let old = result(&legacy(web).calling("ask", &sent, "").send().await);
    assert!(texts(&old)[1].contains("sampling.tools"), "{old}");
    gateway.drain().await;
}

#[tokio::test]
async fn an_old_answer_in_a_task_is_none_to_a_new_question_of_the_same_name() {
    let (_fleet, mut gateway, web) = asking_fleet().await;
    let client = takes_tasks(web);
    let make = async |asks: Value| {
        let arguments = json!({ "asks": asks });
        let params = format!(r#""name":"ask","arguments":{arguments}"#);
        let made = client
            .request("tools/call", &params)
            .header("Mcp-Name", "ask");
        task_of(&result(&made.send().await))
    };
    let names = |task: &Value| -> Vec<String> {
        let requests = task["inputRequests"].as_object().unwrap();
        requests.keys().cloned().collect()
    };
    // The same question twice, in two rounds.
    let once = json!({"inputRequests": {"who": form("Who?")}});
    let task = make(json!([once, once])).await;
    let first = names(&client.until(&task, "input_required").await);
    let ann = json!({ first[0].clone(): accepted("Ann") });
    assert_eq!(
        result(&client.update(&task, &ann).await)["resultType"],
        "complete"
    );
    let second = names(&client.until(&task, "input_required").await);
    assert_ne!(first, second);
    // The first answer comes once more, as of a client that has lost the word that it was taken; and one by the tool's own name.
    for late in [ann, json!({"who": accepted("Eve")})] {
        assert_eq!(
            result(&client.update(&task, &late).await)["resultType"],
            "complete"
        );
        assert_eq!(names(&client.get(&task).await), second);
    }
    let bob = json!({ second[0].clone(): accepted("Bob") });
    client.update(&task, &bob).await;
    let done = client.until(&task, "completed").await;
    let told = done["result"]["structuredContent"]["told"].clone();
    let as_told = |name: &str| json!({"inputResponses": {"who": accepted(name)}});
    assert_eq!(told, json!([as_told("Ann"), as_told("Bob")]), "{done}");

    // What is asked once more, for a part was answered, keeps its name.
    let both = json!({"inputRequests": {"a": form("A?"), "b": form("B?")}});
    let rest = json!({"inputRequests": {"b": form("B?")}});
    let task = make(json!([both, rest])).await;
    let asked = names(&client.until(&task, "input_required").await);
    let part = json!({ asked[0].clone(): accepted("x") });
    client.update(&task, &part).await;
    let left = names(&client.until(&task, "input_required").await);
    assert_eq!(left, asked[1..]);
    client
        .update(&task, &json!({ left[0].clone(): accepted("y") }))
        .await;
    client.until(&task, "completed").await;
    gateway.drain().await;
}

#[tokio::test]
async fn the_second_question_is_asked_as_soon_as_the_first() {
    let (_fleet, mut gateway, web) = asking_fleet().await;
    let client = modern(web).that_can(FORMS);
    let asks = ["One?", "Two?", "Three?"].map(|what| json!({"inputRequests": {"who": form(what)}}));
    let sent = json!({ "asks": asks }).to_string();
    let began = std::time::Instant::now();
    let mut told = result(&client.calling("ask", &sent, "").send().await);
    let who = json!({"who": accepted("Ann")});
    for _ in asks {
        assert_eq!(told["resultType"], "input_required", "{told}");
        told = result(&answer(client, "ask", &sent, Some(&told["requestState"]), &who).await);
    }
    assert_eq!(told["isError"], false, "{told}");
    // Each of two further questions took a glance of five seconds.
    assert!(began.elapsed().as_secs() < 8, "{:?}", began.elapsed());
    gateway.drain().await;
}
