//! The outcome of an attempt on a database: a pure table.
//!
//! | what happened | before the statement | in the statement | at `COMMIT` |
//! |---|---|---|---|
//! | no connection | not started | – | – |
//! | the server answered with an error | not started if it passes, else definite | definite | definite |
//! | with an error that ends the session, or that is about the server itself | the same | the same | **unknown** |
//! | with 40003, it does not know either | the same | **unknown** | **unknown** |
//! | told to stop before the next step | not started | definite | – |
//! | the answer is too large, nothing committed | – | definite | – |
//! | another number of rows than expected, nothing committed | – | definite | – |
//! | no answer | not started | **unknown** | **unknown** |
//!
//! If the server says that a transaction failed, it is rolled back. A transaction that was never told to commit is rolled back
//! too, but effects of its functions outside the database are not known: without an answer a write stays unknown.

use fleet::{
    outcome::{Outcome, ToolFailure},
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use serde_json::json;

use super::not_committed::{NoConnection, NotCommitted, Phase, ServerRefusal};
use crate::executors::StopReason;

/// Why an attempt was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Its time was over.
    Time,
    /// It was told to stop.
    Stop(StopReason),
}

impl Cut {
    const fn code(self) -> Code {
        match self {
            Self::Time => Code::Timeout,
            Self::Stop(reason) => reason.code(),
        }
    }

    const fn what(self) -> Message {
        match self {
            Self::Time => Message::fixed("the attempt's time was over", "这次尝试的时间已到"),
            Self::Stop(StopReason::Cancelled) => {
                Message::fixed("the attempt was cancelled", "这次尝试被取消")
            }
            Self::Stop(StopReason::Drained) => {
                Message::fixed("the attempt was stopped", "这次尝试被停止")
            }
        }
    }
}

/// The outcome of an attempt that did not commit.
pub(super) fn failed(phase: Phase, ended: NotCommitted, cut: Option<Cut>) -> Outcome {
    match ended {
        NotCommitted::NoConnection(NoConnection::Unreachable(why)) => {
            Outcome::NotStarted(match cut {
                Some(cut) => {
                    let over = cut.what();
                    let what = said!(
                        "{over} before there was a connection",
                        "{over}，当时还没有连接",
                        over
                    );
                    ToolFailure::new(cut.code(), what)
                }
                None => {
                    let what = said!(
                        "the database cannot be reached: {why}",
                        "无法连接数据库：{why}",
                        why
                    );
                    ToolFailure::new(Code::Unavailable, what)
                }
            })
        }
        NotCommitted::NoConnection(NoConnection::NoResources(why)) => {
            let what = said!(
                "no connection to the database could be opened here: {why}",
                "在这里无法打开与数据库的连接：{why}",
                why
            );
            let failure = ToolFailure::new(Code::Unavailable, what);
            Outcome::NotStarted(failure.taken_back(TakenBack::NoResources))
        }
        NotCommitted::NoConnection(NoConnection::Role(why)) => {
            let what = said!("{why}", "这个数据库角色不能用于工具：{why}");
            Outcome::NotStarted(ToolFailure::new(Code::Unavailable, what))
        }
        NotCommitted::Refused(refusal) if leaves_open(phase, &refusal) => {
            let details = json!({"sqlstate": refusal.sqlstate});
            let (code, message) = (cut.map_or(Code::Unavailable, Cut::code), &refusal.message);
            let failure = ToolFailure::new(
                code,
                said!(
                    "the database cannot say whether it has committed: {message}",
                    "数据库无法说明是否已经提交：{message}"
                ),
            );
            Outcome::Unknown(failure.with_details(details))
        }
        NotCommitted::Refused(refusal) => {
            let failure = refused(&refusal, cut);
            match (phase, failure.code) {
                // Nothing of the tool was sent, and a later attempt may succeed.
                (Phase::Before, Code::Unavailable | Code::Timeout | Code::Cancelled) => {
                    Outcome::NotStarted(failure)
                }
                _ => Outcome::DefiniteFailure(failure),
            }
        }
        NotCommitted::Flaw(why) => Outcome::DefiniteFailure(ToolFailure::new(
            Code::ToolCrashed,
            said!("the tool is at fault: {why}", "工具本身有错：{why}", why),
        )),
        NotCommitted::Argument(why) => {
            Outcome::DefiniteFailure(ToolFailure::new(Code::ToolError, why))
        }
        NotCommitted::Unexpected { expected, rows } => {
            let (wanted, details) = (
                expected.told(),
                json!({"rows": rows, (ToolFailure::EXPECTED_ROWS): expected}),
            );
            let what = said!(
                "expected {wanted}, found {rows}",
                "预期{wanted}，实际 {rows} 行",
                wanted
            );
            let failure = ToolFailure::new(Code::ToolError, what);
            Outcome::DefiniteFailure(failure.with_details(details))
        }
        NotCommitted::TooLarge(why) => Outcome::DefiniteFailure(ToolFailure::new(
            Code::OutputTooLarge,
            said!(
                "the answer is too large: {why}; nothing was committed",
                "结果太大：{why}；没有提交任何内容",
                why
            ),
        )),
        NotCommitted::Unusable(why) => Outcome::DefiniteFailure(ToolFailure::new(
            Code::OutputInvalid,
            said!(
                "{why}; nothing was committed",
                "{why}；没有提交任何内容",
                why
            ),
        )),
        NotCommitted::Taken => Outcome::DefiniteFailure(ToolFailure::new(
            Code::Unavailable,
            Message::fixed(
                "the call was taken from this attempt before it could commit; nothing was committed",
                "这次尝试还没能提交，调用就已不归它；没有提交任何内容",
            ),
        )),
        NotCommitted::Cut => {
            let cut = cut.unwrap_or(Cut::Time);
            let over = cut.what();
            let what = said!(
                "{over}; nothing was committed",
                "{over}；没有提交任何内容",
                over
            );
            let failure = ToolFailure::new(cut.code(), what);
            match phase {
                Phase::Before => Outcome::NotStarted(failure),
                Phase::Statement | Phase::Commit => Outcome::DefiniteFailure(failure),
            }
        }
        NotCommitted::Lost => silent(phase, cut),
    }
}

/// Whether the transaction may have been committed although the server answered with an error.
///
/// Not before `COMMIT` is sent. After that, an `ERROR` of the transaction comes before its commit record. An error that ends
/// the session may come after it, while the server waits for replicas; and a pooler sends one for a server that it has lost.
fn leaves_open(phase: Phase, refusal: &ServerRefusal) -> bool {
    let state = refusal.sqlstate.as_str();
    let about_the_server = || {
        let classes = ["08", "57P", "58", "XX"];
        classes.iter().any(|class| state.starts_with(class))
    };
    match phase {
        Phase::Before => false,
        Phase::Statement => state == COMPLETION_UNKNOWN,
        Phase::Commit => refusal.is_fatal || about_the_server() || state == COMPLETION_UNKNOWN,
    }
}

/// The outcome of an attempt whose server did not answer any more.
pub(super) fn silent(phase: Phase, cut: Option<Cut>) -> Outcome {
    let (code, why) = match cut {
        Some(cut) => (cut.code(), cut.what()),
        None => {
            let broke =
                Message::fixed("the connection to the database broke", "与数据库的连接断了");
            (Code::Unavailable, broke)
        }
    };
    let failure = |english, chinese| {
        let when = Message::fixed(english, chinese);
        ToolFailure::new(code, said!("{why} {when}", "{why}，{when}", why, when))
    };
    match phase {
        Phase::Before => Outcome::NotStarted(failure(
            "before the statement was sent",
            "当时语句还没有发出",
        )),
        Phase::Statement => Outcome::Unknown(failure(
            "before the database answered",
            "当时数据库还没有响应",
        )),
        Phase::Commit => Outcome::Unknown(failure(
            "while the transaction was being committed",
            "当时事务正在提交",
        )),
    }
}

/// SQLSTATE `statement_completion_unknown`.
const COMPLETION_UNKNOWN: &str = "40003";

/// What a server's error means, by its class.
fn refused(refusal: &ServerRefusal, cut: Option<Cut>) -> ToolFailure {
    let state = refusal.sqlstate.as_str();
    let class = state.get(..2).unwrap_or_default();
    let message = &refusal.message;
    let failure = match (class, state, cut) {
        ("22" | "23", ..) | (_, "P0001", _) => {
            ToolFailure::new(Code::ToolError, Message::verbatim(message.clone()))
        }
        (_, "57014", Some(cut)) => {
            let over = cut.what();
            let what = said!(
                "{over}, and the database ended the statement",
                "{over}，数据库终止了语句",
                over
            );
            ToolFailure::new(cut.code(), what)
        }
        // The server's own timer, a moment before ours; or an operator of the database.
        (_, "57014", None) => ToolFailure::new(
            Code::Timeout,
            said!(
                "the database ended the statement: {message}",
                "数据库终止了语句：{message}"
            ),
        ),
        (_, "25006", _) => ToolFailure::new(
            Code::ToolCrashed,
            said!(
                "the tool is at fault: its effect is read and it writes: {message}",
                "工具本身有错：它的 effect 是 read，却在写入：{message}"
            ),
        ),
        // Another transaction was in the way, the server lacks resources, or it is being shut down.
        ("40" | "53" | "57" | "08", ..) | (_, "55P03" | "25P03" | "55006", _) => ToolFailure::new(
            Code::Unavailable,
            said!(
                "the database is not available: {message}",
                "数据库不可用：{message}"
            ),
        ),
        _ => ToolFailure::new(
            Code::ToolCrashed,
            said!(
                "the tool is at fault: the database refuses its statement: {message}",
                "工具本身有错：数据库拒绝了它的语句：{message}"
            ),
        ),
    };
    failure.with_details(match &refusal.constraint {
        Some(constraint) => json!({"sqlstate": state, "constraint": constraint}),
        None => json!({"sqlstate": state}),
    })
}
