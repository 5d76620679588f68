//! The forms of the console: each does what its endpoint does, and shows the verdict as it is.

use fleet_tests::{
    event_source::EventSource,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    web::WebAnswer,
    witness::{Reply, Witness},
};
use serde_json::json;

use super::browser::{Browser, hidden};
use crate::calls::call;

fn id(answer: &WebAnswer) -> String {
    let id = answer.json()["call_id"].as_str().map(ToOwned::to_owned);
    id.unwrap_or_else(|| panic!("no call in {}", answer.text()))
}

#[tokio::test]
async fn a_doubt_is_seen_settled_once_and_its_conflict_told() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 300ms\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    witness.always("a", Reply::DoneThenHang);
    let doubt = id(&call(web, "charge", "a", &[("Idempotency-Key", "a")]).await);
    let browser = Browser::new(web);
    let inbox = browser.page("/console/doubts").await;
    assert!(inbox.contains(&doubt) && inbox.contains("value=\"applied\""));
    let page = browser.page(&format!("/console/calls/{doubt}")).await;
    assert!(page.contains("bar-doubt") && page.contains("Whether its effect happened is unknown"));
    assert!(!page.contains("/retry\""), "a doubt is not called again");
    let path = format!("/console/calls/{doubt}/settle");
    let retried = browser
        .send(
            &format!("/console/calls/{doubt}/retry"),
            &[("arguments", "{}")],
        )
        .await;
    assert!(retried.text().contains("is settled first"));
    let unsaid = browser
        .send(&path, &[("outcome", "applied"), ("actor", "ann")])
        .await;
    assert!(
        unsaid.text().contains("class=\"problem\""),
        "a note is needed: {}",
        unsaid.text()
    );
    let wrong = [
        ("outcome", "applied"),
        ("actor", "ann"),
        ("note", "n"),
        ("result", "{"),
    ];
    let kept = browser.send(&path, &wrong).await.text();
    assert!(
        kept.contains("The result is no JSON") && kept.contains(">{</textarea>"),
        "{kept}"
    );
    assert!(
        kept.contains("value=\"applied\" required checked"),
        "{kept}"
    );
    assert!(
        !page.contains("id=\"again-cli\""),
        "nothing is there to copy either"
    );
    let settled = [
        ("outcome", "applied"),
        ("actor", "ann"),
        ("note", "charge ch_7 is there"),
        ("result", "{\"n\": 9007199254740993}"),
    ];
    let first = browser.send(&path, &settled).await;
    assert_eq!(first.status, 303, "{}", first.text());
    let first = browser.page(first.header("Location")).await;
    assert!(
        first.contains("class=\"done\"") && first.contains("9007199254740993"),
        "{first}"
    );
    let opened = browser.get(&path).await;
    assert_eq!(opened.header("Location"), format!("/console/calls/{doubt}"));
    let rival = [
        ("outcome", "abandoned"),
        ("actor", "bob"),
        ("note", "no idea"),
    ];
    let second = browser.send(&path, &rival).await.text();
    assert!(
        second.contains("class=\"problem\"") && second.contains("conflict"),
        "{second}"
    );
    let (_, first) = second
        .split_once("class=\"first\"")
        .expect("it says who was first");
    assert!(
        first.starts_with(">It was decided before, by <strong>ann"),
        "{first}"
    );
    let told = web.get(&format!("/v1/history/{doubt}")).send().await.text();
    assert!(told.contains("charge ch_7 is there") && !told.contains("no idea"));
    assert!(
        browser
            .page("/console/doubts")
            .await
            .contains("No call is in doubt")
    );
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_yes_is_for_the_arguments_that_are_shown() {
    let witness = Witness::start().await;
    let tool = format!(
        "{}\napproval: {{by: operator, count: 2}}\n",
        witness.tool("charge", "once")
    );
    let fleet = Fleet::start(Spec::with([tool])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let quick = ("Prefer", "respond-async");
    let waits = id(&call(web, "charge", "a", &[("Idempotency-Key", "a"), quick]).await);
    let browser = Browser::new(web);
    let page = browser.page("/console/waiting").await;
    assert!(page.contains(&waits));
    let hash = hidden(&page, "args_hash").to_owned();
    let path = format!("/console/calls/{waits}/approve");
    let other = browser
        .send(
            &path,
            &[("args_hash", "00"), ("note", "n"), ("actor", "ann")],
        )
        .await;
    assert!(other.text().contains("class=\"problem\""));
    for actor in ["ann", "bob"] {
        let yes = [
            ("args_hash", hash.as_str()),
            ("note", "fine"),
            ("actor", actor),
        ];
        let said = browser.send(&path, &yes).await;
        assert_eq!(said.status, 303, "{actor}: {}", said.text());
        let told = browser.page(said.header("Location")).await;
        assert!(
            told.contains("class=\"done\"") && told.contains(actor),
            "{told}"
        );
    }
    until_so("the call to have run", async || witness.applied("a") == 1).await;
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn the_playground_checks_and_runs_a_write_once_when_its_key_was_seen() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let browser = Browser::new(web);
    let path = "/console/tools/charge";
    let wrong = browser
        .send(path, &[("arguments", "{\"what\": {}}"), ("do", "check")])
        .await;
    assert!(wrong.text().contains("invalid"), "{}", wrong.text());
    let arguments = "{\"what\": \"a\"}";
    let asked = browser
        .send(path, &[("arguments", arguments), ("do", "run")])
        .await
        .text();
    assert!(asked.contains("value=\"run_now\"") && witness.asked("a") == 0);
    let (_, key) = asked.split_once("name=\"key\"").unwrap();
    let (_, key) = key.split_once("value=\"").unwrap();
    let key = key.split('"').next().unwrap();
    let seen = hidden(&asked, "seen");
    let run = |arguments: &'static str| {
        [
            ("arguments", arguments),
            ("do", "run_now"),
            ("key", key),
            ("seen", seen),
        ]
    };
    let others = browser.send(path, &run("{\"what\": \"c\"}")).await;
    assert!(
        others.text().contains("others than those"),
        "{}",
        others.text()
    );
    assert_eq!(witness.asked("c"), 0);
    let run = run(arguments);
    let first = browser.send(path, &run).await;
    assert_eq!(first.status, 303, "{}", first.text());
    let second = browser.send(path, &run).await;
    assert_eq!(
        first.header("Location"),
        second.header("Location"),
        "the same key is the same call"
    );
    until_so("the call to have run", async || witness.applied("a") == 1).await;
    // To look at it, and to make it again with other arguments.
    let call = first.header("Location").to_owned();
    until_so("the page to show its end", async || {
        browser.page(&call).await.contains("state-succeeded")
    })
    .await;
    let page = browser.page(&call).await;
    assert!(
        page.contains("(&quot;toolfleet.v1.default.call.charge&quot;, "),
        "{page}"
    );
    let edited = [("arguments", "{\"what\": \"b\"}")];
    let again = browser.send(&format!("{call}/retry"), &edited).await;
    assert_eq!(again.status, 303, "{}", again.text());
    assert_ne!(again.header("Location"), call);
    until_so("the other call to have run", async || {
        witness.applied("b") == 1
    })
    .await;
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_tool_is_paused_seen_and_let_go_and_a_page_is_told_of_changes() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let browser = Browser::new(web);
    let mut ticks = EventSource::open(web.get("/console/ticks?page=%2Fconsole")).await;
    let path = "/console/protection";
    let paused = browser
        .send(
            path,
            &[
                ("do", "pause"),
                ("tool", "look"),
                ("note", "repairs"),
                ("actor", "ann"),
            ],
        )
        .await;
    assert_eq!(paused.status, 303, "{}", paused.text());
    let quick = ("Prefer", "respond-async");
    let held = id(&call(web, "look", "a", &[quick]).await);
    until_so("the page to say why it waits", async || {
        let live = browser.page("/console").await;
        live.contains(&held) && live.contains("state-held") && live.contains("repairs")
    })
    .await;
    ticks.until("changed").await;
    let page = browser.page(path).await;
    let control = hidden(&page, "control_id").to_owned();
    let lift = [
        ("control_id", control.as_str()),
        ("kind", hidden(&page, "kind")),
        ("note", "done"),
        ("actor", "ann"),
    ];
    let lifted = browser.send(path, &lift).await;
    assert_eq!(lifted.status, 303, "{}", lifted.text());
    until_so("the call to have run", async || witness.applied("a") == 1).await;
    let cancelled = browser
        .send(
            &format!("/console/calls/{held}/cancel"),
            &[("actor", "ann")],
        )
        .await;
    assert!([200, 303].contains(&cancelled.status));
    let found = browser.get(&format!("/console/find?q={held}")).await;
    assert_eq!(found.header("Location"), format!("/console/calls/{held}"));
    let nothing = browser.page("/console/find?q=no+such+key").await;
    assert!(nothing.contains("Nothing was found"));
    assert_eq!(json!(browser.get("/console/nowhere").await.status), 404);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn every_switch_of_control_can_be_turned_and_lifted() {
    let witness = Witness::start().await;
    let look = witness.tool("look", "read") + "cache: {ttl: 1m}\n";
    let quote = format!(
        "{}breaker: {{}}\nrate_limit: {{calls: 5, per: 1s}}\n",
        witness.tool("quote", "read")
    );
    let fleet = Fleet::start(Spec::with([look, quote])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let browser = Browser::new(web);
    let path = "/console/protection";
    for (switch, shown) in [
        (
            &[
                ("do", "pause"),
                ("queue", "default"),
                ("for_ms", "90"),
                ("setting", "refuse"),
                ("told", "later"),
            ][..],
            "<code>refuse</code>",
        ),
        (
            &[("do", "breaker"), ("tool", "quote"), ("position", "open")],
            "breaker",
        ),
        (
            &[
                ("do", "limit"),
                ("limit", "quote"),
                ("calls", "7"),
                ("per_ms", "2000"),
            ],
            "&quot;calls&quot;",
        ),
        (
            &[
                ("do", "set"),
                ("interceptor", "cache"),
                ("mode", "off"),
                ("tool", "look"),
            ],
            "<code>off</code>",
        ),
    ] {
        let turn = [switch, &[("note", "a test"), ("actor", "ann")]].concat();
        let turned = browser.send(path, &turn).await;
        assert_eq!(turned.status, 303, "{turn:?}: {}", turned.text());
        let page = browser.page(path).await;
        assert!(
            page.contains(shown) && page.contains("a test"),
            "{turn:?}: {page}"
        );
        let lift = [
            ("control_id", hidden(&page, "control_id")),
            ("kind", hidden(&page, "kind")),
            ("note", "done"),
            ("actor", "ann"),
        ];
        let lifted = browser.send(path, &lift).await;
        assert_eq!(lifted.status, 303, "{turn:?}: {}", lifted.text());
        assert!(!browser.page(path).await.contains("a test"), "{turn:?}");
    }
    let purge = [
        ("do", "purge"),
        ("tool", "look"),
        ("note", "a test"),
        ("actor", "ann"),
    ];
    assert_eq!(browser.send(path, &purge).await.status, 303);
    // What is no number is refused where it is asked, and what no worker has as well.
    for wrong in [
        &[
            ("do", "limit"),
            ("limit", "quote"),
            ("calls", "many"),
            ("per_ms", "1"),
        ][..],
        &[("do", "only"), ("interceptors", "nobodys, others")],
        &[("do", "fence")],
    ] {
        let turn = [wrong, &[("note", "a test"), ("actor", "ann")]].concat();
        let refused = browser.send(path, &turn).await.text();
        assert!(refused.contains("class=\"problem\""), "{turn:?}: {refused}");
        // What stood in the form is there, where there is a form.
        assert!(
            turn[0].1 == "fence" || refused.contains("value=\"a test\""),
            "{turn:?}: {refused}"
        );
    }
    let page = browser.page(path).await;
    for form in ["pause", "purge", "breaker", "limit", "set", "only"] {
        assert!(page.contains(&format!("id=\"switch-{form}\"")), "{form}");
    }
    let of_a_tenant = browser.page("/console/protection?tenant=acme").await;
    assert!(of_a_tenant.contains("switch-pause") && !of_a_tenant.contains("switch-breaker"));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn that_nats_is_away_is_said_on_every_page_and_told_to_who_follows_one() {
    const AWAY: &str = "NATS is away";
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let call = id(&call(web, "look", "a", &[]).await);
    let browser = Browser::new(web);
    let mut ticks = EventSource::open(web.get("/console/ticks?page=%2Fconsole%2Fdoubts")).await;
    assert!(!browser.page("/console/doubts").await.contains(AWAY));
    fleet.stop_nats().await;
    ticks.until("changed").await;
    for page in ["", "/doubts", "/waiting", "/workers", "/protection"] {
        let page = browser.page(&format!("/console{page}")).await;
        assert!(page.contains(AWAY), "{page}");
    }
    // What comes from Postgres is shown, and what needs a dispatcher is refused on its page.
    let shown = browser.page(&format!("/console/calls/{call}")).await;
    assert!(shown.contains(AWAY) && shown.contains("state-succeeded"));
    let pause = [
        ("do", "pause"),
        ("tool", "look"),
        ("note", "n"),
        ("actor", "ann"),
    ];
    let refused = browser.send("/console/protection", &pause).await;
    assert!(refused.text().contains("unavailable"), "{}", refused.text());
    fleet.start_nats().await;
    ticks.until("changed").await;
    until_so("the pages to be as ever", async || {
        !browser.page("/console").await.contains(AWAY)
    })
    .await;
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
