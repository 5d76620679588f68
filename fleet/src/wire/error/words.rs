//! The sentences that stand in the messages of many codes, and how a message is made of sentences.

use super::Suggestion;
use crate::{
    call::{EffectKnown, Language},
    wire::message::Message,
};

impl Suggestion {
    pub(super) const fn sentence(self) -> &'static Message {
        match self {
            Self::FixArguments => &FIX_ARGUMENTS,
            Self::RetryLater => &RETRY_LATER,
            Self::Simplify => &SIMPLIFY,
            Self::AskUser => &ASK_USER,
            Self::CheckState => &CHECK_STATE,
            Self::DoNotRepeat => &DO_NOT_REPEAT,
        }
    }
}

/// What is known of the effect.
pub(super) const fn known(effect: EffectKnown) -> &'static Message {
    match effect {
        EffectKnown::None => &NONE,
        EffectKnown::Applied => &APPLIED,
        EffectKnown::NotApplied => &NOT_APPLIED,
        EffectKnown::Unknown => &UNKNOWN,
    }
}

/// These as sentences, one after the other.
pub(super) fn told(parts: &[&Message], language: Language) -> String {
    let sentences: Vec<String> = parts
        .iter()
        .map(|part| sentence(part.told(language), language))
        .collect();
    sentences.join(match language {
        Language::En => " ",
        Language::Zh => "",
    })
}

/// The text as a sentence: in English a word at its beginning gets a capital; its end is marked once.
fn sentence(text: &str, language: Language) -> String {
    let text = text.trim().trim_end_matches(['.', '。', ' ', '\n']);
    // A tool's own words may end as they like.
    let is_marked = text.ends_with(['!', '?', '！', '？', '…']);
    let mark = match language {
        Language::En | Language::Zh if is_marked => "",
        Language::En => ".",
        Language::Zh => "。",
    };
    match language {
        Language::En => format!("{}{mark}", capitalised(text)),
        Language::Zh => format!("{text}{mark}"),
    }
}

/// With a capital at the beginning, unless what stands there is no word but a name, such as a URL or a field.
fn capitalised(text: &str) -> String {
    let word = text.split(char::is_whitespace).next().unwrap_or_default();
    let is_name = word
        .trim_end_matches([',', ':', ';', '!', '?'])
        .contains(|c: char| !c.is_alphabetic() && c != '\'' && c != '-');
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if !is_name => first.to_uppercase().chain(chars).collect(),
        Some(_) | None => text.to_owned(),
    }
}

pub(super) static NOTHING_RUN: Message = Message::fixed("Nothing was run.", "没有执行任何操作。");
pub(super) static UNCONFIRMED: Message = Message::fixed(
    "The ledger did not confirm the call; it may have been accepted.",
    "账本没有确认这次调用；它可能已被接受。",
);
pub(super) static SEND_AGAIN: Message = Message::fixed(
    "Send the same call again, with the same idempotency key if it had one: it is then run once, whatever has become of this one.",
    "请再次发送同样的调用（如有幂等键，请沿用同一个）：无论这一次结果如何，它都只会执行一次。",
);
pub(super) static UNREADABLE: Message = Message::fixed(
    "The ledger cannot be read at the moment; what has become of the call is not known here. Ask again later.",
    "目前无法读取账本，因此这里不知道这次调用的结果。请稍后再查询。",
);

static NONE: Message = Message::fixed("Nothing was changed.", "没有做任何更改。");
static APPLIED: Message = Message::fixed("The action was carried out.", "操作已经生效。");
static NOT_APPLIED: Message = Message::fixed("The action was not carried out.", "操作没有生效。");
static UNKNOWN: Message = Message::fixed(
    "The action may or may not have been carried out.",
    "操作可能已经生效，也可能没有生效。",
);

static FIX_ARGUMENTS: Message = Message::fixed(
    "Correct the arguments and call again.",
    "请改正参数后再次调用。",
);
static RETRY_LATER: Message = Message::fixed(
    "The same call may work later.",
    "稍后重试同样的调用，可能会成功。",
);
static SIMPLIFY: Message = Message::fixed("Ask for less in one call.", "请减少单次调用的内容。");
static ASK_USER: Message = Message::fixed(
    "Tell the user; this cannot be solved by calling again.",
    "请告知用户；再次调用无法解决这个问题。",
);
static CHECK_STATE: Message = Message::fixed(
    "Check the present state before doing anything else.",
    "请先查明当前状态，再做其他操作。",
);
static DO_NOT_REPEAT: Message = Message::fixed(
    "Do not repeat the call; ask a person to find out.",
    "不要重复这次调用；请交由人工查明结果。",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_sentence_is_marked_once_in_each_language() {
        for (text, english, chinese) in [
            (
                "the card is blocked",
                "The card is blocked.",
                "the card is blocked。",
            ),
            (
                "the card is blocked. \n",
                "The card is blocked.",
                "the card is blocked。",
            ),
            ("余额不足。", "余额不足.", "余额不足。"),
            ("no!", "No!", "no!"),
            ("the tool's own", "The tool's own.", "the tool's own。"),
            ("wait_ms is long", "wait_ms is long.", "wait_ms is long。"),
            (
                "http://a is gone",
                "http://a is gone.",
                "http://a is gone。",
            ),
            ("真的？", "真的？", "真的？"),
            ("", ".", "。"),
        ] {
            assert_eq!(sentence(text, Language::En), english);
            assert_eq!(sentence(text, Language::Zh), chinese);
        }
    }
}
