//! A batch: good calls, calls that must be refused, and calls that are in it twice.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json, value::RawValue};

use super::{
    call::{Call, HOSTILE_KEY},
    desk::{Question, Request},
    hostile::Hostile,
    submit::{Client, SLACK, TRIES, id_of, sent_away},
};
use crate::{history::Op, seed};

/// How many of its calls a client waits for afterwards.
const ATTACHED: usize = 4;
/// Each as often as this of a hundred; the others are good.
const TWICE: u64 = 8;
const REFUSED: u64 = 10;

/// One call of a batch.
#[derive(Debug, Clone)]
struct Item {
    call: Arc<Call>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Good,
    /// A good one that stands further up.
    Again,
    Hostile(Hostile),
    NoSuchTool,
}

const NO_TOOL: &str = "no_such_tool";

impl Item {
    fn question(&self) -> Question {
        let mut question = Question::new(Op::Batch, &self.call);
        question.key = Some(self.key());
        if self.kind == Kind::NoSuchTool {
            NO_TOOL.clone_into(&mut question.tool);
        }
        question
    }

    fn key(&self) -> String {
        match self.kind {
            Kind::Good | Kind::Again => self.call.key.clone(),
            Kind::Hostile(_) | Kind::NoSuchTool => format!("{HOSTILE_KEY}{}", self.call.key),
        }
    }

    /// The code with which it must be refused.
    const fn refused_with(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Good | Kind::Again => None,
            Kind::Hostile(hostile) => Some(hostile.code()),
            Kind::NoSuchTool => Some("unknown_tool"),
        }
    }

    /// As text, for a value could not hold what is wrong with some.
    fn text(&self) -> String {
        let args = match self.kind {
            Kind::Hostile(hostile) => hostile.text(self.call.n),
            _ => self.call.args.to_string(),
        };
        let tool = match self.kind {
            Kind::NoSuchTool => NO_TOOL,
            _ => self.call.tool.name,
        };
        let mut fields = BTreeMap::from([
            ("tool".to_owned(), json!(tool).to_string()),
            ("args".to_owned(), args),
            ("idempotency_key".to_owned(), json!(self.key()).to_string()),
        ]);
        for (header, value) in &self.call.headers {
            let (name, value) = match *header {
                "Toolfleet-Deadline-Ms" => ("deadline_ms", value.clone()),
                header => {
                    let name = header.trim_start_matches("Toolfleet-");
                    (name, json!(value).to_string())
                }
            };
            fields.insert(name.to_lowercase(), value);
        }
        let raw = fields.into_iter().map(|(name, text)| {
            let value = RawValue::from_string(text).expect("each is JSON");
            (name, value)
        });
        serde_json::to_string(&raw.collect::<BTreeMap<_, _>>()).expect("its keys are strings")
    }
}

/// The calls of a batch that begins with this one: of each number what that number says, but for what it is here.
fn items(seed: u64, first: &Call, more: u64) -> Vec<Item> {
    let mut items = vec![Item {
        call: Arc::new(first.clone()),
        kind: Kind::Good,
    }];
    for n in first.n + 1..=first.n + more {
        let lot = seed::below(seed, n, "item", 100);
        let item = if lot < TWICE {
            let all = u64::try_from(items.len()).expect("a batch is small");
            let index = usize::try_from(seed::below(seed, n, "again", all)).expect("it is small");
            match &items[index] {
                Item { call, kind } if *kind == Kind::Good => Item {
                    call: Arc::clone(call),
                    kind: Kind::Again,
                },
                other => other.clone(),
            }
        } else {
            let call = Arc::new(Call::as_item(seed, n));
            let kind = if call.tenant() != first.tenant() {
                // Its tenant sends no batch.
                Kind::NoSuchTool
            } else if lot >= TWICE + REFUSED {
                Kind::Good
            } else if seed::happens(seed, n, "no tool", 250) {
                Kind::NoSuchTool
            } else {
                Kind::Hostile(Hostile::drawn_in_batch(seed, n))
            };
            Item { call, kind }
        };
        items.push(item);
    }
    items
}

impl Client {
    /// Submits calls as one batch, again as long as any of it has no answer, and waits for some of them.
    pub(super) async fn batch(&self, first: &Call, more: u64) {
        let items = items(self.desk.seed, first, more);
        for item in items.iter().skip(1) {
            if item.kind != Kind::Again {
                self.desk.begun();
            }
        }
        let texts: Vec<_> = items.iter().map(Item::text).collect();
        let request = Request {
            body: format!(r#"{{"calls":[{}]}}"#, texts.join(",")).into(),
            ..Request::new("batch", &Value::Null, first.wait + SLACK)
        };
        let questions: Vec<_> = items.iter().map(Item::question).collect();
        let Some(answers) = self.insist(first, &questions, request).await else {
            return;
        };
        self.hold_against(&items, &answers);
        let accepted = items.iter().zip(&answers);
        let accepted = accepted.filter(|(item, _)| item.kind == Kind::Good);
        for (item, answer) in accepted.take(ATTACHED) {
            if let Some(id) = id_of(answer)
                && let Some(answer) = self.attach(&item.call, &id).await
            {
                self.settle_doubt(&item.call, &answer).await;
            }
        }
    }

    async fn insist(
        &self,
        first: &Call,
        questions: &[Question],
        request: Request,
    ) -> Option<Vec<Value>> {
        let many = questions.len();
        for attempt in 0..TRIES {
            // Refused as a whole, each of its calls was refused.
            let split = move |answer: Value| match answer {
                Value::Object(mut fields) if fields.contains_key("items") => {
                    match fields.remove("items") {
                        Some(Value::Array(items)) => items,
                        _ => Vec::new(),
                    }
                }
                refusal => vec![refusal; many],
            };
            let asking = self
                .desk
                .ask_all(self.id, questions, request.clone(), split);
            match asking.await {
                Some(answers) if !answers.iter().any(sent_away) => return Some(answers),
                _ if self.desk.stop.is_cancelled() => return None,
                _ => self.pause(first, attempt).await,
            }
        }
        None
    }

    fn hold_against(&self, items: &[Item], answers: &[Value]) {
        let mut calls = BTreeMap::new();
        for (item, answer) in items.iter().zip(answers) {
            if let Some(expected) = item.refused_with() {
                self.held_off(expected, answer);
            } else if let Some(id) = id_of(answer) {
                let first = calls.entry(item.key()).or_insert_with(|| id.clone());
                if *first != id {
                    let key = item.key();
                    self.desk
                        .surprised(format!("key {key} has two calls, {first} and {id}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_the_same_in_every_run_and_has_some_of_everything() {
        let kinds: Vec<_> = (0..20)
            .flat_map(|n| {
                let first = Call::as_item(5, n * 100);
                let batch = items(5, &first, 40);
                let again = items(5, &first, 40);
                for (one, two) in batch.iter().zip(&again) {
                    assert_eq!(one.text(), two.text());
                }
                assert_eq!((batch.len(), batch[0].kind), (41, Kind::Good));
                batch.into_iter().map(|item| item.kind).collect::<Vec<_>>()
            })
            .collect();
        let many = |wanted: fn(&Kind) -> bool| kinds.iter().filter(|kind| wanted(kind)).count();
        assert!(many(|kind| *kind == Kind::Good) > 500);
        assert!(many(|kind| *kind == Kind::Again) > 20);
        assert!(many(|kind| *kind == Kind::NoSuchTool) > 5);
        assert!(many(|kind| matches!(kind, Kind::Hostile(_))) > 20);
    }
}
