//! Sentences that the messages of many codes share, and how a message is made of sentences.

use crate::{
    call::{EffectKnown, Language},
    wire::{code::Code, message::Message},
};

/// What is known of the effect.
pub(super) const fn known(effect: EffectKnown) -> &'static Message {
    match effect {
        EffectKnown::None => &NONE,
        EffectKnown::Applied => &APPLIED,
        EffectKnown::NotApplied => &NOT_APPLIED,
        EffectKnown::Unknown => &UNKNOWN,
    }
}

/// What is known of the effect of a refused request; `None` where it asked for a call that does not exist.
pub(super) fn known_at_the_door(code: Code) -> Option<&'static Message> {
    match code {
        Code::NotFound => None,
        Code::InvalidId
        | Code::NarrowIt
        | Code::Conflict
        | Code::AlreadyTerminal
        | Code::WorkerNotFenced => Some(&NONE),
        _ => Some(&NOTHING_RUN),
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

/// The text as a sentence: in English its first word gets a capital; its end is marked once.
fn sentence(text: &str, language: Language) -> String {
    let text = without_end(text);
    // A tool's own words may end in any way.
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

/// Without the marks that it ends with. A word that is made of dots is a word.
fn without_end(text: &str) -> &str {
    let text = text.trim();
    let is_mark = |letter: char| ['.', '。'].contains(&letter) || letter.is_whitespace();
    match text.rsplit(char::is_whitespace).next() {
        Some(last) if last.chars().all(is_mark) && last.len() > 1 => text,
        Some(_) | None => text.trim_end_matches(is_mark),
    }
}

/// With a capital at the beginning, unless the text begins with a name, such as a URL or a field.
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
pub(super) static WAITS_ON: Message = Message::fixed(
    "The call waits on for its result: correct that, and hand it in again with the same token; do not run it again.",
    "这次调用仍在等待结果：请改正结果后用同一个 token 再次提交，不要重新执行。",
);
pub(super) static UNDECIDED: Message = Message::fixed(
    "Nothing was recorded, and the call waits on.",
    "没有记录任何内容，这次调用仍在等待。",
);
pub(super) static UNCONFIRMED: Message = Message::fixed(
    "The ledger did not confirm the call; it may have been accepted.",
    "账本没有确认这次调用；它可能已被接受。",
);
pub(super) static UNANSWERED: Message = Message::fixed(
    "No dispatcher has answered in time; nobody knows whether the request was taken.",
    "没有 dispatcher 及时回答；无法知道这个请求是否已被接受。",
);
pub(super) static ASK_AGAIN: Message = Message::fixed(
    "No dispatcher has answered in time. Ask again: that is safe.",
    "没有 dispatcher 及时回答。请再次询问：重复这个请求是安全的。",
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
            (
                "neither . nor ..",
                "Neither . nor ...",
                "neither . nor ..。",
            ),
            ("真的？", "真的？", "真的？"),
            ("", ".", "。"),
        ] {
            assert_eq!(sentence(text, Language::En), english);
            assert_eq!(sentence(text, Language::Zh), chinese);
        }
    }
}
