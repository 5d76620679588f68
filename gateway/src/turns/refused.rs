//! A call that was refused when its turn was made, in the words of a turn. Pure.
//!
//! What a dispatcher advises is for a single call: there a refused call's key is free. A turn has told that the call was refused,
//! so the call stays so, and another try is a turn of its own. What is told of it is kept in the header, for a repetition says the
//! same bytes.

use fleet::{
    call::Language,
    said,
    wire::{
        code::Code,
        envelope::Envelope,
        error::{
            ErrorBody, Suggestion,
            advice::{Advice, RequestStage},
        },
        message::Message,
    },
};
use serde_json::value::RawValue;

use crate::speaker::{RefusalMore, TurnSlot};

/// The most bytes of the details that are kept.
const DETAILS_MAX: usize = 4 * 1024;

/// The slot of a call that was refused with this error.
pub(super) fn slot_of(error: ErrorBody) -> TurnSlot {
    let ErrorBody {
        code,
        message,
        retryable,
        retry_after_ms,
        suggestion,
        path,
        details,
    } = error;
    let details = details.filter(|details| details.to_string().len() <= DETAILS_MAX);
    TurnSlot::Refused {
        code,
        message: in_turn(code, &message),
        more: Some(Box::new(RefusalMore {
            retryable,
            retry_after_ms,
            suggestion,
            path,
            details,
        })),
    }
}

/// The slot of a call that the turn has told as refused, and of which nothing else is known any more.
pub(super) fn forgotten() -> TurnSlot {
    let what = Message::fixed(
        "the turn has told that this call was refused, and why is not known any more",
        "这个 turn 已说明该调用被拒绝，而原因已无从得知",
    );
    let then = Message::fixed(
        "Nothing was run. Ask for it in a new turn with a key of its own.",
        "没有执行任何操作。请在新的 turn 里用新的 key 再次提交。",
    );
    let language = Language::En;
    let message = format!("{}. {}", capital(what.told(language)), then.told(language));
    TurnSlot::Refused {
        code: Code::NotFound,
        message,
        more: Some(Box::new(RefusalMore {
            retryable: false,
            retry_after_ms: None,
            suggestion: Suggestion::CheckState,
            path: None,
            details: None,
        })),
    }
}

/// What is said of a call that was refused, as a batch says it: the same now and later.
pub(super) fn said(
    tool: &str,
    code: Code,
    message: &str,
    more: Option<&RefusalMore>,
) -> Box<RawValue> {
    // A header of the release before has no more than the code and the words.
    let known = ErrorBody::refused(code, &Message::verbatim(message.to_owned()), Language::En);
    let error = match more {
        None => known,
        Some(more) => ErrorBody {
            retryable: more.retryable,
            retry_after_ms: more.retry_after_ms,
            suggestion: more.suggestion,
            path: more.path.clone(),
            details: more.details.clone(),
            ..known
        },
    };
    let error = ErrorBody {
        message: message.to_owned(),
        ..error
    };
    let said = String::from_utf8(Envelope::refused(tool, error).to_bytes()).ok();
    let said = said.and_then(|said| RawValue::from_string(said).ok());
    said.expect("an envelope is JSON")
}

/// The message of a refusal with what is to be done next in a turn, in place of what is to be done with a single call.
fn in_turn(code: Code, message: &str) -> String {
    let advice = Advice::of(code, RequestStage::Refused);
    for language in [Language::En, Language::Zh] {
        let (what, then) = match message.strip_suffix(advice.sentence().told(language)) {
            Some(what) => (what, instead_of(advice)),
            None => match without_time(message, language) {
                Some((what, wait_ms)) => (what, Some(later_in(wait_ms))),
                None => continue,
            },
        };
        return match then {
            Some(then) => {
                let between = match language {
                    Language::En => " ",
                    Language::Zh => "",
                };
                format!("{}{between}{}", what.trim_end(), then.told(language))
            }
            None => message.to_owned(),
        };
    }
    message.to_owned()
}

/// The message without when to ask again, and that time in milliseconds.
fn without_time(message: &str, language: Language) -> Option<(&str, u64)> {
    let (before, behind) = match language {
        Language::En => ("Ask again in ", " ms."),
        Language::Zh => ("请在 ", " ms 后再试。"),
    };
    let (what, time) = message.strip_suffix(behind)?.rsplit_once(before)?;
    Some((what, time.parse().ok()?))
}

fn later_in(wait_ms: u64) -> Message {
    said!(
        "Ask for it in a new turn with a key of its own in {wait_ms} ms: this turn keeps the refusal.",
        "请在 {wait_ms} ms 后用新的 key 在新的 turn 里再次提交：这个 turn 会保留这次拒绝。"
    )
}

/// What a turn says where this is advised for a single call; `None`: the same.
fn instead_of(advice: Advice) -> Option<Message> {
    let then = match advice {
        Advice::CorrectArguments => Message::fixed(
            "Correct the arguments and ask for it in a new turn with a key of its own: this turn keeps the refusal.",
            "请改正参数，并用新的 key 在新的 turn 里再次提交：这个 turn 会保留这次拒绝。",
        ),
        Advice::SendLess => Message::fixed(
            "Ask for less, in a new turn with a key of its own: this turn keeps the refusal.",
            "请减少内容，并用新的 key 在新的 turn 里再次提交：这个 turn 会保留这次拒绝。",
        ),
        Advice::SendLater | Advice::SendAgain => Message::fixed(
            "Ask for it later in a new turn with a key of its own: this turn keeps the refusal.",
            "请稍后用新的 key 在新的 turn 里再次提交：这个 turn 会保留这次拒绝。",
        ),
        Advice::ChooseTool | Advice::UseOtherTool => Message::fixed(
            "Look at the list of tools and ask for one that is there, in a new turn with a key of its own: this turn keeps the refusal.",
            "请查看工具列表，并用新的 key 在新的 turn 里改用其中的工具：这个 turn 会保留这次拒绝。",
        ),
        Advice::CorrectProgram
        | Advice::SendKey
        | Advice::LookAtKey
        | Advice::LookForCall
        | Advice::CorrectId
        | Advice::CheckState
        | Advice::TryAnew
        | Advice::ChangeAnew
        | Advice::AskLessAnew
        | Advice::AskIfWanted
        | Advice::CheckAndLeave
        | Advice::UseAnswer
        | Advice::DoNotRepeat
        | Advice::StopRepeating
        | Advice::AcceptNo
        | Advice::CallFirst
        | Advice::TellUser => return None,
    };
    Some(then)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(error: ErrorBody) -> String {
        match slot_of(error) {
            TurnSlot::Refused { message, .. } => message,
            TurnSlot::CallId(call) => panic!("{call}"),
        }
    }

    #[test]
    fn a_refusal_says_that_another_try_is_a_turn_of_its_own() {
        let what = Message::fixed("it is so", "就是这样");
        for (language, key, turn) in [
            (Language::En, "idempotency key", "new turn"),
            (Language::Zh, "幂等键", "新的 turn"),
        ] {
            for code in [
                Code::InvalidArguments,
                Code::UnknownTool,
                Code::ToolRetired,
                Code::ToolPaused,
                Code::PayloadTooLarge,
            ] {
                let message = told(ErrorBody::refused(code, &what, language));
                assert!(message.contains(turn), "{message}");
                assert!(!message.contains(key), "{message}");
            }
            let early = ErrorBody::too_early(Code::ToolPaused, &what, 60_000, language);
            let message = told(early);
            assert!(message.contains(turn), "{message}");
            assert_eq!(message.matches("60000").count(), 1, "{message}");
        }
        let other = ErrorBody::refused(Code::RepeatedFailure, &what, Language::En);
        assert_eq!(told(other.clone()), other.message);
    }

    #[test]
    fn what_is_kept_says_the_same_bytes_again() {
        let what = Message::fixed("it is paused", "已暂停");
        let error = ErrorBody::too_early(Code::ToolPaused, &what, 60_000, Language::En);
        let slot = slot_of(error.at("/a").with_details(serde_json::json!({"b": 1})));
        let TurnSlot::Refused {
            code,
            message,
            more,
        } = &slot
        else {
            panic!("{slot:?}");
        };
        let first = said("look", *code, message, more.as_deref());
        let text = serde_json::to_string(&slot).unwrap();
        let read: TurnSlot = serde_json::from_str(&text).unwrap();
        assert_eq!(read, slot);
        for part in ["\"retry_after_ms\":60000", "\"path\":\"/a\"", "\"b\":1"] {
            assert!(first.get().contains(part), "{first}");
        }
    }
}
