//! **What does a worker lack to run this call?** Found before the claim, and written to the ledger.
//!
//! It is written on the call that the worker puts back, and on the worker's own row for tools that it cannot run, whatever the
//! arguments.

use serde::{Deserialize, Serialize};

use crate::{
    call::{Language, words},
    ids::ToolName,
    outcome::ToolFailure,
    said,
    secrets::Secrets,
    wire::message::Message,
};

words! {
    /// What is lacking.
    Lack {
        /// The worker does not have the version of the tool.
        ToolVersion = "tool_version",
        /// A secret that the tool needs is missing or cannot be used.
        Secret = "secret",
        /// Every program slot of the worker is taken.
        ProgramSlot = "program_slot",
        /// An interceptor that the tool's manifest demands.
        Interceptor = "interceptor",
        /// An interceptor's consent: it lets the call wait, or could not be asked.
        Consent = "consent",
        /// Anything else that another worker may have: a handler, a database, a guard for programs.
        Ability = "ability",
    }
}

impl Lack {
    /// Whether it passes by itself within moments: then it is no event of the call.
    pub const fn passes(self) -> bool {
        match self {
            Self::ProgramSlot => true,
            Self::ToolVersion
            | Self::Secret
            | Self::Interceptor
            | Self::Consent
            | Self::Ability => false,
        }
    }

    /// What an operator can do about it, one clause; `secret` is the secret's name, where one is lacking.
    pub fn remedy(self, secret: Option<&str>) -> String {
        match (self, secret) {
            (Self::Secret, Some(secret)) => format!(
                "give the workers of its queue a readable file {secret} in the folder of their --secrets, or start them with {}{secret}",
                Secrets::VARIABLE_PREFIX
            ),
            (Self::Secret, None) | (Self::Ability, _) => {
                "start a worker that has it, or give it to the workers of the queue".to_owned()
            }
            (Self::ToolVersion, _) => {
                "upgrade the workers of the queue to the release that reads it".to_owned()
            }
            (Self::Interceptor, _) => {
                "let only workers pull its queue whose program has the interceptor".to_owned()
            }
            (Self::Consent, _) => {
                "wait; if it does not end, look at what the interceptor waits for, or into the log of the worker"
                    .to_owned()
            }
            (Self::ProgramSlot, _) => {
                "wait; more workers, or a higher --programs where the machine bears it, let more run"
                    .to_owned()
            }
        }
    }
}

/// What keeps a worker from running a call. Contains names of secrets, and never their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// What kind of thing is lacking.
    pub lack: Lack,
    /// The secret's name, where one is lacking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// One clause for people, about the worker.
    pub why: String,
    /// The same in Chinese.
    pub why_zh: String,
    /// The name of the worker.
    pub worker: String,
}

/// A tool that a worker cannot run, whatever the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inability {
    /// The tool.
    pub tool: ToolName,
    /// Its current version, as the worker knows it.
    pub version: i32,
    /// What the worker lacks.
    #[serde(flatten)]
    pub obstacle: Obstacle,
}

/// The detail of a failure that contains a secret's name.
const SECRET: &str = "secret";

impl Obstacle {
    /// What keeps this worker from a call or a tool.
    pub fn new(lack: Lack, why: &Message, worker: impl Into<String>) -> Self {
        Self {
            lack,
            secret: None,
            why: why.told(Language::En).to_owned(),
            why_zh: why.told(Language::Zh).to_owned(),
            worker: worker.into(),
        }
    }

    /// The obstacle behind an executor's failure, before anything was sent.
    pub fn of(failure: &ToolFailure, worker: impl Into<String>) -> Self {
        let details = failure.details.as_ref();
        let secret = details.and_then(|details| details.get(SECRET)?.as_str());
        let lack = if secret.is_some() {
            Lack::Secret
        } else {
            Lack::Ability
        };
        Self {
            secret: secret.map(ToOwned::to_owned),
            ..Self::new(lack, &failure.message, worker)
        }
    }

    /// The details of a failure that is about this secret.
    pub fn details_of_secret(name: &str) -> serde_json::Value {
        serde_json::json!({ SECRET: name })
    }

    /// Whether the same thing is lacking, here or on another worker.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.lack == other.lack && self.why == other.why
    }

    /// What an operator can do about it: one clause.
    pub fn remedy(&self) -> String {
        self.lack.remedy(self.secret.as_deref())
    }

    /// Why a call whose deadline has passed did not run.
    pub fn kept_it_from_running(&self) -> Message {
        let worker = &self.worker;
        let why = Message::new(self.why.clone(), self.why_zh.clone());
        said!(
            "no worker could run the call before its deadline; worker {worker}: {why}",
            "在截止时间之前没有 worker 能执行这次调用；worker {worker}：{why}",
            why
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::code::Code;

    #[test]
    fn a_missing_secret_is_told_by_name_and_elsewhere_is_the_same() {
        let what = Message::fixed("secret TOKEN is not here", "密钥 TOKEN 不在这里");
        let failure = ToolFailure::new(Code::Unavailable, what)
            .with_details(Obstacle::details_of_secret("TOKEN"));
        let obstacle = Obstacle::of(&failure, "a");
        assert_eq!(obstacle.lack, Lack::Secret);
        assert_eq!(obstacle.secret.as_deref(), Some("TOKEN"));
        assert!(obstacle.is_same_as(&Obstacle::of(&failure, "b")));
        let text = serde_json::to_string(&obstacle).unwrap();
        assert_eq!(serde_json::from_str::<Obstacle>(&text).unwrap(), obstacle);
        let message = obstacle.kept_it_from_running();
        assert_eq!(
            message.english(),
            "no worker could run the call before its deadline; worker a: secret TOKEN is not here"
        );
        let other = ToolFailure::new(Code::Unavailable, Message::fixed("no handler", "x"));
        let other = Obstacle::of(&other, "a");
        assert_eq!(other.lack, Lack::Ability);
        assert!(!other.is_same_as(&obstacle));
    }
}
