//! The tools that a model is reminded of: those that are agents of their own, and better at some things.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{executor::ExecutorSpec, problem::Problems};
use crate::{ids::ToolName, terms};

/// A tool that a model is reminded of where the last message of the user is about its matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegate {
    /// The tool.
    pub tool: ToolName,
    /// What its matter is known by.
    pub keywords: Vec<Keyword>,
    /// How much the keywords in a message must weigh together.
    #[serde(default = "Delegate::default_min_score")]
    pub min_score: u32,
}

/// A word, or a few, that stand in messages about a matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keyword {
    /// The word.
    pub word: String,
    /// How much it says, 1 to 10.
    #[serde(default = "Keyword::default_weight")]
    pub weight: u32,
}

impl Keyword {
    const fn default_weight() -> u32 {
        1
    }

    /// The words and Chinese characters that have to stand in a message, one behind the other.
    pub fn sequence(&self) -> Vec<String> {
        terms::sequence(&self.word)
    }

    /// Why it is none; `None`: it is one.
    fn unfit(&self) -> Option<&'static str> {
        if self.word.trim() != self.word {
            Some("it begins or ends with a space; write the word alone")
        } else if self.sequence().is_empty() {
            Some(
                "it has no letter and no digit, or is longer than a word, so no message has it; write a word, not a pattern",
            )
        } else if terms::says_nothing(&self.word) {
            Some(
                "it stands in nearly every message; write a word of the tool's matter, in Chinese one of two or more characters",
            )
        } else {
            None
        }
    }
}

impl Delegate {
    const fn default_min_score() -> u32 {
        5
    }

    /// Everything that is wrong with the delegates of the tool of this name that is run so.
    pub(super) fn check_all(
        delegates: &[Self],
        tool: &ToolName,
        executor: &ExecutorSpec,
        problems: &mut Problems,
    ) {
        if !delegates.is_empty() && !matches!(executor, ExecutorSpec::Chat(_)) {
            problems.add(
                "/delegates",
                "only a model is reminded of other tools, and this is no chat tool; leave delegates out",
            );
        }
        for (n, delegate) in delegates.iter().enumerate() {
            let place = format!("/delegates/{n}");
            let before = &delegates[..n];
            if delegate.tool == *tool {
                problems.add(
                    format!("{place}/tool"),
                    format!("{tool} is the model itself; name another tool"),
                );
            } else if let Some(first) = before.iter().position(|other| other.tool == delegate.tool)
            {
                problems.add(
                    format!("{place}/tool"),
                    format!(
                        "{} stands in delegate {first} too; write its keywords in one place",
                        delegate.tool
                    ),
                );
            }
            delegate.check(&place, problems);
        }
    }

    fn check(&self, place: &str, problems: &mut Problems) {
        let mut seen = HashSet::new();
        for (n, keyword) in self.keywords.iter().enumerate() {
            let place = format!("{place}/keywords/{n}/word");
            if let Some(why) = keyword.unfit() {
                problems.add(place, why);
            } else if !seen.insert(keyword.sequence()) {
                problems.add(
                    place,
                    format!("{:?} stands here twice, perhaps in another form; give one of them the whole weight", keyword.word),
                );
            }
        }
        let most: u32 = self.keywords.iter().map(|keyword| keyword.weight).sum();
        if self.min_score > most {
            problems.add(
                format!("{place}/min_score"),
                format!("all keywords together weigh {most}, so no message is enough; write at most that, or larger weights"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problems(delegates: &Value) -> Vec<String> {
        let delegates: Vec<Delegate> = serde_json::from_value(delegates.clone()).unwrap();
        let executor = json!({"chat": {"protocol": "anthropic", "routes": [{"name": "r", "url": "https://x/", "model": "m"}]}});
        let executor: ExecutorSpec = serde_json::from_value(executor).unwrap();
        let mut found = Problems::default();
        let own = "ask_model".parse().unwrap();
        Delegate::check_all(&delegates, &own, &executor, &mut found);
        let told = |problem: &super::super::ManifestProblem| {
            format!("{} {}", problem.path, problem.message)
        };
        found.found.iter().map(told).collect()
    }

    fn of_words(words: &[&str]) -> Value {
        let keywords: Vec<_> = words
            .iter()
            .map(|word| json!({"word": word, "weight": 5}))
            .collect();
        json!([{"tool": "billing_agent", "keywords": keywords}])
    }

    #[test]
    fn keywords_are_words_that_some_messages_have() {
        for words in [
            &["refund", "退款", "credit note", "发票"][..],
            &["C"],
            &["the bill"],
        ] {
            assert_eq!(problems(&of_words(words)), [""; 0], "{words:?}");
        }
        for (words, begins) in [
            (
                &["refund", ""][..],
                "/delegates/0/keywords/1/word it has no letter",
            ),
            (&["*"], "/delegates/0/keywords/0/word it has no letter"),
            (&[".*"], "/delegates/0/keywords/0/word it has no letter"),
            (
                &[" refund"],
                "/delegates/0/keywords/0/word it begins or ends with a space",
            ),
            (
                &["the"],
                "/delegates/0/keywords/0/word it stands in nearly every message",
            ),
            (
                &["我"],
                "/delegates/0/keywords/0/word it stands in nearly every message",
            ),
            (
                &["refund", "Refunds"],
                "/delegates/0/keywords/1/word \"Refunds\" stands here twice",
            ),
        ] {
            let found = problems(&of_words(words));
            assert!(
                found.len() == 1 && found[0].starts_with(begins),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_delegate_is_another_tool_that_some_message_is_enough_for() {
        let of = |tool: &str, min_score: u32| json!({"tool": tool, "min_score": min_score, "keywords": [{"word": "refund", "weight": 5}, {"word": "bill"}]});
        for (delegates, begins) in [
            (json!([of("billing", 6), of("travel", 1)]), None),
            (
                json!([of("billing", 7)]),
                Some("/delegates/0/min_score all keywords together weigh 6"),
            ),
            (
                json!([of("ask_model", 5)]),
                Some("/delegates/0/tool ask_model is the model itself"),
            ),
            (
                json!([of("billing", 5), of("billing", 5)]),
                Some("/delegates/1/tool billing stands in delegate 0 too"),
            ),
        ] {
            let found = problems(&delegates);
            match begins {
                None => assert!(found.is_empty(), "{found:?}"),
                Some(begins) => assert!(
                    found.len() == 1 && found[0].starts_with(begins),
                    "{found:?}"
                ),
            }
        }
    }
}
