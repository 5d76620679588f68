//! The error of a call that ends with its last attempt: attempts exhausted, out of time, or cancelled.

use crate::{
    call::Language,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};

/// The failure of a call whose every attempt failed; it contains the last attempt's.
pub fn exhausted(attempts: u32, last: &ToolFailure, language: Language) -> ToolFailure {
    let message = &last.message;
    let what = said!(
        "all {attempts} attempts failed; the last one: {message}",
        "全部 {attempts} 次尝试都失败了；最后一次：{message}",
        message
    );
    around(Code::RetriesExhausted, what, last, language)
}

/// The failure of a call without time for another attempt; it contains the last attempt's.
pub fn out_of_time(last: &ToolFailure, language: Language) -> ToolFailure {
    let message = &last.message;
    let what = said!(
        "no time is left for another attempt; the last one: {message}",
        "剩下的时间不够再尝试一次；最后一次：{message}",
        message
    );
    around(Code::DeadlineExceeded, what, last, language)
}

/// The failure of a cancelled call; it contains the last attempt's.
pub fn cancelled(last: &ToolFailure, language: Language) -> ToolFailure {
    let what = Message::fixed(
        "the call was cancelled while it ran",
        "这次调用在执行中被取消",
    );
    around(Code::Cancelled, what, last, language)
}

/// A failure that contains the last attempt's, in the call's language.
fn around(code: Code, what: Message, last: &ToolFailure, language: Language) -> ToolFailure {
    ToolFailure::new(code, what).with_details(serde_json::json!({ "last": last.told(language) }))
}
