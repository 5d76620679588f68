//! Of which other tool a model is reminded.

use std::collections::HashMap;

use fleet::{ids::ToolName, manifest::Delegate, said, terms, wire::message::Message};

/// How much of a message is looked at, in bytes: half of it from the beginning, and half to the end.
const TEXT_MAX: usize = 64 * 1024;

/// The tool that a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::executors::chat) struct DelegateMatch<'m> {
    /// The tool.
    pub(in crate::executors::chat) tool: &'m ToolName,
    /// How much the keywords weigh that stand in the message.
    pub(in crate::executors::chat) score: u32,
}

/// The delegate whose keywords weigh most in the last message of the user, of equals the first; `None`: none weighs enough.
///
/// Each keyword counts once, wherever it stands. It is the user's text alone that is looked at, and nothing in it has another meaning.
pub(in crate::executors::chat) fn best<'m>(
    delegates: &'m [Delegate],
    last_message: &str,
) -> Option<DelegateMatch<'m>> {
    let said = SaidSequence::of(last_message);
    let scored = delegates.iter().filter_map(|delegate| {
        let keywords = delegate.keywords.iter();
        let present = keywords.filter(|keyword| said.has(&keyword.sequence()));
        let score = present.map(|keyword| keyword.weight).sum();
        let tool = &delegate.tool;
        (score >= delegate.min_score).then_some(DelegateMatch { tool, score })
    });
    scored.reduce(|best, next| if next.score > best.score { next } else { best })
}

/// What the model is told: one line, which says nothing that the user has written.
pub(in crate::executors::chat) fn hint(found: &DelegateMatch<'_>) -> Message {
    let tool = found.tool;
    said!(
        "Hint, not written by the user: the tool {tool} is made for what the last message asks. Call it rather than answering yourself, and give it the whole task: it does not see this conversation.",
        "提示（并非用户所写）：工具 {tool} 专门处理最后一条消息所要求的事情。请调用它而不要自己回答，并写明完整任务，因为它看不到这段对话。"
    )
}

/// The words of a message in their order.
struct SaidSequence {
    words: Vec<String>,
    /// Where each stands.
    places: HashMap<String, Vec<usize>>,
}

impl SaidSequence {
    fn of(text: &str) -> Self {
        let (begin, end) = ends(text);
        let mut words = terms::sequence(begin);
        words.extend(terms::sequence(end));
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, word) in words.iter().enumerate() {
            places.entry(word.clone()).or_default().push(place);
        }
        Self { words, places }
    }

    /// Whether these words stand in it, one behind the other.
    fn has(&self, phrase: &[String]) -> bool {
        let first = phrase.first().and_then(|first| self.places.get(first));
        let mut places = first.into_iter().flatten();
        places.any(|place| self.words[*place..].starts_with(phrase))
    }
}

/// The text in two parts; of a long one its beginning and its end.
fn ends(text: &str) -> (&str, &str) {
    if text.len() <= TEXT_MAX {
        return (text, "");
    }
    let begin = text.floor_char_boundary(TEXT_MAX / 2);
    let end = text.ceil_char_boundary(text.len() - TEXT_MAX / 2);
    (&text[..begin], &text[end..])
}

#[cfg(test)]
mod tests;
