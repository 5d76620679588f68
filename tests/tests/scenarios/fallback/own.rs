//! The interceptors of a worker's own program have their say about a tool that is asked in the place of another one.

use std::sync::{Arc, Mutex};

use fleet::outcome::OutcomeWord;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;
use worker::{
    Worker,
    interceptor::{About, Answer, CallView, Carried, EndedView, Interceptor, Verdict},
};

use super::{ask, stands_in, tool};

/// Refuses calls of one tool, changes the answers of another, and hears how all of them end.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Vec<(String, EndedView)>>>);

impl Interceptor for Watch {
    fn about(&self) -> About {
        About::new("watch")
    }

    async fn before(&self, call: &CallView<'_>, _: &mut Carried) -> Verdict {
        match call.tool.as_str() {
            "denied" => Verdict::refuse("not this one"),
            _ => Verdict::Continue,
        }
    }

    async fn after(&self, call: &CallView<'_>, _: &mut Carried, answer: &mut Answer) {
        if call.tool.as_str() == "other" {
            answer.set_result(r#"{"changed": true}"#).unwrap();
        }
    }

    async fn ended(&self, call: &CallView<'_>, _: &mut Carried, ended: &EndedView) {
        let mut heard = self.0.lock().unwrap();
        heard.push((call.tool.to_string(), *ended));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interceptors_have_their_say_about_another_tool() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("other", "read"),
        witness.tool("denied", "read"),
        tool(
            &witness,
            "look",
            "{tool: {name: other, args: {what: other}}}",
        ),
        tool(
            &witness,
            "find",
            "{tool: {name: denied, args: {what: denied}}, stub: 1}",
        ),
    ];
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    let watch = Watch::default();
    let builder = Worker::builder().interceptor(watch.clone());
    fleet.add_worker_with(builder, &[]).await;
    witness.always("x", Reply::Status(503));
    let answer = ask(&fleet, "look", "x").wait().await;
    stands_in(&answer, "other", "unavailable");
    assert_eq!(answer["result"], json!({"changed": true}));
    stands_in(
        &ask(&fleet, "find", "x").wait().await,
        "stub",
        "unavailable",
    );
    assert_eq!((witness.asked("other"), witness.asked("denied")), (1, 0));
    let heard = |tool: &str, view: EndedView| {
        let heard = watch.0.lock().unwrap();
        heard.contains(&(tool.to_owned(), view))
    };
    until_so("all ends to be heard", async || {
        heard("other", EndedView::StoodIn(OutcomeWord::Applied))
            && heard("denied", EndedView::NotStarted)
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}
