//! **Can the policy of a tool judge this call?** Whether it breaks a rule, a worker asks the ledger; here are the requests of which that
//! could not be asked, or with which the answer to one would be the answer to others. Pure.

use fleet::{
    manifest::{AtMostPer, KeyPolicy, Policy},
    said,
    wire::{code::Code, headers::RequestHeaders, message::Message},
};

use crate::{
    check::{Checked, Submission},
    refusal::Refusal,
};

/// Lets a call on which the policy of its tool's newest version can judge, or that has none.
///
/// # Errors
///
/// `header_invalid`: it does not say of which run or session it is, and a rule looks there. `forbidden`: the version that it asks for is
/// run by its caller's program, which no rule stops, or makes one call of equal arguments in all runs.
pub(super) fn judges(submission: &Submission, checked: &Checked) -> Result<(), Refusal> {
    let Some(policy) = &checked.newest.manifest.policy else {
        return Ok(());
    };
    let tool = &checked.tool.manifest;
    let (name, version) = (&tool.name, tool.version);
    if tool.is_run_by_client() {
        let what = said!(
            "version {version} of {name} would be run by the caller's program, where its policy cannot be judged; ask for the newest version",
            "工具 {name} 的版本 {version} 由调用方的程序运行，无法判断它的 policy；请使用最新版本"
        );
        return Err(Refusal::new(Code::Forbidden, what));
    }
    if tool.key_policy() == KeyPolicy::FromArguments {
        let what = said!(
            "version {version} of {name} makes its key of its arguments, and a refusal by its policy would answer equal arguments in every \
             run; ask for the newest version",
            "工具 {name} 的版本 {version} 由参数生成幂等键，policy 的一次拒绝会成为所有 run 中相同参数的答复；请使用最新版本"
        );
        return Err(Refusal::new(Code::Forbidden, what));
    }
    match missing(policy, &submission.headers) {
        None => Ok(()),
        Some(header) => {
            let what = said!(
                "the policy of {name} looks at what happened before, and this call does not say where; send the header {header}",
                "工具 {name} 的 policy 要看之前发生过什么，而这次调用没有说明属于哪里；请发送请求头 {header}",
                header
            );
            Err(Refusal::new(Code::HeaderInvalid, what))
        }
    }
}

/// The header that a rule needs and the call has not.
fn missing(policy: &Policy, headers: &RequestHeaders) -> Option<Message> {
    let (run, session) = (headers.run.is_some(), headers.session.is_some());
    match policy.at_most.as_ref().map(|most| most.per) {
        Some(AtMostPer::Run) if !run => Some(Message::fixed("Toolfleet-Run", "Toolfleet-Run")),
        Some(AtMostPer::Session) if !session => {
            Some(Message::fixed("Toolfleet-Session", "Toolfleet-Session"))
        }
        _ if run || session => None,
        _ => Some(Message::fixed(
            "Toolfleet-Run or Toolfleet-Session",
            "Toolfleet-Run 或 Toolfleet-Session",
        )),
    }
}
