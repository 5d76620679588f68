//! What stands in for a tool that cannot: another tool, an old answer, a constant; marked, stored with the error, never kept, and
//! never in the place of an answer that the caller has to hear.

mod own;
mod table;
mod trouble;

use std::{collections::HashSet, time::Duration};

use fleet::{
    manifest::{UnfitTool, parse},
    store::tools::{Applied, apply},
};
use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

/// A read at the witness that is tried once, with a fallback.
fn tool(witness: &Witness, name: &str, fallback: &str) -> String {
    let read = witness.tool(name, "read");
    format!("{read}retry: {{strategy: none}}\ntimeout: 1s\nfallback: {fallback}\n")
}

fn ask(fleet: &Fleet, tool: &str, what: &str) -> Submission {
    fleet.submit(tool, &json!({ "what": what }))
}

/// Asks for a change of controls in the fleet's own name.
async fn control(fleet: &Fleet, wish: Value) -> Value {
    let mut wish = wish;
    let who = json!({"actor": "ada", "note": "why"});
    let who = who.as_object().unwrap().clone();
    wish.as_object_mut().unwrap().extend(who);
    let answer = fleet.ask("toolfleet.admin.control", &wish).await;
    assert!(
        answer.get("error").is_none_or(Value::is_null),
        "{}",
        *answer
    );
    answer["control"].clone()
}

/// Waits until every process of the fleet has the breaker of a tool as it is forced: its calls end with that, or do not.
async fn until_forced(fleet: &Fleet, tool: &str, is_open: bool) {
    until_so("the forced breaker to be known", async || {
        let answer = ask(fleet, tool, "whether it is known").wait().await;
        (answer.code() == "circuit_open") == is_open
    })
    .await;
}

/// Whether an answer is one that stands in: by all its marks.
fn stands_in(answer: &Answer, source: &str, reason: &str) {
    for (field, value) in [
        ("state", json!("failed")),
        ("outcome", json!("fallback")),
        ("is_error", json!(false)),
        ("source", json!(source)),
        ("effect", json!("none")),
    ] {
        assert_eq!(answer[field], value, "{field}: {}", **answer);
    }
    let degraded = &answer["degraded"];
    assert_eq!(
        (&degraded["kind"], &degraded["reason"]),
        (&json!(source), &json!(reason)),
        "{}",
        **answer
    );
    assert_eq!(degraded["age_ms"].is_u64(), source == "stale", "{degraded}");
    assert_eq!(
        degraded.get("tool").is_some(),
        source == "other",
        "{degraded}"
    );
    assert!(!answer["error"].is_null(), "{}", **answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fallback_is_marked_and_replays() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("other", "read"),
        tool(
            &witness,
            "by_other",
            "{tool: {name: other, args: {what: \"instead of {{ args.what }}\"}}}",
        ),
        tool(&witness, "by_stale", "{stale: {max_age: 1h}, stub: 1}") + "cache: {ttl: 1ms}\n",
        tool(&witness, "by_stub", "{stub: {known: false}}"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.first("x", [Reply::Body("{\"rate\":7}".to_owned())]);
    let live = ask(&fleet, "by_stale", "x").wait().await;
    assert_eq!(
        (&live["source"], &live["result"]),
        (&json!("live"), &json!({"rate": 7}))
    );
    witness.always("x", Reply::Status(503));
    witness.always("instead of x", Reply::Body("[1]".to_owned()));
    for (name, source, result) in [
        ("by_other", "other", json!([1])),
        ("by_stale", "stale", json!({"rate": 7})),
        ("by_stub", "stub", json!({"known": false})),
    ] {
        let first = ask(&fleet, name, "x").key(name).wait().await;
        stands_in(&first, source, "unavailable");
        assert_eq!((&first["result"], first.code()), (&result, "unavailable"));
        assert_eq!(first["attempts"], 1);
        if source == "other" {
            assert_eq!(first["degraded"]["tool"], "other");
        }
        // Byte for byte, by key and by id.
        let again = ask(&fleet, name, "x").key(name).wait().await;
        assert_eq!(again["replayed"], true);
        assert_eq!(again.first_bytes(), first.first_bytes());
        let got = fleet.get(&json!({"call_id": first.call_id()})).await;
        assert_eq!(got.first_bytes(), first.first_bytes());
        // One row has it all.
        let row = fleet.call(first.call_id()).await;
        for field in ["state", "outcome", "source", "result", "error", "degraded"] {
            assert_eq!(row[field], first[field], "{field} of {name}");
        }
        assert!(
            counter(&format!(
                "toolfleet_finished_calls_total{{outcome=\"fallback\",source=\"{source}\",tool=\"{name}\"}}"
            )) >= 1.0
        );
    }
    // A service that both ask must not take the one's question for the other's.
    let keys: HashSet<_> = witness.look(|seen| {
        let requests = seen.requests.iter();
        let keys = requests.map(|request| request.header("idempotency-key").to_owned());
        keys.collect()
    });
    assert_eq!(keys.len(), 5, "{keys:?}");
    assert!(keys.iter().any(|key| key.ends_with("-other")), "{keys:?}");
    // Nothing of it was run again, and nobody has to deal with it.
    assert_eq!((witness.asked("x"), witness.asked("instead of x")), (4, 1));
    assert_eq!(
        fleet
            .count("SELECT count(*) FROM toolfleet.dead_letters")
            .await,
        0
    );
    let answered = "SELECT answered FROM toolfleet.interceptors WHERE name = 'fallback'";
    until_so("the worker to have written what it did", async || {
        let answered: Option<i64> = sqlx::query_scalar(answered)
            .fetch_optional(&fleet.database.pool)
            .await
            .unwrap();
        answered == Some(3)
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_stale_for_bad_arguments() {
    let witness = Witness::start().await;
    let stale = tool(&witness, "look", "{stale: {max_age: 1h}, stub: 1}") + "cache: {ttl: 1ms}\n";
    let fleet = Fleet::start(Spec::with([stale])).await;
    witness.first("x", [Reply::Body("7".to_owned())]);
    assert_eq!(ask(&fleet, "look", "x").wait().await["result"], 7);
    // What the caller got wrong it has to hear: at the door, and from the tool.
    let refused = fleet
        .submit("look", &json!({"what": 7, "where": []}))
        .wait()
        .await;
    assert_eq!(refused["state"], "succeeded", "mended: {}", *refused);
    let refused = fleet.submit("look", &json!({"where": "x"})).wait().await;
    assert_eq!(
        (refused["state"].clone(), refused.code()),
        (json!("refused"), "invalid_arguments")
    );
    assert_eq!(
        (&refused["degraded"], &refused["result"]),
        (&Value::Null, &Value::Null)
    );
    for (reply, code) in [
        (Reply::No("there is no such place"), "tool_error"),
        (Reply::Status(422), "tool_error"),
        (Reply::Body("this is no JSON".to_owned()), "output_invalid"),
    ] {
        witness.always("x", reply);
        let said = ask(&fleet, "look", "x").wait().await;
        assert_eq!(
            (said.code(), &said["degraded"]),
            (code, &Value::Null),
            "{}",
            *said
        );
        assert_eq!(said["result"], Value::Null, "{}", *said);
    }
    // And a tool that could not is stood in for, by what it answered before all that.
    witness.always("x", Reply::Status(500));
    let stale = ask(&fleet, "look", "x").wait().await;
    stands_in(&stale, "stale", "unavailable");
    assert_eq!(stale["result"], 7);
    // Not for a caller who wants nothing of another call, nor for another tenant.
    let alone = ask(&fleet, "look", "x")
        .header("Cache-Control", "no-store")
        .wait()
        .await;
    stands_in(&alone, "stub", "unavailable");
    let foreign = ask(&fleet, "look", "x").tenant("acme").wait().await;
    stands_in(&foreign, "stub", "unavailable");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stub_never_cached() {
    let witness = Witness::start().await;
    let stub = tool(&witness, "look", "{stale: {max_age: 1h}, stub: 1}") + "cache: {ttl: 1h}\n";
    let fleet = Fleet::start(Spec::with([stub])).await;
    witness.first(
        "x",
        [Reply::Status(500), Reply::Status(500), Reply::Status(500)],
    );
    for _ in 0..3 {
        stands_in(
            &ask(&fleet, "look", "x").wait().await,
            "stub",
            "unavailable",
        );
    }
    // Each has asked its tool, and the first good answer counts.
    assert_eq!(witness.asked("x"), 3);
    let live = ask(&fleet, "look", "x").wait().await;
    assert_eq!(live["source"], "live");
    let hit = ask(&fleet, "look", "x").wait().await;
    assert_eq!(
        (&hit["source"], &hit["result"]),
        (&json!("cache"), &live["result"])
    );
    let fell_back = "SELECT count(*) FROM toolfleet.kept_answers k JOIN toolfleet.calls c ON c.call_id = k.call_id \
                     WHERE c.source <> 'live'";
    assert_eq!(fleet.count(fell_back).await, 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fallback_of_a_fallback() {
    let witness = Witness::start().await;
    let look = tool(
        &witness,
        "look",
        "{tool: {name: other}, stub: {known: false}}",
    );
    let tools = [witness.tool("other", "read"), look.clone()];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::Status(503));
    // The other tool fails as well: it is asked once, and nothing stands in for it.
    let stub = ask(&fleet, "look", "x").wait().await;
    stands_in(&stub, "stub", "unavailable");
    assert_eq!(witness.asked("x"), 2);
    // What it turns into later is passed over.
    let versions = [
        witness.tool("other", "read") + "fallback: {stub: {from: other}}\n",
        witness.tool("other", "read") + "concurrency: 2\n",
        witness.tool("other", "read") + "rate_limit: {calls: 9, per: 1s}\n",
        witness.tool("other", "idempotent"),
        witness.tool("other", "read") + "sensitive: {pointers: [/secret]}\n",
    ];
    for (version, manifest) in (2..).zip(versions) {
        let manifest = manifest.replace("version: 1", &format!("version: {version}"));
        fleet.apply(&manifest).await;
        until_so("the fleet to know the version", async || {
            ask(&fleet, "other", "y").wait().await["tool_version"] == version
        })
        .await;
        let asked = witness.asked("x");
        let stub = ask(&fleet, "look", "x").wait().await;
        stands_in(&stub, "stub", "unavailable");
        assert_eq!(witness.asked("x"), asked + 1, "only its own: {manifest}");
    }
    fleet.retire("other").await;
    // And no new tool may name such a one.
    let mut connection = fleet.database.pool.acquire().await.unwrap();
    let mut applied = async |name: &str, fallback: &str| {
        let manifest = parse(&tool(&witness, name, fallback)).unwrap();
        apply(&mut connection, &manifest, "test").await.unwrap()
    };
    let other = "{tool: {name: other}}";
    let refused = |unfit| Applied::FallbackUnfit(unfit);
    assert_eq!(
        applied("new_look", other).await,
        refused(UnfitTool::Retired)
    );
    assert_eq!(
        applied("new_look", "{tool: {name: absent}}").await,
        refused(UnfitTool::Missing)
    );
    assert_eq!(
        applied("new_look", "{tool: {name: look}}").await,
        refused(UnfitTool::FallsBack)
    );
    drop(connection);
    for (n, (line, unfit)) in [
        ("concurrency: 2", UnfitTool::Limited),
        ("sensitive: {pointers: [/secret]}", UnfitTool::Sensitive),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("unfit_{n}");
        fleet
            .apply(&format!("{}{line}\n", witness.tool(&name, "read")))
            .await;
        let mut connection = fleet.database.pool.acquire().await.unwrap();
        let manifest = tool(&witness, "new_look", &format!("{{tool: {{name: {name}}}}}"));
        let applied = apply(&mut connection, &parse(&manifest).unwrap(), "test").await;
        assert_eq!(applied.unwrap(), refused(unfit));
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_the_way_of_another_tool_passes_it_over() {
    let witness = Witness::start().await;
    let schema = "output_schema: {type: object, required: [known]}\n";
    let tools = [
        witness.tool("other", "read") + "breaker: {}\n",
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: other}}, stub: {known: false}}",
        ) + schema,
        tool(
            &witness,
            "odd",
            "{tool: {name: other, args: {where: x}}, stub: 1}",
        ),
        tool(
            &witness,
            "odder",
            "{tool: {name: other, args: {what: \"{{ args.absent }}\"}}, stub: 1}",
        ),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::Status(503));
    let look = async || ask(&fleet, "look", "x").wait().await;
    witness.always("other", Reply::Body("{\"known\": true}".to_owned()));
    stands_in(&look().await, "other", "unavailable");
    // Its answer has to be one that the tool could give.
    witness.always("other", Reply::Body("{\"none\": true}".to_owned()));
    stands_in(&look().await, "stub", "unavailable");
    witness.always("other", Reply::Body("{\"known\": true}".to_owned()));
    let asked = witness.asked("other");
    let pause = control(&fleet, json!({"do": "pause", "tool": "other"})).await;
    until_so("the pause to be known", async || {
        let source = look().await["source"].clone();
        source == "stub"
    })
    .await;
    let id = pause["control_id"].clone();
    control(&fleet, json!({"do": "resume", "control_id": id})).await;
    until_so("the pause to be over", async || {
        look().await["source"] == "other"
    })
    .await;
    control(
        &fleet,
        json!({"do": "breaker", "tool": "other", "position": "open"}),
    )
    .await;
    until_so("the breaker to be known", async || {
        look().await["source"] == "stub"
    })
    .await;
    assert!(witness.asked("other") > asked);
    // Arguments that cannot be made, or do not fit it.
    for name in ["odd", "odder"] {
        stands_in(&ask(&fleet, name, "x").wait().await, "stub", "unavailable");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_an_open_breaker_only_another_tool_is_claimed_for() {
    let witness = Witness::start().await;
    let breaker = "breaker: {}\n";
    let tools = [
        witness.tool("other", "read"),
        tool(&witness, "by_other", "{tool: {name: other}}") + breaker,
        tool(&witness, "by_stale", "{stale: {max_age: 1h}, stub: 1}")
            + breaker
            + "cache: {ttl: 1ms}\n",
        tool(&witness, "by_stub", "{stub: {known: false}}") + breaker,
        tool(&witness, "by_nothing", "{stale: {max_age: 1h}}") + breaker + "cache: {ttl: 1ms}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let live = ask(&fleet, "by_stale", "x").wait().await;
    assert_eq!(live["source"], "live");
    for name in ["by_other", "by_stale", "by_stub", "by_nothing"] {
        control(
            &fleet,
            json!({"do": "breaker", "tool": name, "position": "open"}),
        )
        .await;
        until_forced(&fleet, name, true).await;
    }
    let asked = witness.asked("x");
    for (name, source, attempts) in [
        ("by_other", "other", 1),
        ("by_stale", "stale", 0),
        ("by_stub", "stub", 0),
    ] {
        let answer = ask(&fleet, name, "x").key(name).wait().await;
        stands_in(&answer, source, "circuit_open");
        assert_eq!(
            (&answer["attempts"], answer.code()),
            (&json!(attempts), "circuit_open")
        );
        assert!(answer["error"]["retry_after_ms"].is_u64(), "{}", *answer);
        let attempts = fleet
            .rows(
                "SELECT * FROM toolfleet.attempts WHERE call_id = $1",
                answer.call_id(),
            )
            .await;
        for attempt in &attempts {
            assert_eq!(attempt["outcome"], "not_started", "{attempt}");
        }
        let series =
            format!("toolfleet_ended_attempts_total{{outcome=\"not_started\",tool=\"{name}\"}}");
        assert!(counter(&series) < 0.5, "its tool has not failed");
        let again = ask(&fleet, name, "x").key(name).wait().await;
        assert_eq!(again.first_bytes(), answer.first_bytes());
    }
    assert_eq!(
        witness.asked("x"),
        asked + 1,
        "the other tool alone was asked"
    );
    let error = ask(&fleet, "by_nothing", "y").wait().await;
    assert_eq!(
        (&error["outcome"], &error["degraded"]),
        (&json!("system_error"), &Value::Null)
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_observe_a_fallback_or_switch_it_off() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("other", "read"),
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: other}}}",
        ),
        tool(&witness, "by_nothing", "{stale: {max_age: 1h}}") + "cache: {ttl: 1ms}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::Status(503));
    let observe = json!({"do": "set", "interceptor": "fallback", "mode": "observe"});
    let observe = control(&fleet, observe).await;
    until_so("the mode to be known", async || {
        ask(&fleet, "look", "x").wait().await["outcome"] == "system_error"
    })
    .await;
    ask(&fleet, "by_nothing", "x").wait().await;
    let observed = "toolfleet_observed_brakes_total{interceptor=\"fallback\",tool=\"by_nothing\"}";
    assert!(counter(observed) < 0.5, "nothing would have stood in");
    let id = observe["control_id"].clone();
    control(&fleet, json!({"do": "unset", "control_id": id})).await;
    let look = async || ask(&fleet, "look", "x").wait().await;
    until_so("the mode to be gone", async || {
        look().await["source"] == "other"
    })
    .await;
    for mode in ["observe", "off"] {
        let set = json!({"do": "set", "interceptor": "fallback", "mode": mode, "tool": "look"});
        let set = control(&fleet, set).await;
        until_so("the mode to be known", async || {
            look().await["outcome"] == "system_error"
        })
        .await;
        let asked = witness.asked("other");
        let error = look().await;
        assert_eq!(
            (&error["outcome"], error.code()),
            (&json!("system_error"), "unavailable")
        );
        assert_eq!(witness.asked("other"), asked, "{mode}");
        let observed = "toolfleet_observed_brakes_total{interceptor=\"fallback\",tool=\"look\"}";
        assert!(counter(observed) >= 1.0);
        let id = set["control_id"].clone();
        control(&fleet, json!({"do": "unset", "control_id": id})).await;
        until_so("the mode to be gone", async || {
            look().await["source"] == "other"
        })
        .await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_answer_that_stands_in_is_shown_in_part_and_kept_whole() {
    let witness = Witness::start().await;
    let large = "large_result: {over: 4KiB, preview: 1KiB}\n";
    let tools = [
        witness.tool("other", "read"),
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: other}}}",
        ) + large,
        tool(
            &witness,
            "shut",
            &format!("{{stub: \"{}\"}}", "long ".repeat(1_000)),
        ) + large
            + "breaker: {}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::Status(503));
    control(
        &fleet,
        json!({"do": "breaker", "tool": "shut", "position": "open"}),
    )
    .await;
    until_forced(&fleet, "shut", true).await;
    // At the gate, too.
    let shut = ask(&fleet, "shut", "y").wait().await;
    stands_in(&shut, "stub", "circuit_open");
    assert_eq!(shut["attempts"], 0);
    assert_eq!(shut["result"]["$result"], shut.call_id().to_string());
    let text = "long ".repeat(2_000);
    witness.always("other", Reply::Body(json!(text).to_string()));
    let answer = ask(&fleet, "look", "x").key("k").wait().await;
    stands_in(&answer, "other", "unavailable");
    let call = answer.call_id();
    assert_eq!(answer["result"]["$result"], call.to_string());
    assert_eq!(fleet.call(call).await["result"], text);
    let again = ask(&fleet, "look", "x").key("k").wait().await;
    assert_eq!(again.first_bytes(), answer.first_bytes());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_is_cancelled_while_another_tool_is_asked() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("other", "read"),
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: other}}, stub: 1}",
        ),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("other", Reply::Hang);
    // Its own answer wins over the cancellation, as ever; nothing stands in either way.
    for (n, (reply, state, code)) in [
        (Reply::Hang, "cancelled", "cancelled"),
        (Reply::Status(503), "failed", "unavailable"),
    ]
    .into_iter()
    .enumerate()
    {
        witness.always(state, reply);
        let call = ask(&fleet, "look", state).asynchronous().await.call_id();
        witness.until_asked("other", n + 1).await;
        let cancel = json!({"call_id": call});
        let cancel = fleet.ask("toolfleet.v1.default.cancel", &cancel).await;
        assert_eq!(cancel["result"], "cancel_requested", "{}", *cancel);
        let ended = json!({"call_id": call, "wait_ms": 20_000});
        let ended = fleet.get(&ended).await;
        assert_eq!(
            (&ended["state"], ended.code(), &ended["degraded"]),
            (&json!(state), code, &Value::Null),
            "{}",
            *ended
        );
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_answered_so_is_not_stopped_for_repeating_itself() {
    let witness = Witness::start().await;
    let tools = [
        tool(&witness, "look", "{stub: 1}") + "repeat_cap: 2\n",
        witness.tool("plain", "read") + "retry: {strategy: none}\nrepeat_cap: 2\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::Status(500));
    let run = |name: &str| ask(&fleet, name, "x").header("Toolfleet-Run", "run");
    for _ in 0..5 {
        stands_in(&run("look").wait().await, "stub", "unavailable");
    }
    until_so("the same failure to be refused at last", async || {
        run("plain").wait().await.code() == "repeated_failure"
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_is_answered_by_its_tool_or_not_at_all() {
    let witness = Witness::start().await;
    let charge = witness.tool("charge", "once")
        + "timeout: 1s\nprobe: {tool: find, args: {what: \"was {{ args.what }}\"}, applied_when: result.found, settle: 1ms, authoritative: true}\n";
    let tools = [
        // Its constant would settle the charge as not applied.
        tool(&witness, "find", "{stub: {found: false}}"),
        charge,
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("a", Reply::DoneThenHang);
    witness.first("was a", [Reply::Status(503), Reply::Status(503)]);
    witness.always("was a", Reply::Body("{\"found\": true}".to_owned()));
    let doubt = ask(&fleet, "charge", "a").key("a").wait().await;
    assert_eq!(doubt["state"], "in_doubt", "{}", *doubt);
    until_so("the probe to find out", async || {
        let row = fleet.call(doubt.call_id()).await;
        assert_ne!(row["state"], "failed", "{row}");
        row["state"] == "succeeded"
    })
    .await;
    assert_eq!(witness.asked("was a"), 3);
    let fell_back = "SELECT count(*) FROM toolfleet.calls WHERE outcome = 'fallback'";
    assert_eq!(fleet.count(fell_back).await, 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tool_counts_in_its_own_breaker_and_takes_its_own_slot() {
    let witness = Witness::start().await;
    let program = "name: program\nversion: 1\ndescription: A program.\neffect: read\ninput_schema: {type: object}\n\
                   executor: {process: {command: [sh, -c, cat]}}\n";
    let tools = [
        witness.tool("other", "read") + "breaker: {calls: 2, open: 1h, open_max: 1h}\n",
        program.to_owned(),
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: other}}, stub: 1}",
        ),
        tool(&witness, "by_program", "{tool: {name: program}}"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::Status(503));
    witness.always("other", Reply::Status(503));
    let state = "SELECT count(*) FROM toolfleet.breakers WHERE tool = 'other' AND state = 'open'";
    until_so("the breaker of the other tool to open", async || {
        stands_in(
            &ask(&fleet, "look", "x").wait().await,
            "stub",
            "unavailable",
        );
        fleet.count(state).await == 1
    })
    .await;
    until_so("the other tool to be left alone", async || {
        let asked = witness.asked("other");
        stands_in(
            &ask(&fleet, "look", "x").wait().await,
            "stub",
            "unavailable",
        );
        witness.asked("other") == asked
    })
    .await;
    let answer = ask(&fleet, "by_program", "x").wait().await;
    stands_in(&answer, "other", "unavailable");
    assert_eq!(answer["result"], json!({"what": "x"}));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tool_gets_the_answers_that_the_arguments_refer_to() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("other", "read"),
        witness.tool("same", "read"),
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: \"not {{ args.what }}\"}}}",
        ),
        tool(&witness, "find", "{tool: {name: same}}"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("a", Reply::Body("\"x\"".to_owned()));
    let first = ask(&fleet, "other", "a").wait().await;
    let refers = json!({"what": {"$result": first.call_id().to_string()}});
    witness.first("x", [Reply::Status(503), Reply::Status(503)]);
    stands_in(
        &fleet.submit("look", &refers).wait().await,
        "other",
        "unavailable",
    );
    assert_eq!((witness.asked("x"), witness.asked("not x")), (1, 1));
    stands_in(
        &fleet.submit("find", &refers).wait().await,
        "other",
        "unavailable",
    );
    assert_eq!(witness.asked("x"), 3);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_of_another_queue_is_not_asked() {
    let witness = Witness::start().await;
    let look = |name: &str| {
        let other = "{tool: {name: other, args: {what: other}}, stub: 1}";
        tool(&witness, name, other)
    };
    let tools = [witness.tool("other", "read"), look("look")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("x", Reply::Status(503));
    stands_in(
        &ask(&fleet, "look", "x").wait().await,
        "other",
        "unavailable",
    );
    // What it needs, only the workers of that queue may have.
    let moved = witness.tool("other", "read") + "queue: dmz\n";
    fleet
        .apply(&moved.replace("version: 1", "version: 2"))
        .await;
    until_so("the version to be known", async || {
        ask(&fleet, "look", "x").wait().await["source"] == "stub"
    })
    .await;
    let mut connection = fleet.database.pool.acquire().await.unwrap();
    let applied = apply(&mut connection, &parse(&look("find")).unwrap(), "test").await;
    assert_eq!(
        applied.unwrap(),
        Applied::FallbackUnfit(UnfitTool::Elsewhere)
    );
    drop(connection);
    invariants::hold(&fleet, &witness).await;
}

/// So long at most another tool is waited for in these tests.
const SHORT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tool_has_its_own_timeout_and_no_more_than_is_left_of_the_call() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("quick", "read") + "timeout: 300ms\n",
        witness.tool("slow", "read") + "timeout: 30s\n",
        tool(&witness, "by_quick", "{tool: {name: quick}, stub: 1}"),
        tool(&witness, "by_slow", "{tool: {name: slow}, stub: 1}"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.first("x", [Reply::Status(503), Reply::Hang]);
    stands_in(
        &ask(&fleet, "by_quick", "x").wait().await,
        "stub",
        "unavailable",
    );
    witness.first("y", [Reply::Status(503), Reply::Hang]);
    let answer = ask(&fleet, "by_slow", "y").deadline(2 * SHORT).wait().await;
    let took = answer["timing"]["run_ms"].as_u64().unwrap();
    assert!(took < 10_000, "{took} ms");
    stands_in(&answer, "stub", "unavailable");
    assert_eq!((witness.asked("x"), witness.asked("y")), (2, 2));
    invariants::hold(&fleet, &witness).await;
}
