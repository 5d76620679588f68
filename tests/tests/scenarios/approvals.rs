//! Calls that wait for somebody's yes: nothing of them runs before it, and one yes makes one run.

mod bad_input;
mod lost_writes;
mod paused;
mod preview;

use fleet::{
    ids::CallId,
    store::controls::{self, ControlKind, ControlScope, NewControl, Unset, WhichControl},
};
use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const BY_OPERATOR: &str = "toolfleet.v1.default.admin.approve";
const BY_CALLER: &str = "toolfleet.v1.default.approve";

/// A tool of the witness some of whose calls need a yes.
fn guarded(witness: &Witness, name: &str, effect: &str, approval: &str) -> String {
    format!("{}\napproval: {approval}\n", witness.tool(name, effect))
}

/// What waits for a yes, as its caller is told.
#[derive(Debug, Clone)]
struct Waiting {
    call: CallId,
    hash: String,
    token: Option<String>,
}

impl Waiting {
    fn of(answer: &Answer) -> Self {
        let awaiting = &answer["awaiting"];
        assert_eq!(awaiting["for"], "approval", "{}", **answer);
        Self {
            call: answer.call_id(),
            hash: awaiting["args_hash"].as_str().unwrap().to_owned(),
            token: awaiting["token"].as_str().map(str::to_owned),
        }
    }

    fn body(&self, decision: &str, actor: &str) -> Value {
        let mut body = json!({
            "call_id": self.call, "decision": decision, "args_hash": self.hash, "actor": actor, "note": "looked at it"});
        if let Some(token) = &self.token {
            body["token"] = json!(token);
        }
        body
    }

    async fn says(&self, fleet: &Fleet, decision: &str, actor: &str) -> Answer {
        let subject = match &self.token {
            Some(_) => BY_CALLER,
            None => BY_OPERATOR,
        };
        fleet.ask(subject, &self.body(decision, actor)).await
    }
}

fn submission(fleet: &Fleet, tool: &str, what: &str) -> Submission {
    fleet.submit(tool, &json!({"what": what})).key(what)
}

async fn waiting(fleet: &Fleet, tool: &str, what: &str) -> Waiting {
    Waiting::of(&submission(fleet, tool, what).wait().await)
}

async fn reasons(fleet: &Fleet, call: CallId) -> Vec<String> {
    let events = fleet.events(call).await;
    let reason = |event: &Value| event["reason"].as_str().unwrap().to_owned();
    events.iter().map(reason).collect()
}

#[tokio::test]
async fn nothing_runs_before_the_yes_and_one_run_follows_it() {
    let witness = Witness::start().await;
    let approval =
        "{when: [{pointer: /what, op: ne, value: small}], reason: Large ones need a yes.}";
    let tools = [guarded(&witness, "charge", "once", approval)];
    let fleet = Fleet::start(Spec::with(tools).dispatchers(2)).await;
    let small = submission(&fleet, "charge", "small").wait().await;
    assert_eq!(small["state"], "succeeded", "{}", *small);

    for prefer in ["respond-async", "wait=30"] {
        let call = submission(&fleet, "charge", prefer).header("Prefer", prefer);
        let accepted = call.clone().wait().await;
        let waits = Waiting::of(&accepted);
        let awaiting = &accepted["awaiting"];
        assert_eq!(accepted["state"], "awaiting_client");
        assert_eq!(awaiting["by"], "operator", "{awaiting}");
        assert_eq!(awaiting["reason"], "Large ones need a yes.", "{awaiting}");
        assert_eq!(awaiting.get("token"), None, "operators have no token");
        // Asking twice does not ask a person twice.
        let again = call.clone().wait().await;
        assert_eq!(again["replayed"], true);
        assert_eq!(again["awaiting"], *awaiting);
        let row = "SELECT awaiting, approvals, approvals_needed, approval_by, args_hash FROM toolfleet.waiting WHERE call_id = $1";
        let row = fleet.rows(row, waits.call).await.remove(0);
        assert_eq!(
            row,
            json!({"awaiting": "approval", "approvals": 0, "approvals_needed": 1, "approval_by": "operator",
                   "args_hash": waits.hash})
        );
        assert_eq!(witness.asked(prefer), 0, "nobody has said yes");

        let long = json!({"call_id": waits.call, "wait_ms": 60_000});
        let (got, said) = tokio::join!(fleet.get(&long), waits.says(&fleet, "approve", "ann"));
        assert_eq!(said["call_id"], json!(waits.call), "{}", *said);
        assert_eq!(got["state"], "succeeded", "{}", *got);
        assert_eq!(got["source"], "live");
        let late = waits.says(&fleet, "deny", "bob").await;
        assert_eq!(late.code(), "conflict", "{}", *late);
        assert_eq!(late["error"]["details"]["state"], "succeeded");
        assert_eq!(witness.applied(prefer), 1);
        assert_eq!(
            reasons(&fleet, waits.call).await,
            ["accepted", "approved", "claimed", "applied"]
        );
        let decided =
            "SELECT decision, actor, note, args_hash FROM toolfleet.approvals WHERE call_id = $1";
        let decided = fleet.rows(decided, waits.call).await;
        assert_eq!(decided.len(), 1);
        assert_eq!(
            (&decided[0]["decision"], &decided[0]["args_hash"]),
            (&json!("approve"), &json!(waits.hash))
        );
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_no_is_an_answer_for_the_model_and_stays_one() {
    let witness = Witness::start().await;
    for (effect, known) in [
        ("read", "none"),
        ("idempotent", "not_applied"),
        ("once", "not_applied"),
    ] {
        let fleet = Fleet::start(Spec::with([guarded(&witness, "charge", effect, "{}")])).await;
        let call = submission(&fleet, "charge", effect);
        let waits = Waiting::of(&call.clone().wait().await);
        let told = waits.says(&fleet, "deny", "ann").await;
        for (field, value) in [
            ("state", "failed"),
            ("outcome", "business_error"),
            ("source", "error"),
            ("effect", known),
        ] {
            assert_eq!(told[field], value, "{}", *told);
        }
        assert_eq!(told.code(), "denied");
        assert_eq!(told["error"]["suggestion"], "do_not_repeat");
        let replay = call.wait().await;
        assert_eq!(replay.first_bytes().as_bytes(), told.bytes);
        let after = waits.says(&fleet, "approve", "bob").await;
        assert_eq!(after.code(), "conflict", "{}", *after);
        assert_eq!(witness.asked(effect), 0);
        assert_eq!(reasons(&fleet, waits.call).await, ["accepted", "denied"]);
        invariants::hold(&fleet, &witness).await;
    }
}

#[tokio::test]
async fn what_nobody_decides_about_expires_and_was_not_done() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([guarded(
        &witness,
        "charge",
        "once",
        "{expires: 1s}",
    )]))
    .await;
    let waits = waiting(&fleet, "charge", "a").await;
    let long = json!({"call_id": waits.call, "wait_ms": 60_000});
    let told = fleet.get(&long).await;
    assert_eq!(told["state"], "expired", "{}", *told);
    assert_eq!(told["effect"], "not_applied");
    let late = waits.says(&fleet, "approve", "ann").await;
    assert_eq!(late.code(), "conflict", "{}", *late);
    assert_eq!(witness.asked("a"), 0);
    assert_eq!(reasons(&fleet, waits.call).await, ["accepted", "undecided"]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_is_taken_back_while_it_waits() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([guarded(&witness, "charge", "once", "{}")])).await;
    let waits = waiting(&fleet, "charge", "a").await;
    let cancel = json!({"call_id": waits.call});
    let told = fleet.ask("toolfleet.v1.default.cancel", &cancel).await;
    assert_eq!(told["result"], "cancelled", "{}", *told);
    let late = waits.says(&fleet, "approve", "ann").await;
    assert_eq!(late.code(), "conflict", "{}", *late);
    assert_eq!(fleet.call(waits.call).await["effect_known"], "not_applied");
    assert_eq!(witness.asked("a"), 0);
    invariants::hold(&fleet, &witness).await;
}

/// The newest version says what needs a yes: an old one is no way around it.
#[tokio::test]
async fn a_caller_cannot_get_around_it_by_an_old_version() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let guarded = guarded(&witness, "charge", "once", "{}");
    fleet
        .apply(&guarded.replace("version: 1", "version: 2"))
        .await;
    until_so("the new version", async || {
        let probe = fleet.submit("charge", &json!({"what": "x"}));
        let probe = probe.key(&CallId::generate().to_string());
        probe.wait().await["state"] == "awaiting_client"
    })
    .await;
    let old = submission(&fleet, "charge", "old").header("Toolfleet-Tool-Version", "1");
    Waiting::of(&old.wait().await);
    assert_eq!(witness.asked("old"), 0);
}

#[tokio::test]
async fn the_caller_decides_with_the_token_where_its_tool_says_so() {
    let witness = Witness::start().await;
    let tools = [
        guarded(&witness, "charge", "once", "{by: caller}"),
        guarded(&witness, "other", "once", "{}"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let waits = waiting(&fleet, "charge", "a").await;
    let told = waits.says(&fleet, "approve", "ann").await;
    assert_eq!(told["call_id"], json!(waits.call), "{}", *told);
    fleet.until_state(waits.call, "succeeded").await;
    // Whoever had its token learns what became of it.
    let again = waits.says(&fleet, "approve", "ann").await;
    assert_eq!(again.code(), "conflict", "{}", *again);
    let decided = "SELECT actor FROM toolfleet.approvals WHERE call_id = $1";
    assert_eq!(
        fleet.rows(decided, waits.call).await[0]["actor"],
        "ann (caller)"
    );

    // An operator may as well.
    let waits = waiting(&fleet, "charge", "b").await;
    let by_operator = Waiting {
        token: None,
        ..waits.clone()
    };
    let told = by_operator.says(&fleet, "deny", "ann").await;
    assert_eq!(told.code(), "denied", "{}", *told);

    // A token of another call, or made up, is as if the call were not there; so is one for a call that operators decide.
    let unknown = Waiting {
        call: CallId::generate(),
        ..waits.clone()
    };
    let unknown = unknown.says(&fleet, "approve", "eve").await;
    assert_eq!(unknown.code(), "not_found");
    let open = waiting(&fleet, "charge", "c").await;
    let of_operators = waiting(&fleet, "other", "d").await;
    let token = open.token.clone().unwrap();
    let (call, proof) = token.split_once('.').unwrap();
    for (guess, token) in [
        (&open, waits.token.clone().unwrap()),
        (&open, format!("{call}.{}", "0".repeat(64))),
        (&open, call.to_owned()),
        (&open, String::new()),
        (&of_operators, token.clone()),
        (&of_operators, format!("{}.{proof}", of_operators.call)),
    ] {
        let guess = Waiting {
            token: Some(token.clone()),
            ..guess.clone()
        };
        let told = guess.says(&fleet, "approve", "eve").await;
        assert_eq!(told.bytes, unknown.bytes, "{token}");
    }
    let body = open.body("approve", "eve");
    let foreign = fleet.ask("toolfleet.v1.acme.approve", &body).await;
    assert_eq!(foreign.bytes, unknown.bytes);
    for call in [open.call, of_operators.call] {
        assert_eq!(fleet.call(call).await["state"], "awaiting_client");
    }
}

#[tokio::test]
async fn the_program_of_the_caller_gets_the_call_after_the_yes() {
    let witness = Witness::start().await;
    let shell = "name: shell\nversion: 1\ndescription: Runs a command on the caller's own machine.\neffect: once\n\
                 input_schema: {type: object, properties: {what: {type: string}}, required: [what]}\n\
                 executor: {client: {presents: shell_call}}\napproval: {}\n";
    let fleet = Fleet::start(Spec::with([shell.to_owned()]).workers(0, &[])).await;
    let waits = waiting(&fleet, "shell", "a").await;
    let told = waits.says(&fleet, "approve", "ann").await;
    // Who decides gets no token: that is for the program which runs it.
    assert_eq!(told["state"], "awaiting_client", "{}", *told);
    assert_eq!(told.get("awaiting"), None, "{}", *told);
    let told = fleet.get(&json!({"call_id": waits.call})).await;
    assert_eq!(told["awaiting"]["for"], "client", "{}", *told);
    let token = told["awaiting"]["token"].as_str().unwrap();
    let output = json!({"call_id": waits.call, "token": token, "result": {"exit_code": 0}});
    let told = fleet.ask("toolfleet.v1.default.output", &output).await;
    assert_eq!(told["state"], "succeeded", "{}", *told);
    assert_eq!(told["attempts"], 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn who_decides_learns_no_sensitive_value() {
    let witness = Witness::start().await;
    let tool =
        guarded(&witness, "charge", "once", "{count: 2}") + "sensitive: {pointers: [/what]}\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    // Something is mended, so that its caller would be told the arguments.
    let call = fleet.submit("charge", &json!({"args": {"what": "4711"}}));
    let accepted = call.key("a").wait().await;
    let waits = Waiting::of(&accepted);
    assert_eq!(accepted["awaiting"].get("args"), None, "{}", *accepted);
    // Whoever knows the other arguments could try all values of this one.
    let bare = hex::encode(Sha256::digest(r#"{"what":"4711"}"#));
    assert_ne!(waits.hash, bare);
    let row = "SELECT args, args_hash FROM toolfleet.waiting WHERE call_id = $1";
    let row = fleet.rows(row, waits.call).await.remove(0);
    assert_eq!(
        row,
        json!({"args": {"what": "[masked]"}, "args_hash": waits.hash})
    );
    let first = waits.says(&fleet, "approve", "ann").await;
    assert!(!first.first_bytes().contains("4711"), "{}", *first);
    waits.says(&fleet, "approve", "bob").await;
    fleet.until_state(waits.call, "succeeded").await;
    let hashes = "SELECT DISTINCT args_hash FROM toolfleet.approvals WHERE call_id = $1";
    let hashes = fleet.rows(hashes, waits.call).await;
    assert_eq!(hashes, [json!({"args_hash": waits.hash})]);
}

async fn pause(fleet: &Fleet, scope: ControlScope<'_>) {
    let pause = NewControl {
        kind: ControlKind::Pause,
        scope,
        setting: "\"wait\"",
        told: None,
        actor: "ada",
        note: "the bank migrates",
        for_ms: None,
        in_tenant: None,
    };
    controls::set(&fleet.database.pool, &pause).await.unwrap();
    fleet.ring().await;
}

async fn resume(fleet: &Fleet, scope: ControlScope<'_>) {
    let unset = Unset {
        which: WhichControl::Scope(ControlKind::Pause, scope),
        actor: "ada",
        note: "done",
        in_tenant: None,
    };
    controls::unset(&fleet.database.pool, &unset).await.unwrap();
    fleet.ring().await;
}

#[tokio::test]
async fn a_yes_while_the_tool_is_paused_waits_for_the_end_of_the_pause() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([guarded(&witness, "charge", "once", "{}")])).await;
    let waits = waiting(&fleet, "charge", "a").await;
    let scope = ControlScope {
        tool: Some("charge"),
        ..ControlScope::default()
    };
    pause(&fleet, scope).await;
    waits.says(&fleet, "approve", "ann").await;
    until_so("it stands in the line of the pause", async || {
        let line = "SELECT line FROM toolfleet.open_calls WHERE call_id = $1";
        let line = fleet.rows(line, waits.call).await;
        line[0]["line"].as_str().unwrap().starts_with("pause/")
    })
    .await;
    assert_eq!(witness.asked("a"), 0);
    resume(&fleet, scope).await;
    fleet.until_state(waits.call, "succeeded").await;
    assert_eq!(witness.applied("a"), 1);
}

#[tokio::test]
async fn calls_of_a_limited_tool_run_in_their_places_after_the_yes() {
    let witness = Witness::start().await;
    let tool = guarded(&witness, "charge", "once", "{}") + "concurrency: 1\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    let mut all = Vec::new();
    for n in 0..5 {
        all.push(waiting(&fleet, "charge", &n.to_string()).await);
    }
    for waits in &all {
        waits.says(&fleet, "approve", "ann").await;
    }
    for waits in &all {
        fleet.until_state(waits.call, "succeeded").await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn many_calls_of_a_batch_wait_each_for_its_own_yes() {
    let witness = Witness::start().await;
    let tools = [
        guarded(&witness, "charge", "once", "{by: caller}"),
        witness.tool("look", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let call = |tool: &str, key: &str| json!({"tool": tool, "args": {"what": key}, "idempotency_key": key});
    let calls = json!({"calls": [call("charge", "a"), call("look", "b"), call("charge", "c")]});
    let answer = fleet.ask("toolfleet.v1.default.batch", &calls).await;
    let items = answer["items"].as_array().unwrap();
    assert_eq!(items[1].get("awaiting"), None, "{}", items[1]);
    for (item, what) in [(&items[0], "a"), (&items[2], "c")] {
        assert_eq!(witness.asked(what), 0);
        let waits = Waiting {
            call: item["call_id"].as_str().unwrap().parse().unwrap(),
            hash: item["awaiting"]["args_hash"].as_str().unwrap().to_owned(),
            token: item["awaiting"]["token"].as_str().map(str::to_owned),
        };
        waits.says(&fleet, "approve", "ann").await;
        fleet.until_state(waits.call, "succeeded").await;
    }
    invariants::hold(&fleet, &witness).await;
}

/// The bell after the yes is only a bell.
#[tokio::test]
async fn a_yes_counts_although_the_dispatcher_that_took_it_dies() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([guarded(&witness, "charge", "once", "{}")])).await;
    let waits = waiting(&fleet, "charge", "a").await;
    let sql = "SELECT verdict FROM toolfleet.decide($1, 'approve', $2, 'ann', 'by psql')";
    let verdict: String = sqlx::query_scalar(sql)
        .bind(waits.call.0)
        .bind(&waits.hash)
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    assert_eq!(verdict, "decided");
    fleet.dispatchers.remove(0).kill().await;
    fleet.add_dispatcher().await;
    fleet.until_state(waits.call, "succeeded").await;
    assert_eq!(witness.applied("a"), 1);
    invariants::hold(&fleet, &witness).await;
}
