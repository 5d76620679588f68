//! People decide about calls that wait for a yes: shown first, then decided with the hash that was shown.

use serde_json::json;

use crate::{
    decisions::Where,
    support::{folder, ledger, nats, postgres, run},
};

const TOOL: &str = "name: charge_card\nversion: 1\ndescription: Charges the card of a customer.\neffect: once\nqueue: payments\n\
    input_schema: {type: object, properties: {amount: {type: integer}, memo: {type: string}, like: {}}, required: [amount]}\n\
    approval: {count: 2, when: [{pointer: /amount, op: gt, value: 100}], reason: Charges over 100 need the yes of two people., \
    preview: {tool: get_balance, args: {after: \"{{ args.amount }}\"}}}\n\
    executor: {process: {command: [sh, -c, \"cat > /dev/null; echo charged >> {charged}; echo '{\\\"done\\\": true}'\"]}}\n";

const BALANCE: &str = "name: get_balance\nversion: 1\ndescription: Says how much is left after a charge.\neffect: read\nqueue: payments\n\
    input_schema: {type: object, properties: {after: {type: integer}}, required: [after]}\n\
    executor: {process: {command: [sh, -c, \"cat > /dev/null; echo '{\\\"left\\\": 62.40}'\"]}}\n";

#[tokio::test]
async fn a_call_is_shown_before_it_is_decided_and_two_people_let_it_run_once() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let nats = nats(folder.path()).await;
    let here = Where {
        database: postgres.url(),
        nats: nats.url(),
    };
    fleet::store::migrate::migrate(&ledger(&here.database))
        .await
        .unwrap();
    let charged = folder.path().join("charged");
    let manifest = folder.path().join("charge_card.yaml");
    let tool = TOOL.replace("{charged}", charged.to_str().unwrap());
    std::fs::write(&manifest, tool).unwrap();
    let balance = folder.path().join("get_balance.yaml");
    std::fs::write(&balance, BALANCE).unwrap();
    let (manifest, balance) = (manifest.to_str().unwrap(), balance.to_str().unwrap());
    let applied = run(here.command(&["tools", "apply", manifest, balance]));
    assert_eq!(applied.code, 0, "{}", applied.err);
    let _dispatcher = here.dispatcher();
    let _worker = here.worker("worker-1", "payments", folder.path());
    let charges = || std::fs::read_to_string(&charged).unwrap_or_default();

    // A model wrote the number as a text, and hid something in the memo.
    let args = "{\"amount\": \"250\", \"memo\": \"rent\u{202e}\u{a0}\u{3000}\"}";
    let call = |key: &str| {
        let sent = [
            "call",
            "charge_card",
            "--args",
            args,
            "--key",
            key,
            "--json",
        ];
        let sent = run(here.command(&sent));
        assert_eq!(sent.code, 0, "{}{}", sent.out, sent.err);
        let accepted = sent.json();
        assert_eq!(accepted["awaiting"]["for"], "approval", "{accepted}");
        accepted["call_id"].as_str().unwrap().to_owned()
    };
    let id = call("a");
    assert_eq!(here.reason(&id)["reason"], "awaiting_approval");
    let list = ["list", "--state", "awaiting_client"];
    let listed = here.calls(0, &list).out;
    assert!(listed.contains(" awaiting_client (approval) "), "{listed}");
    let listed = here.calls(0, &[&list[..], &["--json"]].concat()).json();
    assert_eq!(listed[0]["awaiting"], "approval", "{listed}");
    let shown = here.calls(0, &["approve", &id]).out;
    for part in [
        "charge_card version 1, effect once",
        "Charges over 100 need the yes of two people.",
        "operator, 0 of 2 have said yes",
        "\"amount\": 250",
        "rent\\u202e\\u00a0\\u3000",
        "preview       get_balance, asked at ",
        "\"left\": 62.40",
        "corrections",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let hash = shown.split_once("--hash ").unwrap().1;
    let hash = hash.split_whitespace().next().unwrap();
    let waiting = here.calls(0, &["approve", &id, "--json"]).json();
    assert!(waiting["args_hash"].as_str().unwrap().starts_with(hash));
    assert_eq!(waiting["approvals_needed"], 2);
    let preview = &waiting["preview"];
    assert_eq!(
        preview["result"].to_string(),
        "{\"left\":62.40}",
        "{waiting}"
    );

    let decide = |code, verb, id: &str, hash: &str, who| {
        let note = "ordered by phone";
        let told = ["--hash", hash, "--note", note, "--as", who, "--json"];
        here.calls(code, &[&[verb, id], told.as_slice()].concat())
    };
    let one = decide(0, "approve", &id, hash, "ann");
    assert!(one.err.contains("1 of 2 have said yes: ann"), "{}", one.err);
    let one = one.json();
    assert_eq!(one["state"], "awaiting_client", "{one}");
    let same = decide(1, "approve", &id, hash, "Ann").json();
    assert_eq!(same["error"]["code"], "conflict", "{same}");
    let told = here.reason(&id);
    let because = told["because"].as_str().unwrap();
    assert!(because.contains("1 of 2 have said yes: ann"), "{because}");
    for wrong in ["0000", "00000000", &hash[..4]] {
        decide(2, "approve", &id, wrong, "bob");
    }
    assert_eq!(charges(), "");
    decide(0, "approve", &id, hash, "bob");
    let sent = [
        "call",
        "charge_card",
        "--args",
        args,
        "--key",
        "a",
        "--json",
    ];
    let got = loop {
        let got = run(here.command(&sent)).json();
        if got["outcome"].is_string() {
            break got;
        }
    };
    assert_eq!(got["result"], json!({"done": true}), "{got}");
    assert_eq!(charges(), "charged\n");
    let over = here.calls(1, &["approve", &id]);
    for part in [
        "ann (_INBOX",
        "said yes at",
        "bob (_INBOX",
        "ordered by phone",
        "it is succeeded",
        "calls explain",
    ] {
        assert!(over.err.contains(part), "{part}: {}", over.err);
    }
    let story = here.calls(0, &["show", &id]).out;
    for (who, why) in [("ann", "approved"), ("bob", "approved")] {
        let said = |line: &str| {
            line.contains(who) && line.contains(why) && line.contains("ordered by phone")
        };
        assert!(story.lines().any(said), "{who}: {story}");
    }

    // What stands behind a reference is shown as well.
    let like = format!("{{\"amount\": 200, \"like\": {{\"$result\": \"{id}\"}}}}");
    let sent = [
        "call",
        "charge_card",
        "--args",
        &like,
        "--key",
        "c",
        "--json",
    ];
    let other = run(here.command(&sent)).json();
    let other = other["call_id"].as_str().unwrap();
    let shown = here.calls(0, &["approve", other]).out;
    let line = format!("/like is {{\"done\":true}}, by call\n{:14}{id}", "");
    assert!(shown.contains(&line), "{shown}");

    // One no is enough.
    let id = call("b");
    decide(0, "approve", &id, hash, "ann");
    let no = decide(0, "deny", &id, hash, "cyd").json();
    assert_eq!(no["error"]["code"], "denied", "{no}");
    let told = here.reason(&id);
    assert_eq!(told["reason"], "denied", "{told}");
    let because = told["because"].as_str().unwrap();
    assert!(
        because.contains("cyd") && because.contains("ordered by phone"),
        "{because}"
    );
    assert_eq!(charges(), "charged\n");

    // Its preview is not asked any more, and who sees to that is told.
    let later = BALANCE.replace("version: 1", "version: 2") + "approval: {}\n";
    std::fs::write(balance, later).unwrap();
    let applied = run(here.command(&["tools", "apply", balance]));
    assert_eq!(applied.code, 0, "{}", applied.err);
    let told = "charge_card: the tool of its preview, get_balance, has an approval, and nobody would be asked";
    assert!(applied.err.contains(told), "{}", applied.err);
}
