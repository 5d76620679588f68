//! What a manifest decides about its calls: keys, mended arguments, exit codes, sensitive values.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;
use crate::call::words;

/// The shortest life of a key after its call is terminal.
pub(super) const KEY_RETENTION_MIN: Duration = Duration::from_secs(24 * 3600);

words! {
    /// Where the idempotency key of a call comes from. A key that a caller sends always counts.
    KeyPolicy {
        /// A call without a key is refused.
        Required = "required",
        /// A call without a key is accepted, and a repetition is another call.
        Optional = "optional",
        /// A call without a key gets one made of its tenant, tool and arguments: a repetition is the same call.
        FromArguments = "from_arguments",
    }
}

words! {
    /// How much of a model's small mistakes in arguments is mended.
    #[derive(Default)]
    CoercionPolicy {
        /// What the effect class allows.
        #[default]
        On = "on",
        /// What every effect class allows, even for a `read` tool.
        Safe = "safe",
        /// Nothing, and no defaults are filled in.
        Off = "off",
    }
}

impl CoercionPolicy {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How the tool itself recognises a repeated call: where the constant downstream key goes, and how long it is honoured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idempotency {
    /// The HTTP header that carries the key. Process tools find it in `TOOLFLEET_IDEMPOTENCY_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The top-level argument that carries the key; a caller may not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// How long after the first attempt the tool still recognises the key.
    #[serde(default = "Idempotency::default_valid_for", with = "duration")]
    pub valid_for: Duration,
}

impl Idempotency {
    const fn default_valid_for() -> Duration {
        KEY_RETENTION_MIN
    }
}

/// The meaning of a program's exit codes besides 0, which is success. Every other one leaves the effect of a write unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExitCodes {
    /// The tool said no.
    pub business: Vec<u8>,
    /// They prove that a write did not happen.
    pub not_applied: Vec<u8>,
}

impl Default for ExitCodes {
    fn default() -> Self {
        Self {
            business: vec![10],
            not_applied: Vec::new(),
        }
    }
}

impl ExitCodes {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which values of a call are shown only to its tool and its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitive {
    /// JSON pointers into arguments and results, such as `/card/number`; `*` as a segment stands for every one.
    pub pointers: Vec<String>,
    /// What happens to them.
    #[serde(default)]
    pub mode: SensitiveMode,
}

words! {
    /// What happens to sensitive values.
    #[derive(Default)]
    SensitiveMode {
        /// Stored, and masked wherever they are shown.
        #[default]
        Mask = "mask",
        /// As `mask`, and no longer stored once the call is terminal.
        Omit = "omit",
    }
}
