//! NATS services, which publish what they tell.

use async_nats::{Client, HeaderMap, Subscriber};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{followed, parts_of, reports};

const TOOL: &str = "name: serve\nversion: 1\ndescription: Tells while it works.\neffect: read\n\
                    input_schema: {type: object}\nexecutor: {nats: {subject: tools.serve}}\n";

/// Tells these parts as this attempt.
async fn tell(client: &Client, subject: &str, attempt: Option<&str>, part: &str) {
    let mut headers = HeaderMap::new();
    if let Some(attempt) = attempt {
        headers.insert("toolfleet-attempt-id", attempt);
    }
    let part = part.to_owned().into();
    let telling = client.publish_with_headers(subject.to_owned(), headers, part);
    telling.await.unwrap();
}

/// Answers each request with whether it may tell, after it has told.
async fn serve(client: Client, mut requests: Subscriber) {
    while let Some(request) = requests.next().await {
        let headers = request.headers.unwrap();
        let header = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
        let subject = header("Toolfleet-Events");
        if let Some(subject) = &subject {
            let call = header("Toolfleet-Call-Id").unwrap();
            assert_eq!(*subject, format!("toolfleet.tool.event.{call}"));
            let attempt = header("Toolfleet-Attempt-Id");
            let attempt = attempt.as_deref();
            tell(&client, subject, attempt, r#"{"text":"once "}"#).await;
            tell(&client, subject, None, r#"{"text":"of nobody"}"#).await;
            let other = Some("0193a5c4-8f2e-7c1a-9b3d-2f4e6a8c0d1e");
            tell(&client, subject, other, r#"{"text":"of another"}"#).await;
            tell(&client, subject, attempt, "nonsense").await;
            tell(
                &client,
                subject,
                attempt,
                r#"{"progress":{"message":"on"}}"#,
            )
            .await;
            tell(&client, subject, attempt, r#"{"text":"upon"}"#).await;
            for number in 0..20 {
                let part = json!({"value": number}).to_string();
                tell(&client, subject, attempt, &part).await;
            }
        }
        let answer = json!(subject.is_some()).to_string();
        client
            .publish(request.reply.unwrap(), answer.into())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_service_tells_parts_of_the_attempt_that_asked_it_and_of_no_other() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([TOOL.to_owned()])).await;
    let client = fleet.client.clone();
    let requests = client.subscribe("tools.serve").await.unwrap();
    client.flush().await.unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(serve(client, requests));
    let (answer, told) = followed(&fleet, "serve", &json!({})).await;
    assert_eq!(answer["result"], json!(true), "{}", *answer);
    let mut expected = vec![json!({"text": "once upon"})];
    expected.extend((0..20).map(|number| json!({"value": number})));
    assert_eq!(parts_of(&told, 1), expected);
    assert_eq!(reports(&told), [json!([null, "on"])]);
    let silent = fleet.submit("serve", &json!({})).wait().await;
    assert_eq!(silent["result"], Value::Bool(false), "{}", *silent);
    invariants::hold(&fleet, &witness).await;
}
