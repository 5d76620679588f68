//! A call that a server goes on with as a task: looked at until it is over, and cancelled where the attempt ends first.

use std::time::Duration;

use fleet::{
    outcome::{Outcome, ToolFailure},
    said,
    wire::{code::Code, message::Message},
};
use serde_json::json;
use tokio::time::sleep;

use super::{
    answer::{AnswerRules, CallResult, Task, cut_off},
    came::{Came, CutOff},
    connection::Greeting,
    cut::AttemptEnd,
    http::Exchanged,
    message::RpcAnswer,
    peer::Peer,
};
use crate::executors::Stop;

/// The shortest and the longest pause between two looks.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(30);
/// The pause where the server asks for none.
const LOOK: Duration = Duration::from_secs(1);
/// How many looks in a row may fail.
const FAILURES_MAX: u32 = 5;
/// How long taking back a task may take.
const CANCEL_MAX: Duration = Duration::from_secs(1);

/// Follows a task until it is over.
pub(super) async fn follow(
    mut task: Task,
    rules: &AnswerRules,
    peer: &Peer<'_>,
    greeting: &Greeting,
    limit: usize,
) -> Outcome {
    let id = task.task_id.clone();
    let mut failures = 0;
    loop {
        if let Some(outcome) = ended(&task, rules) {
            return outcome;
        }
        if task.status == "input_required" {
            // It has begun, so its call cannot wait for its caller any more.
            cancel(peer, greeting, &id).await;
            let what = Message::fixed(
                "the MCP server wants to know something after it has begun, and its call cannot wait for that",
                "MCP 服务器在开始之后才需要输入，而这次调用无法等待",
            );
            return Outcome::Unknown(ToolFailure::new(Code::Unavailable, what));
        }
        if let Some(words) = &task.status_message {
            peer.hear.reports(None, words);
        }
        let pause = task.poll_interval_ms.map_or(LOOK, Duration::from_millis);
        let pause = pause.clamp(LOOK_MIN, LOOK_MAX);
        tokio::select! {
            biased;
            why = peer.cut.told() => return given_up(peer, greeting, &id, why).await,
            () = sleep(pause) => {}
        }
        let params = json!({ "taskId": id });
        let Exchanged { came, .. } = peer.ask("tasks/get", &params, greeting, limit).await;
        let looked = match came {
            Came::Answer(RpcAnswer::Result(result, _)) => serde_json::from_str(result.get()).ok(),
            // The server does not know it any more, and says nothing of its effect.
            Came::Answer(RpcAnswer::Error(error)) => {
                let code = error.code;
                let what = said!(
                    "the MCP server answered with error {code} when it was asked for its task",
                    "询问任务时 MCP 服务器返回了错误 {code}"
                );
                return Outcome::Unknown(ToolFailure::new(Code::Unavailable, what));
            }
            Came::CutOff(why) => return given_up(peer, greeting, &id, why).await,
            Came::TooLarge(skimmed, beginning) => {
                let came = Came::TooLarge(skimmed, beginning);
                return match rules.class(came) {
                    CallResult::Over(Outcome::Unknown(failure)) => Outcome::Unknown(failure),
                    CallResult::Over(_) | CallResult::Task(_) => Outcome::Unknown(too_large()),
                };
            }
            Came::Status(_) | Came::NoAnswer(_) | Came::NotSent(_) => None,
        };
        match looked {
            Some(next) => (task, failures) = (next, 0),
            None => failures += 1,
        }
        if failures >= FAILURES_MAX {
            let what = Message::fixed(
                "the MCP server does not say any more how its task stands",
                "MCP 服务器不再说明任务的状态",
            );
            return Outcome::Unknown(ToolFailure::new(Code::Unavailable, what));
        }
    }
}

fn too_large() -> ToolFailure {
    let what = Message::fixed(
        "what the MCP server's task came to is too large",
        "MCP 服务器任务的结果过大",
    );
    ToolFailure::new(Code::OutputTooLarge, what)
}

/// What a task has come to, if it is over.
fn ended(task: &Task, rules: &AnswerRules) -> Option<Outcome> {
    match task.status.as_str() {
        "completed" => Some(match &task.result {
            Some(result) => match rules.result(result, None) {
                // It has begun: whatever it says, its call cannot be one that has not.
                CallResult::Over(Outcome::NotStarted(_)) | CallResult::Task(_) => {
                    Outcome::Unknown(unfit())
                }
                CallResult::Over(outcome) => outcome,
            },
            None => Outcome::Unknown(unfit()),
        }),
        "failed" => Some(match &task.error {
            // The same error proves something of a request that was refused, and nothing of one that was begun.
            Some(error) => match rules.error(error) {
                Outcome::DefiniteFailure(failure) | Outcome::NotStarted(failure) => {
                    rules.undecided(failure)
                }
                outcome => outcome,
            },
            None => Outcome::Unknown(unfit()),
        }),
        "cancelled" => {
            let what = Message::fixed(
                "the MCP server has cancelled its task, which may have acted before",
                "MCP 服务器取消了任务，而任务可能已经执行",
            );
            Some(Outcome::Unknown(ToolFailure::new(Code::Unavailable, what)))
        }
        _working => None,
    }
}

fn unfit() -> ToolFailure {
    let what = Message::fixed(
        "the MCP server's task is over, and what it came to cannot be read",
        "MCP 服务器的任务已经结束，但无法读取它的结果",
    );
    ToolFailure::new(Code::OutputInvalid, what)
}

/// The attempt has to end: the task is taken back, which proves nothing about it.
async fn given_up(peer: &Peer<'_>, greeting: &Greeting, id: &str, why: CutOff) -> Outcome {
    cancel(peer, greeting, id).await;
    Outcome::Unknown(cut_off(why))
}

async fn cancel(peer: &Peer<'_>, greeting: &Greeting, id: &str) {
    let cut = AttemptEnd {
        until: tokio::time::Instant::now() + CANCEL_MAX,
        stop: Stop::under(tokio_util::sync::CancellationToken::new()),
    };
    let peer = Peer { cut: &cut, ..*peer };
    let params = json!({ "taskId": id });
    peer.ask("tasks/cancel", &params, greeting, 64 * 1024).await;
}

#[cfg(test)]
mod tests {
    use fleet::{
        call::Effect,
        manifest::{AnswerForm, McpErrors},
    };

    use super::*;

    #[test]
    fn a_task_that_has_begun_is_never_one_that_has_not() {
        let rules = AnswerRules {
            effect: Effect::Once,
            errors: McpErrors::SaidNo,
            form: AnswerForm::Json,
            output_limit: 1_000,
            secrets: Vec::new(),
        };
        for (task, word) in [
            (
                r#""status":"completed","result":{"structuredContent":1}"#,
                Some("applied"),
            ),
            (
                r#""status":"completed","result":{"isError":true}"#,
                Some("definite_failure"),
            ),
            (
                r#""status":"completed","result":{"resultType":"input_required","inputRequests":{}}"#,
                Some("unknown"),
            ),
            (
                r#""status":"completed","result":{"resultType":"task","taskId":"b"}"#,
                Some("unknown"),
            ),
            (r#""status":"completed""#, Some("unknown")),
            (
                r#""status":"failed","error":{"code":-32602,"message":"no"}"#,
                Some("unknown"),
            ),
            (
                r#""status":"failed","error":{"code":-32603,"message":"no"}"#,
                Some("unknown"),
            ),
            (r#""status":"cancelled""#, Some("unknown")),
            (r#""status":"working""#, None),
        ] {
            let task: Task = serde_json::from_str(&format!(r#"{{"taskId":"a",{task}}}"#)).unwrap();
            let outcome = ended(&task, &rules);
            assert_eq!(
                outcome.map(|outcome| outcome.word().as_str()),
                word,
                "{task:?}"
            );
        }
    }
}
