//! **What now?** What a caller should do next, and with which key: one table of the code and the stage of the request.
//!
//! A key names one call. A refusal at the door leaves the key free, so it can and should be used again. A call that has ended
//! answers its key with the same bytes for as long as the key lives, so a new try takes a new key. Where the effect may have
//! happened, nothing may be sent again at all. `docs/errors/` says the same of each code; a test compares the two.

use super::suggestion::Suggestion;
use crate::{
    call::EffectKnown,
    wire::{code::Code, message::Message},
};

/// The stage of a request when its caller reads the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestStage {
    /// It was refused: it made no call, and its key is free.
    Refused,
    /// Its call has ended, or is in doubt, and this is known of the effect.
    Ended(EffectKnown),
}

/// With which key a call may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// The same: it is still free, or names the very call that is meant.
    Same,
    /// A new one: the same key only repeats the answer.
    New,
    /// None: the effect may have happened.
    Never,
    /// No advice: sending it again does not help, or the request was about something else.
    Unsaid,
}

/// What a caller should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// The arguments are wrong, and nothing was stored.
    CorrectArguments,
    /// The request is too large, and nothing was stored.
    SendLess,
    /// The dispatcher has no room, or the ledger does not answer.
    SendLater,
    /// The ledger may have stored it; sending it again with its key finds out.
    SendAgain,
    /// It names a tool or a version that does not exist.
    ChooseTool,
    /// The tool takes no new calls.
    UseOtherTool,
    /// Another part of the request than the arguments is wrong.
    CorrectProgram,
    /// The program sends no key.
    SendKey,
    /// The key names another call.
    LookAtKey,
    /// There is no such call.
    LookForCall,
    /// The id is not valid.
    CorrectId,
    /// The request does not fit the state of the call.
    CheckState,
    /// It failed, had no effect, and might work another time.
    TryAnew,
    /// The tool said no.
    ChangeAnew,
    /// Its arguments or its answer are too large.
    AskLessAnew,
    /// It was cancelled, or turned out not to have happened.
    AskIfWanted,
    /// The effect has happened, or may have.
    CheckAndLeave,
    /// The answer is there, except for some characters.
    UseAnswer,
    /// Whether it happened is unknown.
    DoNotRepeat,
    /// The same has failed again and again.
    StopRepeating,
    /// Somebody has decided that it is not to be done.
    AcceptNo,
    /// Another tool has to be called before.
    CallFirst,
    /// No repetition helps.
    TellUser,
}

impl Advice {
    /// The table.
    pub const fn of(code: Code, standing: RequestStage) -> Self {
        match standing {
            RequestStage::Refused => Self::of_refusal(code),
            RequestStage::Ended(effect) => Self::of_end(code, effect),
        }
    }

    const fn of_refusal(code: Code) -> Self {
        match code {
            Code::MalformedJson
            | Code::TruncatedArguments
            | Code::InvalidUnicode
            | Code::NulNotAllowed
            | Code::DuplicateKey
            | Code::DepthExceeded
            | Code::KeyTooLong
            | Code::NumberOutOfRange
            | Code::NumberTooLong
            | Code::InvalidArguments => Self::CorrectArguments,
            Code::TooManyNodes | Code::StringTooLong | Code::PayloadTooLarge | Code::NarrowIt => {
                Self::SendLess
            }
            Code::UnknownTool | Code::UnknownToolVersion | Code::InvalidToolName => {
                Self::ChooseTool
            }
            Code::ToolRetired => Self::UseOtherTool,
            Code::InvalidTenant
            | Code::InvalidIdempotencyKey
            | Code::DeadlineInvalid
            | Code::HeaderInvalid
            | Code::Unauthenticated => Self::CorrectProgram,
            Code::MissingIdempotencyKey => Self::SendKey,
            Code::IdempotencyKeyReused => Self::LookAtKey,
            Code::RepeatedFailure => Self::StopRepeating,
            Code::ToolPaused
            | Code::QuotaExceeded
            | Code::RateLimited
            | Code::Overloaded
            | Code::StoreUnavailable
            | Code::NoAnswer
            | Code::Unavailable => Self::SendLater,
            Code::NotFound => Self::LookForCall,
            Code::InvalidId => Self::CorrectId,
            Code::Conflict | Code::AlreadyTerminal => Self::CheckState,
            Code::WorkerNotFenced
            | Code::Timeout
            | Code::CircuitOpen
            | Code::ToolCrashed
            | Code::ToolError
            | Code::OutputInvalid
            | Code::OutputTooLarge
            | Code::RetriesExhausted
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::InDoubt
            | Code::NotApplied
            | Code::ToolGone
            | Code::ToolChanged
            | Code::EgressDenied
            | Code::Forbidden
            | Code::Denied
            | Code::BudgetExceeded => Self::TellUser,
        }
    }

    const fn of_end(code: Code, effect: EffectKnown) -> Self {
        match (code, effect) {
            (Code::InDoubt, _) => Self::DoNotRepeat,
            (_, EffectKnown::Applied | EffectKnown::Unknown) => Self::CheckAndLeave,
            (
                Code::Timeout
                | Code::Unavailable
                | Code::CircuitOpen
                | Code::ToolCrashed
                | Code::RetriesExhausted
                | Code::DeadlineExceeded,
                EffectKnown::None | EffectKnown::NotApplied,
            ) => Self::TryAnew,
            (
                Code::ToolError | Code::InvalidArguments | Code::NotFound,
                EffectKnown::None | EffectKnown::NotApplied,
            ) => Self::ChangeAnew,
            (
                Code::OutputTooLarge | Code::PayloadTooLarge,
                EffectKnown::None | EffectKnown::NotApplied,
            ) => Self::AskLessAnew,
            (Code::Denied, EffectKnown::None | EffectKnown::NotApplied) => Self::AcceptNo,
            (Code::Cancelled | Code::NotApplied, EffectKnown::None | EffectKnown::NotApplied) => {
                Self::AskIfWanted
            }
            // The tool has a fault, or it is a code with which no call ends.
            (_, EffectKnown::None | EffectKnown::NotApplied) => Self::TellUser,
        }
    }

    /// The word for it in an envelope.
    pub const fn suggestion(self) -> Suggestion {
        match self {
            Self::CorrectArguments | Self::CorrectId | Self::ChangeAnew => Suggestion::FixArguments,
            Self::SendLess | Self::AskLessAnew => Suggestion::Simplify,
            Self::SendLater | Self::SendAgain | Self::TryAnew => Suggestion::RetryLater,
            Self::ChooseTool
            | Self::UseOtherTool
            | Self::LookAtKey
            | Self::LookForCall
            | Self::CheckState
            | Self::CheckAndLeave
            | Self::CallFirst
            | Self::UseAnswer => Suggestion::CheckState,
            Self::CorrectProgram | Self::SendKey | Self::AskIfWanted | Self::TellUser => {
                Suggestion::AskUser
            }
            Self::DoNotRepeat | Self::StopRepeating | Self::AcceptNo => Suggestion::DoNotRepeat,
        }
    }

    /// With which key it may be sent again.
    pub const fn key(self) -> Key {
        match self {
            Self::CorrectArguments
            | Self::SendLess
            | Self::SendLater
            | Self::SendAgain
            | Self::ChooseTool
            | Self::UseOtherTool
            | Self::LookForCall => Key::Same,
            Self::LookAtKey
            | Self::TryAnew
            | Self::ChangeAnew
            | Self::AskLessAnew
            | Self::CallFirst
            | Self::AskIfWanted => Key::New,
            Self::CheckAndLeave | Self::DoNotRepeat => Key::Never,
            Self::CorrectProgram
            | Self::SendKey
            | Self::CorrectId
            | Self::CheckState
            | Self::UseAnswer
            | Self::StopRepeating
            | Self::AcceptNo
            | Self::TellUser => Key::Unsaid,
        }
    }

    /// The sentence that says so.
    pub const fn sentence(self) -> &'static Message {
        match self {
            Self::CorrectArguments => &CORRECT_ARGUMENTS,
            Self::SendLess => &SEND_LESS,
            Self::SendLater => &SEND_LATER,
            Self::SendAgain => &SEND_AGAIN,
            Self::ChooseTool => &CHOOSE_TOOL,
            Self::UseOtherTool => &USE_OTHER_TOOL,
            Self::CorrectProgram => &CORRECT_PROGRAM,
            Self::SendKey => &SEND_KEY,
            Self::LookAtKey => &LOOK_AT_KEY,
            Self::LookForCall => &LOOK_FOR_CALL,
            Self::CorrectId => &CORRECT_ID,
            Self::CheckState => &CHECK_STATE,
            Self::TryAnew => &TRY_ANEW,
            Self::ChangeAnew => &CHANGE_ANEW,
            Self::AskLessAnew => &ASK_LESS_ANEW,
            Self::AskIfWanted => &ASK_IF_WANTED,
            Self::CheckAndLeave => &CHECK_AND_LEAVE,
            Self::UseAnswer => &USE_ANSWER,
            Self::DoNotRepeat => &DO_NOT_REPEAT,
            Self::StopRepeating => &STOP_REPEATING,
            Self::AcceptNo => &ACCEPT_NO,
            Self::CallFirst => &CALL_FIRST,
            Self::TellUser => &TELL_USER,
        }
    }
}

static CORRECT_ARGUMENTS: Message = Message::fixed(
    "Correct the arguments and call again, with the same idempotency key if there was one.",
    "请改正参数后再次调用；如果带有幂等键，请沿用同一个。",
);
static SEND_LESS: Message = Message::fixed(
    "Ask for less in one call, with the same idempotency key if there was one.",
    "请减少单次调用的内容；如果带有幂等键，请沿用同一个。",
);
static SEND_LATER: Message = Message::fixed(
    "Send the same call again later, with the same idempotency key if there was one.",
    "请稍后再次发送同样的调用；如果带有幂等键，请沿用同一个。",
);
static SEND_AGAIN: Message = Message::fixed(
    "Send the same call again with the same idempotency key: it is then run once, whatever has become of this one.",
    "请用同一个幂等键再次发送同样的调用：无论这一次结果如何，它都只会执行一次。",
);
static CHOOSE_TOOL: Message = Message::fixed(
    "Look at the list of tools and call one that is there, with the same idempotency key if there was one.",
    "请先查看工具列表，再调用其中的工具；如果带有幂等键，请沿用同一个。",
);
static USE_OTHER_TOOL: Message = Message::fixed(
    "Look at the list of tools and call another one that serves, with the same idempotency key if there was one; if none does, ask \
     the operator of the tools.",
    "请查看工具列表，改用其他合适的工具；如果带有幂等键，请沿用同一个；如果没有合适的工具，请联系工具的运维人员。",
);
static CORRECT_PROGRAM: Message = Message::fixed(
    "The arguments are not at fault: tell the user that the program which sends the calls has to be corrected.",
    "参数本身没有问题：请告知用户，发送调用的程序需要改正。",
);
static SEND_KEY: Message = Message::fixed(
    "The arguments are not at fault: tell the user that the program which sends the calls has to send an idempotency key that names the \
     intention.",
    "参数本身没有问题：请告知用户，发送调用的程序必须带上代表这次意图的幂等键。",
);
static LOOK_AT_KEY: Message = Message::fixed(
    "The arguments are not at fault: first look at the call that has this key, and use a new idempotency key only for a new intention.",
    "参数本身没有问题：请先查明占用这个幂等键的调用；只有新的意图才使用新的幂等键。",
);
static LOOK_FOR_CALL: Message = Message::fixed(
    "This does not tell whether anything was run: check the tenant and the id; a submission that was not answered can be sent again \
     with the same idempotency key, if it had one.",
    "这并不说明是否执行过：请检查租户和 call_id；没有得到回答的提交，如果带有幂等键，可以用同一个幂等键再次发送。",
);
static CORRECT_ID: Message = Message::fixed(
    "Ask again with the id as it came: the call_id of an envelope, the turn_id of a turn, or the file_id of a file.",
    "请原样使用收到的 id 再次查询：信封中的 call_id、turn 的 turn_id，或文件的 file_id。",
);
static CHECK_STATE: Message = Message::fixed(
    "Check the present state before doing anything else.",
    "请先查明当前状态，再做其他操作。",
);
static TRY_ANEW: Message = Message::fixed(
    "It may work later, with a new idempotency key if there was one: the same one repeats this answer.",
    "稍后重试可能会成功；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。",
);
static CHANGE_ANEW: Message = Message::fixed(
    "If other arguments can help, call again, with a new idempotency key if there was one: the same one repeats this answer. Else tell the user.",
    "如果换用其他参数可以解决，请再次调用，否则请告知用户；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。",
);
static ASK_LESS_ANEW: Message = Message::fixed(
    "Ask for less in one call, with a new idempotency key if there was one: the same one repeats this answer.",
    "请减少单次调用的内容；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。",
);
static ASK_IF_WANTED: Message = Message::fixed(
    "Ask the user; if it is still wanted, send it again, with a new idempotency key if there was one: the same one repeats this answer.",
    "请询问用户；如果仍然需要，请再次发送；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。",
);
static CHECK_AND_LEAVE: Message = Message::fixed(
    "Check the present state before doing anything else; do not send the call again, not with a new idempotency key either.",
    "请先查明当前状态，再做其他操作；不要再次发送这次调用，换用新的幂等键也不行。",
);
static USE_ANSWER: Message = Message::fixed(
    "Use the answer, but do not rely on those characters.",
    "可以使用这个结果，但不要依赖这些字符。",
);
static DO_NOT_REPEAT: Message = Message::fixed(
    "Do not repeat the call, not with a new idempotency key either; ask a person to find out.",
    "不要重复这次调用，换用新的幂等键也不行；请交由人工查明结果。",
);
static STOP_REPEATING: Message = Message::fixed(
    "Do not send it again: change the arguments, do it another way, or tell the user what keeps failing.",
    "不要再发送同样的调用：请修改参数、换一种做法，或告知用户一直失败的是什么。",
);
static ACCEPT_NO: Message = Message::fixed(
    "Do not ask for it again, nor in another way; tell the user.",
    "不要再次请求，换一种方式也不行；请告知用户。",
);
static CALL_FIRST: Message = Message::fixed(
    "Call that tool first; once it has succeeded, send this call again, with a new idempotency key if there was one: the same one repeats \
     this answer.",
    "请先调用那个工具，等它成功之后再次发送这次调用；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。",
);
static TELL_USER: Message = Message::fixed(
    "Tell the user; this cannot be solved by calling again.",
    "请告知用户；再次调用无法解决这个问题。",
);
