//! What a model reads beside a tool's own answer.

use fleet::{ids::CallId, said, wire::message::Message};
use serde_json::Value;

use super::{
    envelope::{StoodIn, ToldFailure},
    get,
};

/// By what a request was found to be an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// By a key that its client gave.
    ItsKey,
    /// By who asks, tool and arguments.
    ItsArguments,
}

/// What went wrong, and what to do now. The message says both in sentences; the word is for programs that read texts.
pub(super) fn failed(failure: &ToldFailure) -> Message {
    let ToldFailure {
        code,
        message,
        suggestion,
        retry_after_ms,
    } = failure;
    if message.is_empty() {
        return Message::fixed(
            "The answer cannot be read; whether anything happened is not known here. Look before you try again.",
            "无法读取回答；这里不知道是否已发生任何操作。请先查看状态再重试。",
        );
    }
    let wait = retry_after_ms.map_or_else(String::new, |wait| format!(", retry_after_ms: {wait}"));
    said!(
        "{message}\n(code: {code}, suggestion: {suggestion}{wait})",
        "{message}\n(code: {code}, suggestion: {suggestion}{wait})"
    )
}

/// It may have happened.
pub(super) fn in_doubt(call: Option<CallId>, failure: &ToldFailure, has_probe: bool) -> Message {
    let id = call.map_or_else(|| "ID".to_owned(), |call| call.to_string());
    let call = named(call);
    let cause = &failure.message;
    let checked = match has_probe {
        true => said!("It is being checked{call}.", "目前正在核实{call}。"),
        false => said!(
            "Nothing checks it by itself{call}: an operator finds out, and says so with `toolfleet calls settle {id}`.",
            "系统不会自动核实{call}：需要操作员查明，并用 `toolfleet calls settle {id}` 说明结果。"
        ),
    };
    said!(
        "It may have happened, do not repeat it: not with other arguments, another tool or a new key. {checked} {cause}",
        "操作可能已经发生，请勿重复：换参数、换工具、换新的幂等键也不行。{checked}{cause}",
        checked
    )
}

/// It was carried out, and nobody knows with which answer.
pub(super) fn settled(call: Option<CallId>) -> Message {
    let call = named(call);
    said!(
        "It was carried out{call}: that was found out afterwards, and its answer is not known. Do not repeat it for the answer.",
        "操作已经执行{call}：这是事后查明的，其返回结果未知。不要为了得到结果而重复。"
    )
}

/// It goes on.
pub(super) fn at_work(call: Option<CallId>) -> Message {
    let (call, get) = (
        call.map_or_else(String::new, |call| call.to_string()),
        get::NAME,
    );
    said!(
        "Still at work. Do not call the tool again: ask for this call with the tool {get} and {{\"call_id\": \"{call}\"}}.",
        "仍在进行。不要再次调用该工具：请用工具 {get} 和 {{\"call_id\": \"{call}\"}} 查询这次调用。"
    )
}

/// It waits for somebody outside the fleet.
pub(super) fn awaited(call: Option<CallId>, whom: &str, by: Option<&str>) -> Message {
    let (call, get) = (
        call.map_or_else(String::new, |call| call.to_string()),
        get::NAME,
    );
    let what = match (whom, by) {
        ("approval", Some("caller")) => said!(
            "a person on the caller's side has to agree, in a program that can ask for it over NATS or HTTP; an operator can decide, too: \
             `toolfleet calls approve {call}`",
            "需要调用方的人员同意（通过 NATS 或 HTTP 的程序）；操作员也可以用 `toolfleet calls approve {call}` 决定"
        ),
        ("approval", _) => said!(
            "a person who may approve has to agree: `toolfleet calls approve {call}` shows it to an operator",
            "需要有权限的人同意：操作员可以用 `toolfleet calls approve {call}` 查看并决定"
        ),
        ("input", _) => Message::fixed(
            "its tool has asked something that is answered over NATS or HTTP",
            "工具提出了问题，需要通过 NATS 或 HTTP 回答",
        ),
        (_, _) => Message::fixed(
            "a program outside the fleet has to hand in the answer, over NATS or HTTP",
            "需要外部程序通过 NATS 或 HTTP 提交结果",
        ),
    };
    said!(
        "Nothing has happened yet: {what}. Do not call the tool again, and do not say that it is done; {get} with \
         {{\"call_id\": \"{call}\"}} tells what became of it.",
        "尚未完成：{what}。不要再次调用该工具，也不要说已经完成；用 {get} 和 {{\"call_id\": \"{call}\"}} 查询结果。",
        what
    )
}

/// What a client would have to declare that its tool asks for.
pub(super) fn lacks(capabilities: &Value) -> Message {
    let of = |(name, parts): (&String, &Value)| -> Vec<String> {
        let parts = parts.as_object().into_iter().flat_map(|parts| parts.keys());
        let parts: Vec<String> = parts.map(|part| format!("{name}.{part}")).collect();
        match parts.is_empty() {
            true => vec![name.clone()],
            false => parts,
        }
    };
    let names = capabilities.as_object().into_iter().flatten().flat_map(of);
    let names = names.collect::<Vec<_>>().join(", ");
    said!(
        "The tool asks something of the client's program, which has not declared that it can be asked: the capability {names} is missing.",
        "工具需要询问客户端程序，但客户端没有声明相应的能力：缺少 {names}。"
    )
}

/// Another answer stands in for the tool's.
pub(super) fn stood_in(stood_in: &StoodIn) -> Message {
    let what = match (stood_in.kind.as_str(), stood_in.age_ms, &stood_in.tool) {
        ("stale", Some(age), _) => {
            let seconds = age.div_ceil(1_000);
            said!(
                "an old one (stale) of {seconds} s ago",
                "{seconds} 秒前的旧结果（stale）"
            )
        }
        ("stub", _, _) => Message::fixed(
            "a constant that only stands in (stub)",
            "只是占位的固定值（stub）",
        ),
        ("other", _, Some(tool)) => said!(
            "that of another tool (other), {tool}",
            "来自另一个工具 {tool}（other）"
        ),
        (kind, _, _) => said!("one that stands in ({kind})", "替代的回答（{kind}）"),
    };
    said!(
        "This is not the tool's live answer but {what}, because the tool could not answer. Say so, and change nothing because of it.",
        "这不是工具的实时结果，而是{what}，因为该工具目前无法回答。使用时必须说明，并且不要据此做任何更改。",
        what
    )
}

/// It is the answer of an earlier call.
pub(super) fn replayed(call: Option<CallId>, by: FoundBy) -> Message {
    let call = named(call);
    match by {
        FoundBy::ItsArguments => said!(
            "This is about an earlier call with the same arguments{call}; nothing was run again. To do the same once more on purpose, \
             call the tool with a new value for idempotency_key.",
            "这是先前一次参数相同的调用{call}的回答，没有再次执行。确实要再做一次时，请给 idempotency_key 一个新值再调用。"
        ),
        FoundBy::ItsKey => said!(
            "This is about an earlier call with the same idempotency key{call}; nothing was run again. To do the same once more on \
             purpose, call the tool with a new key.",
            "这是先前一次使用相同幂等键的调用{call}的回答，没有再次执行。确实要再做一次时，请换用新的幂等键。"
        ),
    }
}

/// Every number of a request has a call that did nothing.
pub(super) fn used_up(numbers: usize) -> Message {
    said!(
        "the same was asked for {numbers} times, and each time it ended without having done anything; to try it again, give \
         idempotency_key a new value",
        "同样的请求已经提出过 {numbers} 次，每次都没有产生任何效果；要再次尝试，请给 idempotency_key 一个新值"
    )
}

fn named(call: Option<CallId>) -> String {
    call.map_or_else(String::new, |call| format!(" (call_id {call})"))
}
