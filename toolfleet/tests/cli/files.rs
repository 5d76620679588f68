//! Files from the command line: handed in, listed, got back, named in a call and in the call that is made instead, and deleted.

use std::fs;

use fleet::store::migrate::migrate;
use serde_json::{Value, json};

use crate::{
    decisions::Where,
    support::{folder, ledger, nats, postgres, run},
};

const READER: &str = "name: reader\nversion: 1\ndescription: Reads files on the caller's own machine.\neffect: read\n\
    input_schema: {type: object}\nfiles: {mime: [text/plain]}\nexecutor: {client: {presents: function_call}}\n";

#[tokio::test]
async fn a_file_is_handed_in_named_got_back_and_deleted() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let nats = nats(folder.path()).await;
    let here = Where {
        database: postgres.url(),
        nats: nats.url(),
    };
    migrate(&ledger(&here.database)).await.unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("reader.yaml"), READER).unwrap();
    let applied = run(here.command(&["tools", "apply", &path("reader.yaml")]));
    assert_eq!(applied.code, 0, "{}", applied.err);
    let dispatcher = here.dispatcher();

    let bytes: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(path("a.txt"), &bytes).unwrap();
    let put = run(here.command(&["files", "put", &path("a.txt"), "--json"]));
    assert_eq!(put.code, 0, "{}", put.err);
    let file = put.json();
    assert_eq!(
        [&file["state"], &file["name"], &file["mime"], &file["bytes"]],
        [
            &json!("ready"),
            &json!("a.txt"),
            &json!("text/plain"),
            &json!(700_000)
        ]
    );
    let id = file["file_id"].as_str().unwrap();
    let listed = run(here.command(&["files", "list"]));
    assert!(
        listed.out.contains(id) && listed.out.contains("a.txt"),
        "{}",
        listed.out
    );
    let listed = run(here.command(&["files", "list", "--json"])).json();
    assert_eq!(listed, json!({"files": [file], "more": false}));
    let others = run(here.command(&["files", "list", "--tenant", "other", "--json"])).json();
    assert_eq!(others["files"], json!([]));

    let got = run(here.command(&["files", "get", id, "--out", &path("b.txt")]));
    assert_eq!(got.code, 0, "{}", got.err);
    assert!(fs::read(path("b.txt")).unwrap() == bytes);
    let over = run(here.command(&["files", "get", id, "--out", &path("b.txt")]));
    assert_eq!(over.code, 1, "nothing is written over");
    fs::write(path("empty"), "").unwrap();
    let empty = run(here.command(&["files", "put", &path("empty")]));
    assert_eq!(empty.code, 1);
    assert!(empty.err.contains("1 to 33554432 bytes"), "{}", empty.err);
    let named = ["--name", "../x"];
    let wrong = run(here.command(&[&["files", "put", &path("a.txt")], &named[..]].concat()));
    assert_eq!(wrong.code, 2, "{}", wrong.err);

    // Both in one call, those that are there already first.
    fs::write(path("c.txt"), "c").unwrap();
    let call = [
        "call",
        "reader",
        "--file",
        &path("c.txt"),
        "--file-id",
        id,
        "--json",
    ];
    let called = run(here.command(&call)).json();
    assert_eq!(called["state"], "awaiting_client", "{called}");
    let call = called["call_id"].as_str().unwrap();
    let row =
        |call: &str| -> Value { here.calls(0, &["show", call, "--json"]).json()["call"].clone() };
    let files = row(call)["files"].clone();
    assert_eq!(
        (files.as_array().unwrap().len(), &files[0]),
        (2, &json!(id))
    );
    let shown = here.calls(0, &["show", call]);
    assert!(shown.out.contains(id), "{}", shown.out);
    let kept = run(here.command(&["files", "delete", id]));
    assert_eq!(kept.code, 1, "{}", kept.out);
    assert!(kept.out.contains("conflict"), "{}", kept.out);

    // A call that is over is made again with its files.
    here.calls(0, &["cancel", call]);
    let again = here.calls(0, &["retry", call, "--async", "--json"]).json();
    let again = again["call_id"].as_str().unwrap();
    assert_ne!(again, call);
    assert_eq!(row(again)["files"], files);
    here.calls(0, &["cancel", again]);
    let deleted = run(here.command(&["files", "delete", id, "--json"]));
    assert_eq!(deleted.json(), json!({"file_id": id, "state": "deleted"}));
    let gone = run(here.command(&["files", "get", id, "--out", &path("d.txt")]));
    assert_eq!(gone.code, 1);
    assert!(gone.err.contains("There is no such file"), "{}", gone.err);
    drop(dispatcher);
}
