//! Calls that name files: who may, what the door says, what the attempts get, and for how long a file is kept.

use fleet_tests::caller::Submission;

use super::*;

const FILES: &str = "files: {max: 2, mime: [\"text/*\", application/pdf], bytes: 1KiB}\n";

fn naming(submission: Submission, files: &[&str]) -> Submission {
    submission.header("Toolfleet-Files", &files.join(","))
}

fn call(fleet: &Fleet, tool: &str, files: &[&str]) -> Submission {
    naming(fleet.submit(tool, &json!({})), files)
}

fn ids(answer: &Value) -> Vec<&str> {
    let files = answer["result"]["files"].as_array().unwrap();
    let ids = files.iter().map(|file| file["file_id"].as_str().unwrap());
    ids.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_gets_the_files_of_its_call_in_their_order_and_every_attempt_gets_them() {
    let retry = "retry: {strategy: fixed, max_attempts: 3, base: 10ms}\n";
    let tools = [
        reader::tool("look", "read", &format!("{FILES}{retry}")),
        reader::tool("plain", "read", ""),
    ];
    let fleet = reader::fleet(tools).await;
    let (a, b) = (
        handed_in(&fleet, "text/plain", b"abc").await,
        handed_in(&fleet, "application/pdf", &[7; 1024]).await,
    );
    let done = call(&fleet, "look", &[&b, &a]).wait().await;
    assert_eq!(done["state"], "succeeded", "{}", *done);
    assert_eq!(ids(&done), [&b, &a]);
    let first = &done["result"]["files"][1];
    for (field, value) in [
        ("name", json!("a b.txt")),
        ("mime", json!("text/plain")),
        ("bytes", json!(3)),
        ("sha256", json!(hash(b"abc"))),
    ] {
        assert_eq!(first[field], value);
    }
    let row = fleet.call(done.call_id()).await;
    assert_eq!(row["files"], json!([b, a]));

    // The same tool without files, and one that knows of none.
    let none = fleet.submit("look", &json!({})).wait().await;
    assert_eq!(none["result"]["files"], json!([]));
    assert_eq!(fleet.call(none.call_id()).await["files"], json!(null));
    let plain = fleet.submit("plain", &json!({})).wait().await;
    assert_eq!(plain["result"]["files"], json!([]));

    let failing = naming(fleet.submit("look", &json!({"fails": 2})), &[&a]);
    let retried = failing.wait().await;
    assert_eq!(retried["result"]["attempt"], 3, "{}", *retried);
    assert_eq!(ids(&retried), [&a]);
    invariants::hold(&fleet, &Witness::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_door_refuses_files_that_a_tool_does_not_take_or_a_tenant_does_not_have() {
    let tools = [
        reader::tool("look", "read", FILES),
        reader::tool("plain", "read", ""),
    ];
    let fleet = reader::fleet(tools).await;
    let (text, image, large) = (
        handed_in(&fleet, "text/plain", b"abc").await,
        handed_in(&fleet, "image/png", b"abc").await,
        handed_in(&fleet, "text/plain", &[7; 1025]).await,
    );
    let more = handed_in(&fleet, "text/plain", b"abd").await;
    let open = begun(&fleet, 1).await;
    for (tool, files, told) in [
        ("plain", vec![text.as_str()], "invalid_arguments"),
        ("look", vec![&text, &more, &image], "invalid_arguments"),
        ("look", vec![&image], "invalid_arguments"),
        ("look", vec![&large], "invalid_arguments"),
        ("look", vec![&open], "not_found"),
        ("look", vec![&text, UNKNOWN], "not_found"),
        ("look", vec![&text, &text], "header_invalid"),
        ("look", vec!["../../etc/passwd"], "header_invalid"),
    ] {
        let refused = call(&fleet, tool, &files).key("k").wait().await;
        assert_eq!(refused.code(), told, "{tool} {files:?}: {}", *refused);
    }
    let why = call(&fleet, "plain", &[&text]).wait().await;
    let why = why["error"]["message"].as_str().unwrap().to_owned();
    assert!(why.starts_with("The tool plain takes no files"), "{why}");

    // Another tenant's id answers as one that never was.
    let foreign = |id: &str| call(&fleet, "look", &[id]).tenant("other").wait();
    let (theirs, none) = (foreign(&text).await, foreign(UNKNOWN).await);
    assert_eq!(theirs.code(), "not_found");
    assert_eq!(theirs.to_string().replace(&text, UNKNOWN), none.to_string());
    // Nothing was stored, the key is free, and a good call can take it.
    assert_eq!(fleet.calls().await, []);
    let good = call(&fleet, "look", &[&text]).key("k").wait().await;
    assert_eq!(good["state"], "succeeded", "{}", *good);

    // What the door would say of them, and by which hash it would know them.
    let check = async |tool: &str, files: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("Toolfleet-Files", files);
        let question = Question {
            headers,
            ..Question::new(format!("toolfleet.v1.default.check.{tool}"), "{}")
        };
        let answer = fleet.caller.ask(question).await.unwrap();
        answer.read::<Value>().unwrap()
    };
    let fits = check("look", &text).await;
    assert_eq!(fits["verdict"], "accepted", "{fits}");
    let plain = fleet
        .ask("toolfleet.v1.default.check.look", &json!({}))
        .await;
    assert_ne!(fits["args_hash"], plain["args_hash"]);
    let unfit = check("plain", &text).await;
    assert_eq!(
        (&unfit["verdict"], &unfit["error"]["code"]),
        (&json!("refused"), &json!("invalid_arguments"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_names_a_call_with_its_files_and_calls_without_files_keep_their_hash() {
    let tools = [
        reader::tool("look", "read", FILES),
        reader::tool("same", "read", &format!("{FILES}key: from_arguments\n")),
    ];
    let fleet = reader::fleet(tools).await;
    let (a, b) = (
        handed_in(&fleet, "text/plain", b"abc").await,
        handed_in(&fleet, "text/plain", b"abd").await,
    );
    let first = call(&fleet, "look", &[&a, &b]).key("k").wait().await;
    let again = call(&fleet, "look", &[&a, &b]).key("k").wait().await;
    assert_eq!(again.first_bytes(), String::from_utf8_lossy(&first.bytes));
    // Written in another way, they are the same arguments.
    let spaced = naming(fleet.submit_bytes("look", "{ }"), &[&a, &b]);
    assert_eq!(spaced.key("k").wait().await["replayed"], true);
    for other in [vec![b.as_str(), &a], vec![&a]] {
        let reused = call(&fleet, "look", &other).key("k").wait().await;
        assert_eq!(reused.code(), "idempotency_key_reused", "{}", *reused);
    }
    let reused = fleet.submit("look", &json!({})).key("k").wait().await;
    assert_eq!(reused.code(), "idempotency_key_reused");

    // Once its files are gone the key still names the call.
    for file in [&a, &b] {
        let deleted = asked(&fleet, json!({"op": "delete", "file_id": file})).await;
        assert_eq!(deleted["state"], "deleted", "{deleted}");
    }
    let later = call(&fleet, "look", &[&a, &b]).key("k").wait().await;
    assert_eq!(later["call_id"], first["call_id"], "{}", *later);
    let fresh = call(&fleet, "look", &[&a, &b]).key("other").wait().await;
    assert_eq!(fresh.code(), "not_found");

    // Keys that are derived from arguments have the files in them.
    let c = handed_in(&fleet, "text/plain", b"abe").await;
    let with = call(&fleet, "same", &[&c]).wait().await;
    let without = fleet.submit("same", &json!({})).wait().await;
    assert_ne!(with["call_id"], without["call_id"]);
    let again = call(&fleet, "same", &[&c]).wait().await;
    assert_eq!(again["call_id"], with["call_id"]);

    // SHA-256 of {}, as it was before there were files.
    let plain = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    let of_plain =
        "SELECT encode(args_hash, 'hex') AS hash FROM toolfleet.finished_calls WHERE call_id = $1";
    assert_eq!(
        fleet.rows(of_plain, without.call_id()).await[0]["hash"],
        plain
    );
    assert_ne!(fleet.rows(of_plain, with.call_id()).await[0]["hash"], plain);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_a_batch_name_files_of_their_own() {
    let fleet = reader::fleet([reader::tool("look", "read", FILES)]).await;
    let (a, b) = (
        handed_in(&fleet, "text/plain", b"abc").await,
        handed_in(&fleet, "text/plain", b"abd").await,
    );
    let item = |files: Value, key: &str| json!({"tool": "look", "args": {}, "idempotency_key": key, "files": files});
    let batch = json!({"calls": [
        item(json!([a]), "1"), item(json!([b, a]), "2"), item(json!([UNKNOWN]), "3"), item(json!(a), "4"), item(json!([]), "5"),
        item(json!([a, 7]), "6"), item(json!(null), "7"),
    ]});
    let answer = fleet.ask("toolfleet.v1.default.batch", &batch).await;
    let answered = answer["items"].as_array().unwrap();
    let codes: Vec<_> = answered.iter().map(code).collect();
    let expected = [
        "",
        "",
        "not_found",
        "header_invalid",
        "header_invalid",
        "header_invalid",
        "",
    ];
    assert_eq!(codes, expected, "{answer:?}");
    assert_eq!(answered[3]["error"]["path"], "/calls/3/files");
    for (n, files) in [(0, json!([a])), (1, json!([b, a])), (6, json!(null))] {
        let call = answered[n]["call_id"].as_str().unwrap().parse().unwrap();
        let row = fleet.until_state(call, "succeeded").await;
        assert_eq!(row["files"], files);
    }
    let again = fleet.ask("toolfleet.v1.default.batch", &batch).await;
    assert_eq!(again["items"][1]["call_id"], answered[1]["call_id"]);
    assert_eq!(again["items"][1]["replayed"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_kept_while_a_call_that_names_it_is_open_and_goes_after_that() {
    let mut fleet = Fleet::start(
        Spec::with([reader::tool("look", "read", FILES)])
            .workers(0, &[])
            .roles(),
    )
    .await;
    let file = handed_in(&fleet, "text/plain", b"abc").await;
    let other = handed_in(&fleet, "text/plain", b"abd").await;
    let waiting = call(&fleet, "look", &[&file]).asynchronous().await;
    let refused = asked(&fleet, json!({"op": "delete", "file_id": file})).await;
    assert_eq!(code(&refused), "conflict", "{refused}");
    let expire = "UPDATE toolfleet.kept_files SET expires_at = now() - interval '1 second'";
    assert_eq!(fleet.sql(expire).await, 2);
    until_so("the sweep to delete the other one", async || {
        fleet.count("SELECT count(*) FROM toolfleet.files").await == 1
    })
    .await;
    let gone = asked(&fleet, json!({"op": "describe", "file_id": other})).await;
    assert_eq!(code(&gone), "not_found");
    let kept = asked(&fleet, json!({"op": "describe", "file_id": file})).await;
    assert_eq!(kept["state"], "ready", "{kept}");
    let late = call(&fleet, "look", &[&file]).wait().await;
    assert_eq!(late.code(), "not_found", "{}", *late);

    fleet.add_worker_with(reader::builder(), &[]).await;
    let row = fleet.until_state(waiting.call_id(), "succeeded").await;
    assert_eq!(row["result"]["files"][0]["sha256"], hash(b"abc"));
    until_so("the sweep to delete it", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.file_chunks")
            .await
            == 0
    })
    .await;
    assert_eq!(fleet.call(waiting.call_id()).await["files"], json!([file]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_stands_in_gets_the_files_if_it_takes_them_and_else_is_not_asked() {
    let fallback = |name: &str| {
        format!(
            "{FILES}retry: {{strategy: none}}\nfallback: {{tool: {{name: {name}, args: {{}}}}}}\n"
        )
    };
    let tools = [
        reader::tool("takes", "read", FILES),
        reader::tool("plain", "read", ""),
        reader::tool("first", "read", &fallback("takes")),
        reader::tool("second", "read", &fallback("plain")),
    ];
    let fleet = reader::fleet(tools).await;
    let file = handed_in(&fleet, "text/plain", b"abc").await;
    let failing = |tool: &str| naming(fleet.submit(tool, &json!({"fails": 9})), &[&file]);
    let stood_in = failing("first").wait().await;
    assert_eq!(stood_in["outcome"], "fallback", "{}", *stood_in);
    assert_eq!(stood_in["result"]["tool"], "takes");
    assert_eq!(ids(&stood_in), [&file]);
    let failed = failing("second").wait().await;
    assert_eq!(failed["outcome"], "system_error", "{}", *failed);
    let without = fleet.submit("second", &json!({"fails": 9})).wait().await;
    assert_eq!(without["result"]["tool"], "plain", "{}", *without);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_calls_with_other_files_are_not_answered_by_each_other() {
    let cached = format!("{FILES}cache: {{ttl: 1h}}\n");
    let fleet = reader::fleet([reader::tool("look", "read", &cached)]).await;
    let (a, b) = (
        handed_in(&fleet, "text/plain", b"abc").await,
        handed_in(&fleet, "text/plain", b"abd").await,
    );
    let first = call(&fleet, "look", &[&a]).wait().await;
    let equal = call(&fleet, "look", &[&a]).wait().await;
    let other = call(&fleet, "look", &[&b]).wait().await;
    let none = fleet.submit("look", &json!({})).wait().await;
    let sources = [&first, &equal, &other, &none].map(|answer| answer["source"].clone());
    assert_eq!(sources, ["live", "cache", "live", "live"]);
    assert_eq!(ids(&equal), [&a]);
    assert_eq!(ids(&other), [&b]);
}
