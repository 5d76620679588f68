//! The names under which a task asks: each question has one of its own, so that an old answer is none to a new question.
//!
//! A name is that of the tool, or ours, and behind it the round in which the call asked first. What is asked once more because a client has
//! answered a part keeps its name. That is in the memory of this gateway: elsewhere it is asked under a new name, which asks for it again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use fleet::ids::CallId;

use super::asking::CallQuestion;

/// The most calls whose names are kept: of more the oldest go.
const CALLS_MAX: usize = 1_024;
/// How many characters of a round stand in a name.
const ROUND: usize = 12;

/// The names that are kept, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct QuestionNames(Mutex<VecDeque<KeptNames>>);

/// The names of what a call asks once more.
#[derive(Debug)]
struct KeptNames {
    call: CallId,
    /// Of the question that asks for it.
    round: String,
    /// The round in which it was asked first, by the name of the tool.
    first: BTreeMap<String, String>,
}

impl QuestionNames {
    /// The name of what a question asks for under this one.
    pub(super) fn name(&self, question: &CallQuestion, own: &str) -> String {
        let round = question.round();
        let kept = self.kept();
        let of_question = kept
            .iter()
            .find(|kept| kept.call == question.call && kept.round == round);
        let first = of_question.and_then(|kept| kept.first.get(own));
        format!("{own}-{}", &first.unwrap_or(&round)[..ROUND])
    }

    /// What a question asks for under this name; `None`: nothing, as of one before it.
    pub(super) fn own<'a>(&self, question: &CallQuestion, name: &'a str) -> Option<&'a str> {
        let (own, _round) = name.rsplit_once('-')?;
        (self.name(question, own) == name).then_some(own)
    }

    /// Keeps the names of what the question `after` asks once more because `is_answered` is true of a part only of the one before it.
    pub(super) fn keep(
        &self,
        before: &CallQuestion,
        is_answered: impl Fn(&str) -> bool,
        after: &CallQuestion,
    ) {
        let is_same = |name: &str, request: &str| {
            let mut asked = before.requests();
            asked.any(|(known, asked)| known == name && asked.get() == request)
        };
        let open = after.requests().filter(|(name, _)| !is_answered(name));
        let open = open.filter(|(name, request)| is_same(name, request.get()));
        let first: BTreeMap<String, String> = open
            .map(|(own, _)| {
                let named = self.name(before, own);
                (own.to_owned(), named[own.len() + 1..].to_owned())
            })
            .collect();
        let mut kept = self.kept();
        kept.retain(|kept| kept.call != after.call);
        if first.is_empty() || before.round() == after.round() {
            return;
        }
        if kept.len() >= CALLS_MAX {
            kept.pop_front();
        }
        kept.push_back(KeptNames {
            call: after.call,
            round: after.round(),
            first,
        });
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<KeptNames>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use fleet::call::Language;
    use serde_json::{Value, json};

    use super::*;

    fn asks(call: CallId, token: &str, requests: &Value) -> CallQuestion {
        let awaiting =
            json!({"for": "input", "token": token, "requests": {"inputRequests": requests}});
        let envelope =
            json!({"call_id": call, "tool": "t", "state": "awaiting_client", "awaiting": awaiting});
        CallQuestion::of(envelope.to_string().as_bytes(), None, Language::En).unwrap()
    }

    fn form(message: &str) -> Value {
        json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": {"type": "object", "properties": {}}}})
    }

    #[test]
    fn an_old_name_asks_for_nothing_and_what_is_asked_once_more_keeps_its_own() {
        let (names, call) = (QuestionNames::default(), CallId::generate());
        let both = json!({"a": form("A?"), "b-x": form("B?"), "c": form("C?")});
        let first = asks(call, "one", &both);
        let (a, b) = (names.name(&first, "a"), names.name(&first, "b-x"));
        assert_eq!(
            (names.own(&first, &a), names.own(&first, &b)),
            (Some("a"), Some("b-x"))
        );
        for nothing in ["a", "", "-", "b-x", &a.replace('a', "c-")] {
            assert_eq!(names.own(&first, nothing), None, "{nothing}");
        }
        // The same question again, without a part having been answered.
        let again = asks(call, "two", &both);
        assert_eq!(names.own(&again, &a), None);
        // A part was answered: another question under a name that is open is a new one.
        let rest = json!({"a": form("A?"), "b-x": form("B?"), "c": form("Another?")});
        let second = asks(call, "two", &rest);
        names.keep(&first, |name| name == "a", &second);
        assert_eq!(names.name(&second, "b-x"), b);
        assert_eq!(names.own(&second, &b), Some("b-x"));
        assert_eq!(names.own(&second, &a), None);
        assert_ne!(names.name(&second, "c"), names.name(&first, "c"));
        // It keeps its name as long as it is asked.
        let third = asks(call, "three", &json!({"b-x": form("B?")}));
        names.keep(&second, |name| name != "b-x", &third);
        assert_eq!(names.name(&third, "b-x"), b);
        let fourth = asks(call, "four", &json!({"b-x": form("B?")}));
        names.keep(&third, |_name| true, &fourth);
        assert_ne!(names.name(&fourth, "b-x"), b);
        assert!(names.kept().is_empty());
        for _ in 0..=CALLS_MAX {
            let call = CallId::generate();
            let (first, second) = (asks(call, "one", &both), asks(call, "two", &both));
            names.keep(&first, |name| name == "a", &second);
        }
        assert_eq!(names.kept().len(), CALLS_MAX);
    }
}
