//! Tools over HTTP and NATS, which get URLs.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use futures_util::StreamExt;
use serde_json::json;

use super::{keep, named};

const SERVICE: &str = "name: serve\nversion: 1\ndescription: Says what it got.\neffect: read\nfiles: {max: 2}\n\
                       input_schema: {type: object}\nexecutor: {nats: {subject: tools.serve}}\n";

#[tokio::test]
async fn a_service_gets_a_url_for_each_file_and_none_where_there_is_no_file() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([SERVICE.to_owned()]).workers(0, &[])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let own = format!("http://{}", web.address);
    fleet.add_worker(&["--gateway-url", &own]).await;
    let mut requests = fleet.client.subscribe("tools.serve").await.unwrap();
    fleet.client.flush().await.unwrap();
    let files = [
        keep(&fleet, "a.txt", "one").await,
        keep(&fleet, "b.txt", "two").await,
    ];
    for (key, files) in [("with", named(&files)), ("without", String::new())] {
        let mut call = fleet.submit("serve", &json!({})).key(key);
        if !files.is_empty() {
            call = call.header("Toolfleet-Files", &files);
        }
        let serving = async {
            let request = requests.next().await.unwrap();
            let headers = request.headers.unwrap();
            let ids = headers
                .get("Toolfleet-Files")
                .map(|ids| ids.as_str().to_owned());
            let urls = headers.get("Toolfleet-File-Urls");
            let urls = urls.map_or("", |urls| urls.as_str()).split(", ");
            let lines: Vec<String> = urls
                .filter(|url| !url.is_empty())
                .map(ToOwned::to_owned)
                .collect();
            // It tells what it must not: the answer does not have it.
            let said = json!({"urls": lines}).to_string();
            let reply = request.reply.unwrap();
            fleet.client.publish(reply, said.into()).await.unwrap();
            (ids.unwrap_or_default(), lines)
        };
        let (answer, (ids, lines)) = tokio::join!(call.wait(), serving);
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        assert_eq!(ids, files);
        assert_eq!(
            lines.len(),
            files.split(',').filter(|id| !id.is_empty()).count()
        );
        for (line, text) in lines.iter().zip(["one", "two"]) {
            let (_id, url) = line.split_once(' ').unwrap();
            let read = web.get(url.strip_prefix(&own).unwrap()).send().await;
            assert_eq!((read.status, read.text().as_str()), (200, text));
            let signature = url.rsplit('=').next().unwrap();
            assert!(
                !answer["result"].to_string().contains(signature),
                "{}",
                *answer
            );
        }
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_worker_that_knows_no_gateway_asks_no_tool_that_needs_urls() {
    let witness = Witness::start().await;
    let look = witness.tool("look", "once") + "files: {max: 1}\n";
    let fleet = Fleet::start(Spec::with([look])).await;
    let file = keep(&fleet, "a.txt", "one").await;
    let call = fleet.submit("look", &json!({"what": "a"})).key("a");
    let answer = call
        .header("Toolfleet-Files", &file.to_string())
        .wait()
        .await;
    assert_eq!(
        (answer["state"].as_str(), answer.code()),
        (Some("failed"), "tool_gone"),
        "{}",
        *answer
    );
    assert_eq!(answer["error"]["details"]["setting"], "WORKER_GATEWAY_URL");
    assert_eq!(witness.asked("a"), 0);
    // Without files it is asked as ever.
    let plain = fleet
        .submit("look", &json!({"what": "b"}))
        .key("b")
        .wait()
        .await;
    assert_eq!(plain["state"], "succeeded", "{}", *plain);
    assert_eq!(witness.asked("b"), 1);
    invariants::hold(&fleet, &witness).await;
}
