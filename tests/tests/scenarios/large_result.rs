//! Answers that are larger than a model reads: what callers get of them, and how they read the rest.

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const LARGE: &str = "output_limit: 8MiB\nlarge_result: {over: 8000 tokens, preview: 2KiB}\n";

fn look(fleet: &Fleet, what: &str) -> Submission {
    fleet.submit("look", &json!({ "what": what }))
}

async fn read(fleet: &Fleet, asked: Value) -> Answer {
    fleet.submit("read_result", &asked).wait().await
}

/// A fleet whose tool answers so.
async fn answering(body: &Value, more: &str) -> (Witness, Fleet) {
    let witness = Witness::start().await;
    witness.always("a", Reply::Body(body.to_string()));
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + more])).await;
    (witness, fleet)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_line_of_chinese_is_shown_found_and_read_to_the_end() {
    shown_found_and_read(500_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: the same with as much as a tool may answer"]
async fn five_mb_of_chinese_in_one_line_are_shown_found_and_read_to_the_end() {
    shown_found_and_read(5_000_000).await;
}

async fn shown_found_and_read(bytes: usize) {
    let mut text = "今天天气晴朗，".repeat(bytes / 21);
    text.push_str("只有这里下雨。");
    let characters = text.chars().count();
    let (witness, fleet) = answering(&json!(text), LARGE).await;
    let first = look(&fleet, "a").key("one").wait().await;
    assert_eq!(first["state"], "succeeded", "{}", *first);
    let (call, shown) = (first.call_id(), &first["result"]);
    assert_eq!(shown["$result"], call.to_string());
    assert_eq!(shown["characters"], characters);
    assert_eq!(shown["bytes"], json!(text).to_string().len());
    let preview = shown["preview"].as_str().unwrap();
    assert!(preview.len() <= 2_100 && preview.ends_with("只有这里下雨。"));

    // Everybody reads the same bytes: who sends the key again, who asks for the call.
    let again = look(&fleet, "a").key("one").wait().await;
    assert_eq!(again["replayed"], true);
    assert_eq!(again["result"].to_string(), shown.to_string());
    let got = fleet.get(&json!({ "call_id": call })).await;
    assert_eq!(got["result"].to_string(), shown.to_string());
    let kept =
        "SELECT length(result #>> '{}') AS characters FROM toolfleet.calls WHERE call_id = $1";
    assert_eq!(fleet.rows(kept, call).await[0]["characters"], characters);

    let found = read(&fleet, json!({"ref": call, "search": "下雨"})).await;
    let matches = found["result"]["matches"].as_array().unwrap();
    assert_eq!(matches.len(), 1, "{}", *found);
    assert_eq!(matches[0]["offset"], characters - 3);

    let (mut seen, mut pages, mut offset) = (0, 0, Some(json!(0)));
    while let Some(at) = offset {
        let asked = json!({"ref": call, "offset": at, "limit": 8000});
        let page = read(&fleet, asked).await["result"].clone();
        let part = page["text"].as_str().unwrap();
        let at = at.as_u64().unwrap() as usize;
        assert_eq!(seen, at);
        assert!(text.chars().skip(at).take(8_000).eq(part.chars()));
        seen += part.chars().count();
        pages += 1;
        offset = page.get("next_offset").cloned();
    }
    assert_eq!((seen, pages), (characters, characters.div_ceil(8_000)));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reads_what_is_not_theirs_and_all_that_is_not_there_is_told_alike() {
    let items: Vec<_> = (0..10_000)
        .map(|n| json!({"n": n, "name": "x".repeat(20)}))
        .collect();
    let (witness, fleet) = answering(&json!(items), LARGE).await;
    witness.always("down", Reply::Status(503));
    let large = look(&fleet, "a").wait().await.call_id();
    let failed = look(&fleet, "down").wait().await.call_id();
    let page = read(&fleet, json!({"ref": large, "path": "/9999/n"})).await;
    assert_eq!(page["result"]["text"], "9999");
    let page = read(&fleet, json!({"ref": large, "limit": 100})).await;
    assert_eq!(page["result"]["items"][0]["n"], 0);
    assert_eq!(page["result"]["count"], 10_000);

    let unknown = "01a00000-0000-7000-8000-000000000000";
    let foreign = fleet
        .submit("read_result", &json!({ "ref": large }))
        .tenant("other")
        .wait()
        .await;
    let mut told = vec![foreign];
    for reference in [json!(failed), json!(unknown)] {
        told.push(read(&fleet, json!({ "ref": reference })).await);
    }
    for answer in &told {
        assert_eq!(
            answer["error"]["details"]["code"], "not_found",
            "{}",
            **answer
        );
        assert_eq!(answer["error"]["message"], told[0]["error"]["message"]);
    }
    let wrong = [
        (json!({"ref": large, "offset": 10_000}), "behind_the_end"),
        (json!({"ref": large, "path": "/9999/no"}), "no_such_path"),
    ];
    for (asked, code) in wrong {
        let answer = read(&fleet, asked).await;
        assert_eq!(answer["error"]["details"]["code"], code, "{}", *answer);
    }
    let refused = [
        json!({"ref": large, "limit": 0}),
        json!({"ref": large, "limit": 8001}),
        json!({"ref": large, "search": ""}),
        json!({"ref": large, "search": "x".repeat(1025)}),
        json!({"ref": "short"}),
    ];
    for asked in refused {
        let answer = read(&fleet, asked).await;
        assert_eq!(answer.code(), "invalid_arguments", "{}", *answer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_answer_that_the_ledger_does_not_take_a_part_remains() {
    let (witness, fleet) = answering(&json!("天".repeat(100_000)), LARGE).await;
    let full = "CREATE FUNCTION full_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                    IF length(NEW.result::text) > 50000 THEN RAISE check_violation; END IF; RETURN NEW; END $$; \
                CREATE TRIGGER full_up BEFORE INSERT ON toolfleet.finished_calls FOR EACH ROW EXECUTE FUNCTION full_up()";
    sqlx::raw_sql(full)
        .execute(&fleet.database.pool)
        .await
        .unwrap();
    let answer = look(&fleet, "a").wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert_eq!(answer["result"]["lost"], true);
    assert_eq!(answer["result"]["characters"], 100_000);
    let got = fleet.get(&json!({"call_id": answer.call_id()})).await;
    assert_eq!(got["result"].to_string(), answer["result"].to_string());
    invariants::hold(&fleet, &witness).await;
}

/// A probe reads the answer itself: what decides may stand in the part that callers do not get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_reads_all_of_a_large_answer() {
    let witness = Witness::start().await;
    let found =
        json!({"padding": "x".repeat(100_000), "status": "paid", "more": "y".repeat(100_000)});
    witness.always("b", Reply::DoneThenClose);
    let probe = "timeout: 500ms\nprobe: {tool: look, args: {what: found}, applied_when: result.status == \"paid\"}\n";
    let tools = [
        witness.tool("look", "read") + LARGE,
        witness.tool("charge", "once") + probe,
    ];
    witness.always("found", Reply::Body(found.to_string()));
    let fleet = Fleet::start(Spec::with(tools)).await;
    let call = fleet.submit("charge", &json!({"what": "b"})).key("k");
    let call = call.asynchronous().await.call_id();
    until_so("the probe to settle the doubt", async || {
        fleet.call(call).await["state"] == "succeeded"
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}

/// Many programs escape all that is not ASCII.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_escaped_is_found_and_shown_as_what_it_says() {
    let witness = Witness::start().await;
    let item = r#"{"text": "Gr\u00fc\u00dfe und K\u00fcsse"}"#;
    let items = vec![item; 2_000].join(", ");
    witness.always("a", Reply::Body(format!(r#"{{"orders": [{items}]}}"#)));
    let tools = [witness.tool("look", "read") + LARGE];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let large = look(&fleet, "a").wait().await;
    let preview = large["result"]["preview"].as_str().unwrap();
    assert!(preview.contains("Grüße und Küsse"), "{}", *large);
    let large = large.call_id();
    let found = read(
        &fleet,
        json!({"ref": large, "search": "küsse", "limit": 200}),
    )
    .await;
    assert!(
        !found["result"]["matches"].as_array().unwrap().is_empty(),
        "{}",
        *found
    );
    let page = read(
        &fleet,
        json!({"ref": large, "path": "/orders", "limit": 100}),
    )
    .await;
    assert_eq!(
        page["result"]["items"][0]["text"], "Grüße und Küsse",
        "{}",
        *page
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_usual_size_is_left_as_it_is() {
    let (_witness, fleet) = answering(&json!({"of": "little"}), LARGE).await;
    let answer = look(&fleet, "a").wait().await;
    assert_eq!(answer["result"], json!({"of": "little"}));
    let kept = "SELECT preview IS NULL AS whole FROM toolfleet.finished_calls WHERE call_id = $1";
    assert_eq!(fleet.rows(kept, answer.call_id()).await[0]["whole"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_what_would_be_shortened_and_give_callers_all_of_it() {
    let (_witness, fleet) = answering(&json!("x".repeat(50_000)), LARGE).await;
    let shortened = async || {
        let answer = look(&fleet, "a").wait().await;
        let row = fleet.call(answer.call_id()).await;
        let is_shortened = answer["result"].get("$result").is_some();
        assert_eq!(row["shortened"], is_shortened, "{row}");
        is_shortened
    };
    assert!(shortened().await);
    let set = async |mode: &str| {
        let wish = json!({
            "do": "set", "interceptor": "large_result", "mode": mode, "tool": "look",
            "actor": "ada", "note": "why", "replace": true,
        });
        let set = fleet.ask("toolfleet.admin.control", &wish).await;
        assert!(set["control"].is_object(), "{}", *set);
    };
    for mode in ["observe", "off"] {
        set(mode).await;
        until_so("callers to get all of it", async || !shortened().await).await;
        set("enforce").await;
        until_so("answers to be shortened again", shortened).await;
    }
}
