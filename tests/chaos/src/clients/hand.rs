//! The program of a caller that runs a tool itself: does what its call says, and hands in what came of it.
//!
//! It is told how to behave as any tool is. It may die before it has done it or after, and answer when its time is over.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    call::Call,
    desk::Question,
    submit::{AT_ONCE, Client, TRIES, code, is_refused},
    summary::is_terminal,
    waited::Waited,
};
use crate::{
    effects::{Did, File, Mode},
    history::Op,
    seed::weighted,
};

/// How often it hands in the same answer, and whether it hands in another one after that.
#[derive(Debug, Clone, Copy)]
enum Habit {
    Once,
    /// Again when it has been told that it counts, and then another one.
    Twice,
    /// Twice at the same moment.
    Doubled,
}

const HABITS: &[(Habit, u64)] = &[(Habit::Once, 6), (Habit::Twice, 3), (Habit::Doubled, 1)];
/// How long it takes where it is slow.
const SLOW: Duration = Duration::from_secs(1);
/// Its time, and how much later at most it answers where it is late, in milliseconds.
const TIME: Duration = Duration::from_millis(3_200);
const LATE_MS: u64 = 3_000;

impl Client {
    /// Runs a call that was handed out.
    pub(super) async fn run_handed(&self, call: &Call, waited: &Waited, file: Arc<File>) {
        let hand = Hand {
            client: self,
            call,
            waited,
            file,
        };
        hand.run().await;
    }
}

/// A call in hand.
struct Hand<'a> {
    client: &'a Client,
    call: &'a Call,
    waited: &'a Waited,
    file: Arc<File>,
}

impl Hand<'_> {
    async fn run(self) {
        let broken = || json!({ "error": {"message": "it broke", "code": "EIO"} });
        self.note(Did::Started).await;
        match self.call.mode {
            Mode::Business => {
                let no =
                    json!({ "error": {"message": "there is no such thing"}, "not_done": true });
                self.answer(&no).await;
            }
            Mode::ErrorBefore => self.answer(&broken()).await,
            Mode::ErrorAfter => {
                self.apply().await;
                self.answer(&broken()).await;
            }
            Mode::HangBefore => {}
            Mode::HangAfter => self.apply().await,
            Mode::Late => {
                self.apply().await;
                let late = self.call.below(self.client.desk.seed, "late", LATE_MS);
                let late = TIME + Duration::from_millis(late);
                self.client.desk.pause(late).await;
                self.answer(&self.done()).await;
            }
            Mode::Garbage => {
                self.apply().await;
                let misfit = json!({ "result": {"n": "seven"} });
                let told = self.hand_in(Op::BadOutput, &misfit).await;
                if let Some(told) = told.filter(|told| !is_refused(told)) {
                    self.surprised("what its tool may not answer was taken", &told);
                }
                self.answer(&self.done()).await;
            }
            Mode::Slow => {
                self.client.desk.pause(SLOW).await;
                self.apply().await;
                self.answer(&self.done()).await;
            }
            _ => {
                self.apply().await;
                self.answer(&self.done()).await;
            }
        }
    }

    fn done(&self) -> Value {
        json!({ "result": {"n": self.call.n} })
    }

    /// Hands it in, as often as it is its habit.
    async fn answer(&self, body: &Value) {
        self.note(Did::Replied).await;
        match weighted(self.client.desk.seed, self.call.n, "habit", HABITS) {
            Habit::Once => drop(self.hand_in(Op::Output, body).await),
            Habit::Doubled => {
                let both = [Op::Output; 2].map(|op| self.hand_in(op, body));
                futures_util::future::join_all(both).await;
            }
            Habit::Twice => {
                let first = self.hand_in(Op::Output, body).await;
                let again = self.hand_in(Op::Output, body).await;
                if !first.is_some_and(|first| is_terminal(&first)) {
                    return;
                }
                if let Some(again) = again.filter(|again| !is_terminal(again)) {
                    self.surprised("the same answer again was not taken", &again);
                }
                // Only now: it would count if the first had not. Of the same kind: who takes back a no raises an alarm.
                let mut other = body.clone();
                match other.get_mut("error") {
                    Some(error) => error["message"] = "something else".into(),
                    None => other["result"]["other"] = true.into(),
                }
                let other = self.hand_in(Op::OtherOutput, &other).await;
                if let Some(other) = other.filter(|other| code(other) != "conflict") {
                    self.surprised("another answer is no conflict", &other);
                }
            }
        }
    }

    async fn hand_in(&self, op: Op, body: &Value) -> Option<Value> {
        let mut body = body.clone();
        body["call_id"] = self.waited.call_id.as_str().into();
        body["token"] = self.waited.token.clone().into();
        let mut told = None;
        for attempt in 0..TRIES {
            let question = Question::about(op, self.call, &self.waited.call_id);
            let asking = self
                .client
                .ask(self.call, question, "output", &body, AT_ONCE);
            told = asking.await;
            // Somebody else moves the call at this moment.
            let too_early = |told: &Value| told["error"]["retryable"] == true;
            if !told.as_ref().is_some_and(too_early) {
                break;
            }
            self.client.pause(self.call, attempt).await;
        }
        told
    }

    /// What is done is on disk before it is told.
    async fn apply(&self) {
        if self.call.tool.effect.may_doubt() {
            self.note(Did::Applied).await;
        }
    }

    async fn note(&self, did: Did) {
        let (tool, call) = (self.call.tool.name, self.waited.call_id.clone());
        let (file, told) = (Arc::clone(&self.file), (self.call.n, self.call.mode));
        let noting = move || file.note_handed(tool, &call, told, did);
        let noted = tokio::task::spawn_blocking(noting).await;
        if let Err(error) = noted.expect("writing does not panic") {
            let what = format!("the file of effects cannot be written: {error}");
            self.client.desk.surprised(what);
        }
    }

    fn surprised(&self, what: &str, told: &Value) {
        let id = &self.waited.call_id;
        self.client
            .desk
            .surprised(format!("{what} of call {id}: {told}"));
    }
}
