//! **What does an answer mean?** One pure function.
//!
//! | what came | of a write |
//! |---|---|
//! | a result | applied; its answer is no use where it is nested too deep |
//! | a result with `isError` | the tool said no; unknown where its manifest says `errors: unknown` |
//! | the same of another fleet, of a call that it did not decide, or whose effect it does not know | unknown |
//! | the errors -32600 to -32602 and -32020 to -32022 | a definite failure |
//! | nothing was sent; HTTP 401 and 403; 404 to a request with a session | not started |
//! | other errors and statuses, no answer, a broken connection, the end of the time | unknown |
//! | a result with questions | the call awaits input |
//!
//! A read has no effect that could be in doubt: what is unknown of a write and was answered is a definite failure of a read.

use std::collections::HashMap;

use fleet::{
    call::Effect,
    input::InputWanted,
    manifest::{AnswerForm, McpErrors},
    outcome::{Outcome, ToolFailure},
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use secrecy::SecretString;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use super::{
    came::{Came, CutOff, HttpStatus},
    message::{RpcAnswer, RpcError},
    skim::Skimmed,
};
use crate::executors::{
    later, output,
    redact::{redact, veiled},
};

/// What decides about answers, beside them.
#[derive(Debug)]
pub(super) struct AnswerRules {
    pub(super) effect: Effect,
    pub(super) errors: McpErrors,
    pub(super) form: AnswerForm,
    pub(super) output_limit: usize,
    /// Masked in every message.
    pub(super) secrets: Vec<SecretString>,
}

/// What a result of `tools/call` is.
#[derive(Debug)]
pub(super) enum CallResult {
    /// The call has come to something.
    Over(Outcome),
    /// The server goes on with it as a task.
    Task(Task),
}

/// A task of a server.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) task_id: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) status_message: Option<String>,
    #[serde(default)]
    pub(super) poll_interval_ms: Option<u64>,
    #[serde(default)]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) error: Option<RpcError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultKind {
    #[serde(default)]
    result_type: Option<String>,
    #[serde(default)]
    input_requests: Option<Box<RawValue>>,
    #[serde(default)]
    request_state: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Finished {
    #[serde(default)]
    content: Option<Box<RawValue>>,
    #[serde(default)]
    structured_content: Option<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
    #[serde(rename = "_meta", default)]
    meta: Option<Box<RawValue>>,
}

/// What the gateway of a fleet says of the call behind a result. Anybody may say so; it is heeded only where it leaves more in doubt.
#[derive(Deserialize)]
struct FleetMeta {
    #[serde(rename = "io.toolfleet/call")]
    call: FleetCall,
}

#[derive(Deserialize)]
struct FleetCall {
    #[serde(default)]
    outcome: Option<String>,
    #[serde(default)]
    effect: Option<String>,
}

impl FleetCall {
    /// Whether the call may have an effect, or may have one yet.
    fn is_in_doubt(&self) -> bool {
        let is_known = matches!(self.effect.as_deref(), Some("none" | "not_applied"));
        self.outcome.is_none() || !is_known
    }
}

impl AnswerRules {
    fn is_write(&self) -> bool {
        self.effect != Effect::Read
    }

    /// What became of a call.
    pub(super) fn class(&self, came: Came) -> CallResult {
        CallResult::Over(match came {
            Came::Answer(RpcAnswer::Result(result, mended)) => return self.result(&result, mended),
            Came::Answer(RpcAnswer::Error(error)) => self.error(&error),
            Came::Status(status) => self.status(&status),
            Came::TooLarge(skimmed, beginning) => self.too_large(skimmed, &beginning),
            Came::NotSent(failure) => Outcome::NotStarted(failure),
            Came::NoAnswer(failure) => Outcome::Unknown(failure),
            Came::CutOff(why) => Outcome::Unknown(cut_off(why)),
        })
    }

    /// An outcome that is unknown of a write. A read was answered, so it is over.
    pub(super) fn undecided(&self, failure: ToolFailure) -> Outcome {
        if self.is_write() {
            Outcome::Unknown(failure)
        } else {
            Outcome::DefiniteFailure(failure)
        }
    }

    fn masked(&self, text: &str) -> String {
        redact(text, &self.secrets).unwrap_or_else(|| text.to_owned())
    }

    /// An error of the protocol.
    pub(super) fn error(&self, error: &RpcError) -> Outcome {
        let code = error.code;
        let words = self.masked(error.message.trim());
        let details = json!({ "rpc_code": code });
        match code {
            -32602..=-32600 | -32022..=-32020 => {
                let what = said!(
                    "the MCP server refused the call (error {code}): {words}",
                    "MCP 服务器拒绝了调用（错误 {code}）：{words}"
                );
                Outcome::DefiniteFailure(
                    ToolFailure::new(Code::ToolError, what).with_details(details),
                )
            }
            _ => {
                let what = said!(
                    "the MCP server answered with error {code}, which does not say whether the tool acted: {words}",
                    "MCP 服务器返回了错误 {code}，这不能说明工具是否已经执行：{words}"
                );
                self.undecided(ToolFailure::new(Code::Unavailable, what).with_details(details))
            }
        }
    }

    fn status(&self, came: &HttpStatus) -> Outcome {
        let status = came.status;
        let fail = |code, what| {
            ToolFailure::new(code, what)
                .with_details(came.details())
                .with_retry_after(came.retry_after)
        };
        match status {
            401 | 403 => Outcome::NotStarted(came.let_nobody_in()),
            404 if came.of_session => Outcome::NotStarted(fail(
                Code::Unavailable,
                Message::fixed(
                    "the MCP server has forgotten the session of this worker",
                    "MCP 服务器已经忘记了这个 worker 的会话",
                ),
            )),
            _ => match &came.error {
                Some(error) => self.error(error),
                None => self.undecided(fail(
                    Code::Unavailable,
                    said!(
                        "the MCP server answered with status {status}, which does not say whether the tool acted",
                        "MCP 服务器返回了状态码 {status}，这不能说明工具是否已经执行"
                    ),
                )),
            },
        }
    }

    /// A result of `tools/call`, or of a task.
    pub(super) fn result(&self, result: &RawValue, mended: Option<ToolFailure>) -> CallResult {
        let kind = serde_json::from_str::<ResultKind>(result.get()).ok();
        let Some(kind) = kind.filter(|_| result.get().trim_start().starts_with('{')) else {
            return CallResult::Over(self.finished(result, mended));
        };
        match kind.result_type.as_deref() {
            Some("input_required") => CallResult::Over(self.asks(kind)),
            Some("task") => match serde_json::from_str::<Task>(result.get()) {
                Ok(task) => CallResult::Task(task),
                Err(_unfit) => {
                    let what = Message::fixed(
                        "the MCP server made a task of the call and did not say which",
                        "MCP 服务器把调用变成了任务，却没有说明是哪一个",
                    );
                    CallResult::Over(Outcome::Unknown(ToolFailure::new(
                        Code::OutputInvalid,
                        what,
                    )))
                }
            },
            Some("complete") | None => CallResult::Over(self.finished(result, mended)),
            Some(_unknown) => {
                let what = Message::fixed(
                    "the MCP server answered with a kind of result that this worker does not know",
                    "MCP 服务器返回了这个 worker 不认识的结果类型",
                );
                CallResult::Over(self.undecided(ToolFailure::new(Code::OutputInvalid, what)))
            }
        }
    }

    /// What a tool wants to know: its caller is asked, and the server's own state goes back to it.
    fn asks(&self, kind: ResultKind) -> Outcome {
        let requests = kind.input_requests.filter(|requests| {
            let read = serde_json::from_str::<HashMap<String, IgnoredAny>>(requests.get());
            read.is_ok_and(|read| !read.is_empty())
        });
        let Some(requests) = requests else {
            // Nobody could answer.
            let what = Message::fixed(
                "the MCP server wants to know something and does not ask anything",
                "MCP 服务器要求输入，却没有提出任何问题",
            );
            return self.undecided(ToolFailure::new(Code::OutputInvalid, what));
        };
        // There is an object around what is asked.
        let unreadable = |kept: &RawValue| output::unreadable(kept.get(), output::DEPTH_MAX - 1);
        let state = kind.request_state;
        let why = unreadable(&requests).or_else(|| unreadable(state.as_deref()?));
        if let Some(why) = why {
            let what = said!(
                "the MCP server wants to know something, and its question cannot be kept: {why}",
                "MCP 服务器要求输入，但无法保存它的问题：{why}",
                why
            );
            return self.undecided(ToolFailure::new(Code::OutputInvalid, what));
        }
        let requests = requests.get();
        later::asks(InputWanted {
            requests: {
                let requests = format!(r#"{{"inputRequests":{requests}}}"#);
                veiled(&requests, &self.secrets).unwrap_or(requests)
            },
            state: state.map(|state| state.get().to_owned()),
        })
    }

    fn finished(&self, result: &RawValue, mended: Option<ToolFailure>) -> Outcome {
        // A list would be read as the fields in their order.
        let text = Some(result.get()).filter(|text| text.trim_start().starts_with('{'));
        let read = text.and_then(|text| serde_json::from_str(text).ok());
        let Some(Finished {
            content,
            structured_content,
            is_error,
            meta,
        }) = read
        else {
            return unusable(&Message::fixed(
                "its result is not what the protocol says",
                "它的结果不符合协议",
            ));
        };
        if is_error {
            let of_fleet = meta.and_then(|meta| serde_json::from_str::<FleetMeta>(meta.get()).ok());
            let in_doubt = of_fleet.is_some_and(|of_fleet| of_fleet.call.is_in_doubt());
            return self.said_no(content.as_deref(), in_doubt);
        }
        if let Some(why) = output::unreadable(result.get(), output::DEPTH_MAX) {
            return unusable(&why);
        }
        let is_list = |content: &RawValue| content.get().trim_start().starts_with('[');
        if content.as_deref().is_some_and(|content| !is_list(content)) {
            return unusable(&Message::fixed(
                "its content is no list of blocks",
                "它的 content 不是块的列表",
            ));
        }
        let value = match (self.form, structured_content) {
            (AnswerForm::Content, structured) => {
                let blocks = content.as_ref().map_or("[]", |content| content.get());
                let structured = structured
                    .map(|structured| format!(r#","structured":{}"#, structured.get()))
                    .unwrap_or_default();
                RawValue::from_string(format!(r#"{{"content":{blocks}{structured}}}"#))
                    .expect("an object is made of JSON")
            }
            (AnswerForm::Json, Some(structured)) => structured,
            (AnswerForm::Json, None) => match texts(content.as_deref()) {
                Some(text) => to_raw_value(&text).expect("a text is always JSON"),
                None => RawValue::NULL.to_owned(),
            },
        };
        if value.get().len() > self.output_limit {
            return self.too_large(Skimmed::Result, value.get().as_bytes());
        }
        Outcome::Applied {
            result: value,
            flaw: mended,
        }
    }

    /// What the tool says instead of a result. `in_doubt`: it says itself that it does not know.
    fn said_no(&self, content: Option<&RawValue>, in_doubt: bool) -> Outcome {
        let words = texts(content).filter(|text| !text.trim().is_empty());
        let message = match words {
            Some(words) => Message::verbatim(self.masked(&words)),
            None => Message::fixed(
                "the tool reported an error and gave no reason",
                "工具报告了错误，但没有说明原因",
            ),
        };
        let failure = ToolFailure::new(Code::ToolError, message);
        if self.is_write() && (in_doubt || self.errors == McpErrors::Unknown) {
            return Outcome::Unknown(failure);
        }
        Outcome::DefiniteFailure(failure)
    }

    fn too_large(&self, skimmed: Skimmed, beginning: &[u8]) -> Outcome {
        let limit = self.output_limit;
        if self.is_write() && skimmed == Skimmed::Result {
            let why = said!(
                "the tool did it, but its answer is larger than {limit} bytes; only its beginning was kept",
                "工具已完成操作，但返回的结果超过 {limit} 字节，只保留了开头"
            );
            return Outcome::Applied {
                result: output::beginning(beginning, limit),
                flaw: Some(ToolFailure::new(Code::OutputTooLarge, why)),
            };
        }
        let why = said!(
            "the tool's answer is larger than {limit} bytes: ask for less",
            "工具返回的结果超过 {limit} 字节：请减少请求的内容"
        );
        let failure = ToolFailure::new(Code::OutputTooLarge, why);
        match skimmed {
            Skimmed::IsError if self.errors == McpErrors::SaidNo => {
                Outcome::DefiniteFailure(failure)
            }
            Skimmed::Result | Skimmed::IsError | Skimmed::Error | Skimmed::Nothing => {
                self.undecided(failure)
            }
        }
    }
}

/// The effect stands, and the answer cannot be used.
fn unusable(why: &Message) -> Outcome {
    let what = said!(
        "the tool's answer cannot be used: {why}",
        "工具返回的结果无法使用：{why}",
        why
    );
    Outcome::Applied {
        result: RawValue::NULL.to_owned(),
        flaw: Some(ToolFailure::new(Code::OutputInvalid, what)),
    }
}

/// The texts among the blocks, a line between each; `None`: there are none.
fn texts(content: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct TextBlock {
        r#type: String,
        text: String,
    }

    let blocks: Vec<&RawValue> = serde_json::from_str(content?.get()).ok()?;
    let texts: Vec<String> = blocks
        .iter()
        .filter_map(|block| serde_json::from_str::<TextBlock>(block.get()).ok())
        .filter(|block| block.r#type == "text")
        .map(|block| block.text)
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The same of one that had sent nothing.
pub(super) fn before_anything(why: CutOff) -> ToolFailure {
    match why {
        CutOff::Stopped(reason) => reason.before_anything_was_sent(),
        CutOff::TimedOut => {
            let message = Message::fixed(
                "the attempt's time was over before anything was sent",
                "这次尝试还没有发出任何内容，时间就到了",
            );
            ToolFailure::new(Code::Timeout, message).taken_back(TakenBack::StartedTooLate)
        }
    }
}

/// The failure of an attempt that had to end.
pub(super) fn cut_off(why: CutOff) -> ToolFailure {
    match why {
        CutOff::TimedOut => ToolFailure::new(
            Code::Timeout,
            Message::fixed(
                "the attempt's time was over before the MCP server answered",
                "MCP 服务器还没有响应，这次尝试的时间就到了",
            ),
        ),
        CutOff::Stopped(reason) => {
            let word = reason.word();
            let what = said!(
                "the attempt was {word} before the MCP server answered",
                "这次尝试在 MCP 服务器响应之前{word}",
                word
            );
            ToolFailure::new(reason.code(), what)
        }
    }
}

#[cfg(test)]
mod tests;
