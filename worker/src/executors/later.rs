//! What an executor says of a tool that does not answer now.

use fleet::{
    input::{InputWanted, ToolWish},
    outcome::{Outcome, ToolFailure},
    wire::{code::Code, message::Message},
};

/// The header of the token with which a tool may answer later. Only tools get it whose manifest has `completion`.
pub(crate) const TOKEN: &str = "Toolfleet-Completion-Token";
/// The header with which a service says that it answers later.
pub(crate) const DEFERRED: &str = "Toolfleet-Deferred";

/// The tool has the call and answers later. Where the call cannot wait, nothing is known of its effect.
pub(crate) fn answers_later() -> Outcome {
    let what = Message::fixed(
        "the tool said that it would answer later, and its call cannot wait for that",
        "工具表示稍后才会回答，而这次调用无法等待",
    );
    let failure = ToolFailure::new(Code::Unavailable, what);
    Outcome::Unknown(failure.waiting_for(ToolWish::Completion))
}

/// The tool has begun nothing and wants to know something first.
pub(crate) fn asks(wanted: InputWanted) -> Outcome {
    let what = Message::fixed(
        "the tool wants to know something before it begins",
        "工具在开始之前需要先得到一些信息",
    );
    let failure = ToolFailure::new(Code::Unavailable, what);
    Outcome::NotStarted(failure.waiting_for(ToolWish::Input(Box::new(wanted))))
}
