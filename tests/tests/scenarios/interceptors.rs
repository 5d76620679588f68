//! Interceptors of a program's own: what each thing that they do comes to, in both fail modes, on reads and on writes.

mod ceiling;

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fleet::{
    call::State,
    controls::ControlId,
    outcome::OutcomeWord,
    store::controls::{
        self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl,
    },
    wire::message::Message,
};
use fleet_history::explain;
use fleet_tests::{
    caller::Answer as Answered,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use worker::{
    Worker,
    interceptor::{About, Answer, CallView, Carried, EndedView, Fails, Interceptor, Verdict},
};

#[test]
fn the_example_in_the_docs_is_the_one_that_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let ceiling = read("tests/tests/scenarios/interceptors/ceiling.rs");
    let (_, ceiling) = ceiling.split_once("\n\n").unwrap();
    let docs = read("docs/interceptors.md");
    assert!(docs.contains(&format!("```rust\n{ceiling}```")));
}

/// What an interceptor of these tests does. The argument `what` of a call says it, before the first space: `refuse 1`.
#[derive(Clone)]
struct Obeys {
    about: About,
    asked: Arc<Mutex<Vec<(String, u32)>>>,
    heard: Arc<Mutex<Vec<(String, EndedView)>>>,
    /// A permit for each end that may be heard.
    hearing: Arc<Semaphore>,
    probes: Arc<AtomicUsize>,
}

impl Obeys {
    fn new(about: About) -> Self {
        Self {
            about,
            asked: Arc::default(),
            heard: Arc::default(),
            hearing: Arc::new(Semaphore::new(10_000)),
            probes: Arc::default(),
        }
    }

    fn asked(&self, what: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(asked, _)| asked == what).count()
    }

    fn heard(&self, what: &str) -> Vec<EndedView> {
        let heard = self.heard.lock().unwrap();
        let of_this = heard.iter().filter(|(heard, _)| heard == what);
        of_this.map(|(_, ended)| *ended).collect()
    }
}

fn what(call: &CallView<'_>) -> String {
    let arguments: Value = call.arguments_as().unwrap();
    arguments["what"].as_str().unwrap_or_default().to_owned()
}

impl Interceptor for Obeys {
    fn about(&self) -> About {
        self.about.clone()
    }

    async fn before(&self, call: &CallView<'_>, carried: &mut Carried) -> Verdict {
        let what = what(call);
        self.asked
            .lock()
            .unwrap()
            .push((what.clone(), call.attempt));
        self.probes
            .fetch_add(usize::from(call.is_probe), Ordering::Relaxed);
        carried.insert(what.clone());
        let is_first = self.asked(&what) == 1;
        let (act, _) = what.split_once(' ').unwrap_or((&what, ""));
        match act {
            "refuse" => Verdict::refuse("not today"),
            "refuse_again" if call.attempt > 1 => Verdict::refuse("not again"),
            "wait" if self.asked(&what) < 4 => Verdict::Wait(Duration::ZERO),
            "always_wait" => Verdict::Wait(Duration::ZERO),
            "wait_long" => Verdict::Wait(Duration::from_secs(600)),
            "panic" if is_first => panic!("as asked"),
            "sleep" if is_first => std::future::pending().await,
            "think" => {
                self.hearing.acquire().await.unwrap().forget();
                Verdict::Continue
            }
            _ => Verdict::Continue,
        }
    }

    async fn after(&self, call: &CallView<'_>, carried: &mut Carried, answer: &mut Answer) {
        assert_eq!(carried.get::<String>(), Some(&what(call)));
        let (act, _) = carried.get::<String>().unwrap().split_once(' ').unwrap();
        let changed = match answer.result() {
            Some(_) => answer.set_result(r#"{"changed": true}"#).is_ok(),
            None => answer.set_message(Message::verbatim("other words")).is_ok(),
        };
        match act {
            "after_panic" => panic!("as asked"),
            "after_sleep" => std::future::pending().await,
            "fixed" => assert!(!changed),
            _ => assert!(changed),
        }
    }

    async fn ended(&self, call: &CallView<'_>, _: &mut Carried, ended: &EndedView) {
        let permit = self.hearing.acquire().await.unwrap();
        permit.forget();
        self.heard.lock().unwrap().push((what(call), *ended));
    }
}

fn guard(fails: Fails) -> Obeys {
    let budget = Duration::from_millis(500);
    Obeys::new(About::new("guard").fails(fails).budget(budget))
}

async fn fleet_with(guard: &Obeys, tools: impl IntoIterator<Item = String>) -> Fleet {
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    let builder = Worker::builder().interceptor(guard.clone());
    fleet.add_worker_with(builder, &[]).await;
    fleet
}

async fn called(fleet: &Fleet, tool: &str, what: &str) -> Answered {
    let call = fleet.submit(tool, &json!({ "what": what }));
    let key = format!("{tool}-{what}").replace(' ', "-");
    call.key(&key)
        .patience(Duration::from_secs(30))
        .wait()
        .await
}

fn tools(witness: &Witness) -> [String; 2] {
    [
        witness.tool("look", "read"),
        witness.tool("charge", "once") + "timeout: 2s\n",
    ]
}

#[tokio::test]
async fn what_an_interceptor_does_before_a_call_runs_costs_no_attempt() {
    let witness = Witness::start().await;
    for fails in [Fails::Open, Fails::Closed] {
        let guard = guard(fails);
        let fleet = fleet_with(&guard, tools(&witness)).await;
        for (tool, untouched) in [("look", "none"), ("charge", "not_applied")] {
            let name = |act: &str| format!("{act} {tool} {fails:?}");
            let refused = called(&fleet, tool, &name("refuse")).await;
            assert_eq!(refused["state"], "failed", "{}", *refused);
            assert_eq!(refused.code(), "forbidden");
            assert_eq!(refused["effect"], untouched);
            assert_eq!(
                (&refused["attempts"], &refused["source"]),
                (&json!(0), &json!("error"))
            );
            let message = refused["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("Not today."), "{message}");
            assert_eq!(witness.asked(&name("refuse")), 0);

            for (act, asked_open, asked_closed) in
                [("wait", 4, 4), ("panic", 1, 2), ("sleep", 1, 2)]
            {
                let answer = called(&fleet, tool, &name(act)).await;
                assert_eq!(answer["state"], "succeeded", "{act} {}", *answer);
                assert_eq!(answer["attempts"], 1);
                assert_eq!(answer["result"], json!({"changed": true}));
                let asked = if fails == Fails::Open {
                    asked_open
                } else {
                    asked_closed
                };
                assert_eq!(guard.asked(&name(act)), asked, "{act} {fails:?}");
                assert_eq!(witness.applied(&name(act)), 1);
                // One remark for each reason, however often it waited.
                let remarks = fleet.events(answer.call_id()).await;
                let remarks = remarks
                    .iter()
                    .filter(|event| event["reason"] == "cannot_run");
                assert_eq!(remarks.count(), usize::from(asked > 1), "{act}");
            }
        }
        invariants::hold(&fleet, &witness).await;
    }
}

#[tokio::test]
async fn what_an_interceptor_does_to_an_answer_changes_no_effect() {
    let witness = Witness::start().await;
    let guard = guard(Fails::Closed);
    let promising = witness.tool("promise", "once")
        + "timeout: 2s\noutput_schema: {type: object, required: [kept]}\n";
    let idempotent = witness.tool("again", "idempotent") + "timeout: 500ms\n";
    let all = tools(&witness).into_iter().chain([promising, idempotent]);
    let fleet = fleet_with(&guard, all).await;

    for act in ["after_panic x", "after_sleep x"] {
        let answer = called(&fleet, "charge", act).await;
        assert_eq!(answer["state"], "succeeded", "{act} {}", *answer);
        assert_ne!(answer["result"], json!({"changed": true}), "{act}");
        assert_eq!(witness.applied(act), 1);
    }
    // The effect is unknown, and stays so.
    witness.always("change doubt", Reply::DoneThenClose);
    let doubt = called(&fleet, "charge", "change doubt").await;
    assert_eq!(
        (&doubt["state"], &doubt["effect"]),
        (&json!("in_doubt"), &json!("unknown"))
    );
    let said = doubt["error"].to_string();
    assert!(said.contains("ther words"), "{said}");
    assert_eq!(witness.applied("change doubt"), 1);
    // A no stays a no.
    witness.always("change no", Reply::No("blocked"));
    let no = called(&fleet, "charge", "change no").await;
    assert_eq!(
        (&no["state"], &no["effect"]),
        (&json!("failed"), &json!("not_applied"))
    );
    assert_eq!(no.code(), "tool_error");
    // What it made of the answer is held against the schema, and the effect stands.
    witness.always(
        "change kept",
        Reply::Body(json!({"kept": true}).to_string()),
    );
    let misfit = called(&fleet, "promise", "change kept").await;
    assert_eq!(
        (&misfit["state"], &misfit["effect"]),
        (&json!("succeeded"), &json!("applied"))
    );
    assert_eq!(misfit.code(), "output_invalid", "{}", *misfit);
    // Refused after an attempt that may have had its effect: nobody says that it had none.
    witness.always("refuse_again x", Reply::DoneThenHang);
    let again = called(&fleet, "again", "refuse_again x").await;
    assert_eq!(
        (&again["state"], &again["effect"]),
        (&json!("in_doubt"), &json!("unknown"))
    );
    assert_eq!(witness.asked("refuse_again x"), 1);
    let heard = async || guard.heard("refuse_again x").len() == 2;
    until_so("the ends to be heard", heard).await;
    let unknown = EndedView::Recorded {
        outcome: OutcomeWord::Unknown,
        state: State::Queued,
    };
    let refused = EndedView::Refused(State::InDoubt);
    assert_eq!(guard.heard("refuse_again x"), [unknown, refused]);
}

#[tokio::test]
async fn a_call_that_waits_long_says_for_whom_and_can_be_cancelled() {
    let witness = Witness::start().await;
    let guard = guard(Fails::Closed);
    let fleet = fleet_with(&guard, tools(&witness)).await;
    let call = fleet.submit("look", &json!({"what": "wait_long x"}));
    let call = call.asynchronous().await.call_id();
    until_so("the call to wait", async || {
        fleet.call(call).await["obstacle"]["lack"] == "consent"
    })
    .await;
    let facts = explain::facts(&fleet.database.pool, call).await.unwrap();
    let why = explain::explain(&facts.unwrap().read().unwrap());
    assert_eq!(why.reason, "no_consent");
    assert!(
        why.because.contains("its interceptor guard lets it wait"),
        "{why:?}"
    );
    let asked = json!({"call_id": call});
    let verdict = fleet.ask("toolfleet.v1.default.cancel", &asked).await;
    assert_eq!(verdict["result"], "cancelled", "{}", *verdict);
    until_so("its end to be heard", async || {
        !guard.heard("wait_long x").is_empty()
    })
    .await;
    assert_eq!(guard.heard("wait_long x"), [EndedView::NotStarted]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_slow_hearer_holds_no_slot_and_is_waited_for_at_the_end() {
    let witness = Witness::start().await;
    let guard = Obeys {
        hearing: Arc::new(Semaphore::new(0)),
        ..Obeys::new(About::new("guard").budget(Duration::from_secs(5)))
    };
    let mut fleet = Fleet::start(Spec::with(tools(&witness)).workers(0, &[])).await;
    let builder = Worker::builder().interceptor(guard.clone());
    fleet
        .add_worker_with(builder, &["--concurrency", "1"])
        .await;
    // With one slot: none of these waits until the end of the one before was heard.
    for n in 0..3 {
        let answer = called(&fleet, "charge", &format!("change {n}")).await;
        assert_eq!(answer["state"], "succeeded");
    }
    assert!(guard.heard.lock().unwrap().is_empty());
    guard.hearing.add_permits(10);
    fleet.workers.pop().unwrap().drain().await;
    let done = EndedView::Recorded {
        outcome: OutcomeWord::Applied,
        state: State::Succeeded,
    };
    for n in 0..3 {
        assert_eq!(guard.heard(&format!("change {n}")), [done]);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_probe_is_known_as_one_and_its_answer_is_nobodys_to_change() {
    let witness = Witness::start().await;
    let guard = guard(Fails::Closed);
    let charge = witness.tool("charge", "once")
        + "timeout: 500ms\nprobe:\n  tool: find\n  args: {what: \"fixed {{ args.what }}\"}\n  \
           applied_when: result.found == true\n  not_applied_when: result.found == false\n";
    let find = witness.tool("find", "read") + "retry: {strategy: none}\n";
    let fleet = fleet_with(&guard, [find, charge]).await;
    witness.always("change x", Reply::DoneThenClose);
    let found = json!({"found": true}).to_string();
    witness.always("fixed change x", Reply::Body(found));
    let doubt = called(&fleet, "charge", "change x").await;
    assert_eq!(doubt["state"], "in_doubt", "{}", *doubt);
    fleet.until_state(doubt.call_id(), "succeeded").await;
    assert_eq!(guard.probes.load(Ordering::Relaxed), 1);
    assert_eq!(witness.applied("change x"), 1);
}

#[tokio::test]
#[should_panic(
    expected = "the interceptors guard and audit both have the order 500; give one another"
)]
async fn equal_orders_are_refused_at_the_start() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let builder = Worker::builder()
        .interceptor(guard(Fails::Open))
        .interceptor(Obeys::new(About::new("audit")));
    fleet.add_worker_with(builder, &[]).await;
}

#[tokio::test]
async fn a_call_waits_for_a_worker_that_has_the_interceptors_of_its_tool() {
    let witness = Witness::start().await;
    let charge = witness.tool("charge", "once") + "interceptors: [guard]\n";
    let mut fleet = Fleet::start(Spec::with([charge]).workers(1, &[])).await;
    let call = fleet
        .submit("charge", &json!({"what": "change x"}))
        .key("x");
    let call = call.asynchronous().await.call_id();
    // More than once, and told of once.
    let put_back = "SELECT count(*) FROM toolfleet.open_calls WHERE publish_n > 2";
    until_so("the call to be put back again", async || {
        fleet.count(put_back).await == 1
    })
    .await;
    let row = fleet.call(call).await;
    assert_eq!(row["obstacle"]["lack"], "interceptor", "{row}");
    assert_eq!(row["attempts"], 0);
    let facts = explain::facts(&fleet.database.pool, call).await.unwrap();
    let why = explain::explain(&facts.unwrap().read().unwrap());
    assert_eq!(why.reason, "missing_interceptor");
    assert!(
        why.because
            .contains("its program does not have the interceptor guard"),
        "{why:?}"
    );
    until_so("the worker to say what it cannot run", async || {
        let said =
            "SELECT count(*) FROM toolfleet.workers WHERE cannot_run->0->>'lack' = 'interceptor'";
        fleet.count(said).await == 1
    })
    .await;
    let guard = guard(Fails::Closed);
    let builder = Worker::builder().interceptor(guard.clone());
    fleet.add_worker_with(builder, &[]).await;
    fleet.until_state(call, "succeeded").await;
    assert_eq!(
        (guard.asked("change x"), witness.applied("change x")),
        (1, 1)
    );
    let remarks = fleet.events(call).await;
    let remarks = remarks
        .iter()
        .filter(|event| event["reason"] == "cannot_run");
    assert_eq!(remarks.count(), 1);
    invariants::hold(&fleet, &witness).await;
}

/// The newest version's demand holds for callers who choose an older one.
#[tokio::test]
async fn an_older_version_gets_round_no_interceptor_that_the_newest_demands() {
    let witness = Witness::start().await;
    let look = witness.tool("look", "read");
    let mut fleet = Fleet::start(Spec::with([look.clone()]).workers(1, &[])).await;
    let newer = look.replace("version: 1", "version: 2") + "interceptors: [guard]\n";
    fleet.apply(&newer).await;
    let pinned = fleet.submit("look", &json!({"what": "x"}));
    let pinned = pinned.header("Toolfleet-Tool-Version", "1");
    let call = pinned.asynchronous().await.call_id();
    until_so("the call to wait for an interceptor", async || {
        fleet.call(call).await["obstacle"]["lack"] == "interceptor"
    })
    .await;
    assert_eq!(witness.asked("x"), 0);
    let builder = Worker::builder().interceptor(guard(Fails::Closed));
    fleet.add_worker_with(builder, &[]).await;
    fleet.until_state(call, "succeeded").await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_interceptors_do_is_counted_over_the_fleet() {
    let witness = Witness::start().await;
    let guard = guard(Fails::Open);
    let mut fleet = Fleet::start(Spec::with(tools(&witness)).workers(1, &[])).await;
    let builder = Worker::builder().interceptor(guard.clone());
    fleet.add_worker_with(builder, &[]).await;
    fleet.workers.remove(0).drain().await;
    for what in ["refuse x", "panic x", "after_panic 4111", "change x"] {
        called(&fleet, "charge", what).await;
    }
    until_so("the counts to be written", async || {
        let written = "SELECT count(*) FROM toolfleet.interceptors WHERE calls = 4";
        fleet.count(written).await == 1
    })
    .await;
    let rows = fleet_history::interceptors::interceptors(&fleet.database.pool)
        .await
        .unwrap();
    let [row] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    let row = row.read().unwrap();
    assert_eq!(
        (row.name.as_str(), row.order, row.mandatory),
        ("guard", Some(500), Some(false))
    );
    assert_eq!((row.workers, row.differ, row.lacking.len()), (1, false, 0));
    // The third answer was changed, too, but its hook has failed.
    assert_eq!(
        (row.refused, row.waited, row.changed, row.errors),
        (1, 0, 2, 2)
    );
    let error = row.last_error.unwrap();
    assert_eq!(error, "after: it panicked: as asked");
    invariants::hold(&fleet, &witness).await;
}

/// Says what the guard may do in all calls, or in those of a tool.
async fn mode(fleet: &Fleet, tool: Option<&str>, setting: &'static str) -> i64 {
    let kind = match setting.starts_with('[') {
        true => ControlKind::Only,
        false => ControlKind::Mode,
    };
    let control = NewControl {
        kind,
        scope: ControlScope {
            tool,
            subject: (kind == ControlKind::Mode).then_some("guard"),
            ..ControlScope::default()
        },
        setting,
        told: None,
        actor: "ada",
        note: "a test",
        for_ms: None,
        in_tenant: None,
    };
    let set = controls::set(&fleet.database.pool, &control).await.unwrap();
    let ControlSet::Set(control) = set else {
        panic!("{set:?}")
    };
    fleet.ring().await;
    let control: Value = serde_json::from_str(&control).unwrap();
    control["control_id"].as_i64().unwrap()
}

async fn unset(fleet: &Fleet, id: i64) {
    let unset = Unset {
        which: WhichControl::Id(ControlId(id)),
        actor: "ada",
        note: "a test",
        in_tenant: None,
    };
    let was = controls::unset(&fleet.database.pool, &unset).await.unwrap();
    assert!(was.is_some());
    fleet.ring().await;
}

/// Calls until a call of this tool ends so, each a new one.
async fn until_it_ends(fleet: &Fleet, tool: &str, act: &str, state: &str) {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    until_so(&format!("{act} of {tool} to be {state}"), async || {
        let n = CALLS.fetch_add(1, Ordering::Relaxed);
        let answer = called(fleet, tool, &format!("{act} {state} {n}")).await;
        answer["state"] == state
    })
    .await;
}

#[tokio::test]
async fn what_an_operator_says_of_an_interceptor_holds_for_the_next_call() {
    let witness = Witness::start().await;
    let guard = guard(Fails::Closed);
    let fleet = fleet_with(&guard, tools(&witness)).await;
    until_it_ends(&fleet, "look", "refuse", "failed").await;

    let all = mode(&fleet, None, "\"observe\"").await;
    until_it_ends(&fleet, "look", "refuse", "succeeded").await;
    // It is asked, and changes nothing.
    let observed = called(&fleet, "look", "change observed").await;
    assert_ne!(observed["result"], json!({"changed": true}));
    assert_eq!(guard.asked("change observed"), 1);

    let of_tool = mode(&fleet, Some("charge"), "\"off\"").await;
    until_so("it to be asked no more", async || {
        let what = format!("change off {}", guard.asked.lock().unwrap().len());
        called(&fleet, "charge", &what).await;
        guard.asked(&what) == 0
    })
    .await;
    let looked = called(&fleet, "look", "change looked").await;
    assert_eq!((looked.code(), guard.asked("change looked")), ("", 1));
    unset(&fleet, of_tool).await;
    unset(&fleet, all).await;
    until_it_ends(&fleet, "charge", "refuse", "failed").await;

    let none = mode(&fleet, None, "[]").await;
    until_it_ends(&fleet, "charge", "refuse", "succeeded").await;
    unset(&fleet, none).await;
    until_it_ends(&fleet, "charge", "refuse", "failed").await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_under_way_keeps_the_list_that_it_began_with() {
    let witness = Witness::start().await;
    let guard = guard(Fails::Closed);
    let fleet = fleet_with(&guard, tools(&witness)).await;
    witness.always("change under way", Reply::DoneWhenReleased);
    let call = fleet.submit("look", &json!({"what": "change under way"}));
    let call = call.asynchronous().await.call_id();
    witness.until_asked("change under way", 1).await;
    mode(&fleet, None, "\"off\"").await;
    until_it_ends(&fleet, "look", "refuse", "succeeded").await;
    witness.release("change under way");
    let ended = fleet.until_state(call, "succeeded").await;
    assert_eq!(ended["result"], json!({"changed": true}));
    let heard = async || guard.heard("change under way").len() == 1;
    until_so("its end to be heard", heard).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_pause_holds_that_comes_while_an_interceptor_thinks() {
    let witness = Witness::start().await;
    let guard = Obeys {
        hearing: Arc::new(Semaphore::new(0)),
        ..Obeys::new(About::new("guard").budget(About::BUDGET_MAX))
    };
    let fleet = fleet_with(&guard, tools(&witness)).await;
    let submit = async |what: &str| {
        let call = fleet.submit("look", &json!({ "what": what }));
        call.asynchronous().await.call_id()
    };
    let comes_again = submit("always_wait y").await;
    let thinking = submit("think x").await;
    until_so("it to think", async || guard.asked("think x") == 1).await;
    let pause = NewControl {
        kind: ControlKind::Pause,
        scope: ControlScope {
            tool: Some("look"),
            ..ControlScope::default()
        },
        setting: "\"wait\"",
        told: None,
        actor: "ada",
        note: "a test",
        for_ms: None,
        in_tenant: None,
    };
    let set = controls::set(&fleet.database.pool, &pause).await.unwrap();
    assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
    fleet.ring().await;
    let is_paused = async |call| fleet.call(call).await["held_why"] == "pause";
    // It is past the door, so it is the worker that puts it aside.
    until_so("the worker to know", async || is_paused(comes_again).await).await;
    guard.hearing.add_permits(100);
    until_so("the call to be paused", async || is_paused(thinking).await).await;
    assert_eq!(witness.asked("think x"), 0);
}
