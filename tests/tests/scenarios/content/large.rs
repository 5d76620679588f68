//! Large blocks of answers: they become files of the tenant, and the answers have links to them.

use fleet::ids::FileId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const CONTENT: &str = "output: content\noutput_limit: 8MiB\n";

fn image() -> String {
    "aGkA".repeat(250_000)
}

fn answer() -> Value {
    json!({
        "content": [
            {"type": "text", "text": "a map"},
            {"type": "image", "data": image(), "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///data/late.csv", "text": "1,2\n".repeat(100_000), "mimeType": "text/csv"}},
        ],
        "structured": {"late": 7},
    })
}

fn file_of(link: &Value) -> FileId {
    assert_eq!(link["type"], "resource_link", "{link}");
    let uri = link["uri"].as_str().unwrap();
    uri.strip_prefix("toolfleet://file/")
        .unwrap()
        .parse()
        .unwrap()
}

/// All bytes of a file, as any client reads them.
async fn read(fleet: &Fleet, file: FileId) -> Vec<u8> {
    let tenant = "default".parse().unwrap();
    let mut bytes = Vec::new();
    loop {
        let part = fleet.caller.read_file(&tenant, file, bytes.len() as u64);
        let part = part.await.unwrap();
        let headers = part.headers().unwrap();
        let all = headers.get("Toolfleet-File-Bytes").unwrap().to_string();
        bytes.extend_from_slice(part.bytes());
        if bytes.len().to_string() == all {
            return bytes;
        }
    }
}

async fn files(fleet: &Fleet) -> i64 {
    let counting = sqlx::query_scalar("SELECT count(*) FROM toolfleet.files");
    counting.fetch_one(&fleet.database.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_blocks_are_files_of_the_tenant_and_a_repetition_says_the_same() {
    let witness = Witness::start().await;
    let once = witness.tool("charge", "once") + CONTENT;
    let drawn = witness.tool("draw", "read") + CONTENT + "presents: image_generation_call\n";
    let last = witness.tool("say", "read") + CONTENT + "final: true\n";
    let secret = witness.tool("tell", "read")
        + CONTENT
        + "sensitive: {pointers: [/content/*/text], mode: omit}\n";
    let checked = witness.tool("look", "read")
        + CONTENT
        + "output_schema: {type: object, properties: {late: {type: string}}}\n";
    let fleet = Fleet::start(Spec::with([once, drawn, last, secret, checked]).roles()).await;
    witness.always("it", Reply::Body(answer().to_string()));
    let asked = json!({"what": "it"});

    let first = fleet.submit("charge", &asked).key("k").wait().await;
    assert_eq!(first["state"], "succeeded", "{}", *first);
    let result = &first["result"];
    assert_eq!(result["content"][0], answer()["content"][0]);
    assert_eq!(result["structured"], json!({"late": 7}));
    let (image_link, table) = (&result["content"][1], &result["content"][2]);
    assert_eq!(
        (
            &image_link["name"],
            &image_link["mimeType"],
            &image_link["size"]
        ),
        (&json!("image-2.png"), &json!("image/png"), &json!(750_000))
    );
    assert_eq!(
        (&table["name"], &table["_meta"]["io.toolfleet/uri"]),
        (&json!("late.csv"), &json!("file:///data/late.csv"))
    );
    assert_eq!(
        read(&fleet, file_of(image_link)).await,
        b"hi\0".repeat(250_000)
    );
    assert_eq!(read(&fleet, file_of(table)).await, b"1,2\n".repeat(100_000));
    let again = fleet.submit("charge", &asked).key("k").wait().await;
    assert_eq!(again["result"], *result);
    assert_eq!(files(&fleet).await, 2);
    let lives: bool = sqlx::query_scalar(
        "SELECT bool_and(expires_at > now() + interval '23 hours') FROM toolfleet.files",
    )
    .fetch_one(&fleet.database.pool)
    .await
    .unwrap();
    assert!(lives);

    // The item of an image has no place for a link.
    let drawn = fleet.submit("draw", &asked).wait().await;
    assert_eq!(drawn["result"]["content"][1], answer()["content"][1]);
    assert_eq!(drawn["result"]["content"][2]["type"], "resource_link");
    // Nor has a message.
    let long = json!({"content": [{"type": "text", "text": "y".repeat(300_000)}]});
    witness.always("long", Reply::Body(long.to_string()));
    let said = fleet.submit("say", &json!({"what": "long"})).wait().await;
    assert_eq!(said["result"], long);
    // What is sensitive is in no file, whatever the table has of it.
    let told = fleet.submit("tell", &json!({"what": "long"})).wait().await;
    assert_eq!(told["result"], long);
    let kept = "SELECT result::text FROM toolfleet.calls WHERE tool = 'tell'";
    let kept: String = sqlx::query_scalar(kept)
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    assert!(!kept.contains("yyy"), "{kept:.200}");
    // Nothing is kept of an answer that does not fit.
    let before = files(&fleet).await;
    assert_eq!(before, 3, "two of the first, and a table of the second");
    let unfit = fleet.submit("look", &asked).wait().await;
    assert_eq!(unfit["error"]["code"], "output_invalid", "{}", *unfit);
    assert_eq!(files(&fleet).await, before);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_tenant_may_keep_no_more_the_answer_stays_whole() {
    let witness = Witness::start().await;
    let look = witness.tool("look", "read") + CONTENT;
    // The image alone would have room.
    let flags = ["--tenant-file-bytes", "1000000"];
    let fleet = Fleet::start(Spec::with([look]).workers(1, &flags)).await;
    witness.always("it", Reply::Body(answer().to_string()));
    let told = fleet.submit("look", &json!({"what": "it"})).wait().await;
    assert_eq!(told["state"], "succeeded", "{}", *told);
    assert_eq!(told["result"], answer());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_blocks_that_are_handed_in_are_files_too_and_the_same_again_is_the_same() {
    let tool = "name: look\nversion: 1\ndescription: Looks something up.\neffect: read\noutput: content\noutput_limit: 8MiB\n\
                input_schema: {type: object}\nexecutor: {client: {}}\n";
    let fleet = Fleet::start(Spec::with([tool.to_owned()]).workers(0, &[]).roles()).await;
    let waiting = fleet.submit("look", &json!({})).wait().await;
    let hands_in = async |result: Value| {
        let body = json!({
            "call_id": waiting["call_id"], "token": waiting["awaiting"]["token"], "result": result,
        });
        fleet.ask("toolfleet.v1.default.output", &body).await
    };
    let done = hands_in(answer()).await;
    assert_eq!(done["state"], "succeeded", "{}", *done);
    let image = file_of(&done["result"]["content"][1]);
    assert_eq!(read(&fleet, image).await.len(), 750_000);
    let again = hands_in(answer()).await;
    assert_eq!(again["result"], done["result"], "{}", *again);
    let other = hands_in(json!({"content": []})).await;
    assert_eq!(other["error"]["code"], "conflict", "{}", *other);
    assert_eq!(files(&fleet).await, 2);
}
