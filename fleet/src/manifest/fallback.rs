//! What answers a call in the place of its tool, where the tool cannot.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    answer_form::AnswerForm,
    duration,
    policy::{Sensitive, SensitiveMode},
    problem::Problems,
};
use crate::{arguments::Schema, call::Effect, content, ids::ToolName, probe};

/// What answers where the tool cannot, tried in this order: another tool, an old answer, a constant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallbackSpec {
    /// Another read tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<OtherTool>,
    /// The last good answer to an equal call, of those that the cache keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<StaleSpec>,
    /// This answer; any JSON but null, at most 64 KiB of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stub: Option<Value>,
}

/// The other tool that is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherTool {
    /// A tool with effect `read`, without a limit and a fallback of its own; its current version is asked.
    pub name: ToolName,
    /// Its arguments, templates as a probe's. `None`: those of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
}

/// How old an old answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaleSpec {
    /// The longest time since the end of the call that got the answer; 1ms to 7 days.
    #[serde(with = "duration")]
    pub max_age: Duration,
}

/// Why a tool cannot be asked in the place of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfitTool {
    /// It is not applied.
    Missing,
    /// It takes no calls any more.
    Retired,
    /// The program of the caller runs it, which is not asked in the place of a worker.
    Client,
    /// Some of its calls need somebody's yes, and nobody would be asked.
    NeedsApproval,
    /// It may say that it answers later, and the call of the other tool waits for nobody.
    AnswersLater,
    /// It may change something.
    Writes,
    /// The fleet bounds its attempts: a place or a start time is taken with a claim, and it would have none of its own.
    Limited,
    /// Its policy decides by the run or session of a call, and such a question is of none.
    Ruled,
    /// Its budget is asked before a claim, and such a question has none of its own.
    Budgeted,
    /// It has a fallback itself.
    FallsBack,
    /// Other workers run it: those of this tool may lack its programs, interceptors and network.
    Elsewhere,
    /// What its file hides in the history would stand open in the row of the other tool.
    Sensitive,
}

impl UnfitTool {
    /// The reason, for people: what follows "the tool of its fallback".
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Missing => "is not applied; apply it first",
            Self::Retired => {
                "is retired; apply a newer version of it, or name a tool that takes calls"
            }
            Self::Client => "is run by the caller's program; name a tool that workers run",
            Self::NeedsApproval => {
                "has an approval, and nobody would be asked; name a tool without"
            }
            Self::AnswersLater => {
                "has a completion, and may answer later than the call waits; name a tool without"
            }
            Self::Writes => {
                "has another effect than read: it would change something that nobody asked for; name a read"
            }
            Self::Limited => {
                "has a concurrency or a rate_limit, which only a call of its own can keep; name a tool without"
            }
            Self::Ruled => {
                "has a policy, which judges calls by their run or session, and such a question is of none; name a tool without"
            }
            Self::Budgeted => {
                "has a budget, which only calls of its own can keep; name a tool without"
            }
            Self::FallsBack => {
                "has a fallback itself, and there is one step only; name what stands behind it"
            }
            Self::Elsewhere => {
                "is of another queue, whose workers alone have what it needs; name a tool of this tool's queue"
            }
            Self::Sensitive => {
                "has sensitive values, which would stand open in this tool's answers; name a tool without"
            }
        }
    }
}

/// What decides whether a tool may have a fallback.
pub(super) struct FallbackOwner<'a> {
    pub(super) name: &'a ToolName,
    pub(super) effect: Effect,
    pub(super) sensitive: Option<&'a Sensitive>,
    pub(super) has_cache: bool,
    pub(super) output: AnswerForm,
    pub(super) output_schema: Option<&'a Value>,
}

impl FallbackSpec {
    /// The longest age that an old answer may be allowed to have: so long it is kept at most.
    pub const MAX_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
    /// The most bytes of a stub, as JSON.
    const STUB_MAX: usize = 64 * 1024;

    pub(super) fn check(&self, owner: &FallbackOwner<'_>, problems: &mut Problems) {
        let Self { tool, stale, stub } = self;
        if owner.effect != Effect::Read {
            problems.add(
                "/fallback",
                format!(
                    "another answer can stand in for that of a read alone, and this tool has effect {}: nobody would know what was \
                     done; leave fallback out",
                    owner.effect
                ),
            );
        }
        let omits = |sensitive: &Sensitive| sensitive.mode == SensitiveMode::Omit;
        if owner.sensitive.is_some_and(omits) {
            problems.add(
                "/fallback",
                "what stands in is stored with the call and given again to its key, and sensitive: omit takes values out of it; \
                 leave fallback out, or write mode: mask",
            );
        }
        if tool.is_none() && stale.is_none() && stub.is_none() {
            problems.add(
                "/fallback",
                "it names nothing that could answer; write tool, stale or stub, or leave fallback out",
            );
        }
        if let Some(tool) = tool {
            tool.check(owner.name, problems);
        }
        if let Some(stale) = stale {
            stale.check(owner.has_cache, problems);
        }
        if let Some(stub) = stub {
            check_stub(stub, owner, problems);
        }
    }
}

impl OtherTool {
    fn check(&self, own: &ToolName, problems: &mut Problems) {
        if self.name == *own {
            problems.add(
                "/fallback/tool/name",
                "a tool that cannot answer cannot stand in for itself; name another one with effect read, or write retry",
            );
        }
        if let Some(args) = &self.args {
            for (path, sentence) in probe::unreadable_arguments(args) {
                problems.add(format!("/fallback/tool{path}"), sentence);
            }
        }
    }
}

impl StaleSpec {
    fn check(&self, has_cache: bool, problems: &mut Problems) {
        if !has_cache {
            problems.add(
                "/fallback/stale",
                "an old answer is one that the cache has kept; write a cache: {ttl: …}, or leave stale out",
            );
        }
        if self.max_age.is_zero() || self.max_age > FallbackSpec::MAX_AGE_MAX {
            problems.add(
                "/fallback/stale/max_age",
                "an old answer is kept for more than nothing and at most a week; write 1ms to 168h",
            );
        }
    }
}

fn check_stub(stub: &Value, owner: &FallbackOwner<'_>, problems: &mut Problems) {
    if stub.to_string().len() > FallbackSpec::STUB_MAX {
        problems.add(
            "/fallback/stub",
            "a constant answer has at most 64KiB; write a shorter one",
        );
        return;
    }
    // A schema that does not compile has been named already.
    let schema = owner.output_schema;
    let schema = schema.and_then(|schema| Schema::compile(schema).ok());
    let (described, place) = match owner.output {
        AnswerForm::Json => (stub, ""),
        AnswerForm::Content => {
            if let Some(flaw) = content::flaw(stub) {
                let (path, why) = (flaw.path, flaw.why);
                let message = format!(
                    "the stub is no content: {}; write an answer that the tool could give",
                    why.english()
                );
                problems.add(format!("/fallback/stub{path}"), message);
                return;
            }
            let structured = content::structured(stub).unwrap_or(&Value::Null);
            (structured, "/structured")
        }
    };
    let Some(schema) = schema else { return };
    let violations = schema.validate(described);
    if let Some(violation) = violations.items().first() {
        let why = violation.sentence();
        problems.add(
            format!("/fallback/stub{place}{}", violation.path),
            format!(
                "the stub does not fit output_schema: {}; write an answer that the tool could give",
                why.english()
            ),
        );
    }
}
