//! What a client can be asked, as it declares. Pure.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{message::RpcRequest, negotiate::META_CAPABILITIES};

/// What a client can be asked, as it declares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Askable {
    /// Its user, with a form.
    pub(super) form: bool,
    /// Its user, with a page somewhere else.
    pub(super) url: bool,
    /// Its model.
    pub(super) sampling: bool,
    /// The same with tools that it may use for that.
    pub(super) sampling_with_tools: bool,
    /// Its folders.
    pub(super) roots: bool,
}

impl Askable {
    /// Of who sends this request, which says so itself.
    pub(super) fn of_request(request: &RpcRequest) -> Self {
        let capabilities = request.meta.get(META_CAPABILITIES);
        capabilities.map(Self::of).unwrap_or_default()
    }

    /// Of who begins a session with this request.
    pub(super) fn of_handshake(request: &RpcRequest) -> Self {
        let capabilities = request.params.get("capabilities");
        capabilities.map(Self::of).unwrap_or_default()
    }

    /// Of the capabilities of a client; nothing, where they cannot be read.
    pub(super) fn of(capabilities: &Bytes) -> Self {
        #[derive(Deserialize)]
        struct Declared<'a> {
            #[serde(default, borrow)]
            elicitation: Option<&'a RawValue>,
            #[serde(default, borrow)]
            sampling: Option<&'a RawValue>,
            #[serde(default, borrow)]
            roots: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct SamplingParts {
            #[serde(default)]
            tools: Option<serde::de::IgnoredAny>,
        }
        #[derive(Deserialize)]
        struct Modes {
            #[serde(default)]
            form: Option<serde::de::IgnoredAny>,
            #[serde(default)]
            url: Option<serde::de::IgnoredAny>,
        }

        let Ok(declared) = serde_json::from_slice::<Declared<'_>>(capabilities) else {
            return Self::default();
        };
        let modes = declared
            .elicitation
            .and_then(|modes| serde_json::from_str::<Modes>(modes.get()).ok());
        let has = |is: fn(&Modes) -> bool| modes.as_ref().is_some_and(is);
        Self {
            // Without a mode it is a form.
            form: has(|modes| modes.form.is_some() || modes.url.is_none()),
            url: has(|modes| modes.url.is_some()),
            sampling: declared.sampling.is_some(),
            sampling_with_tools: declared.sampling.is_some_and(|parts| {
                let parts = serde_json::from_str::<SamplingParts>(parts.get());
                parts.is_ok_and(|parts| parts.tools.is_some())
            }),
            roots: declared.roots.is_some(),
        }
    }

    /// Whether it can be asked anything.
    pub(super) const fn is_any(self) -> bool {
        self.form || self.url || self.sampling || self.roots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_asked_what_it_declares_and_nothing_else() {
        for (capabilities, form, sampling, roots) in [
            ("{}", false, false, false),
            (r#"{"elicitation":{}}"#, true, false, false),
            (r#"{"elicitation":{"form":{}}}"#, true, false, false),
            (r#"{"elicitation":{"url":{}}}"#, false, false, false),
            (
                r#"{"elicitation":{"url":{},"form":{}}}"#,
                true,
                false,
                false,
            ),
            (r#"{"elicitation":true}"#, false, false, false),
            (
                r#"{"sampling":{},"roots":{"listChanged":true}}"#,
                false,
                true,
                true,
            ),
            (
                r#"{"sampling":{"context":{},"tools":{}}}"#,
                false,
                true,
                false,
            ),
            (r#"{"sampling":{"tools":null}}"#, false, true, false),
            ("[]", false, false, false),
        ] {
            let askable = Askable::of(&Bytes::copy_from_slice(capabilities.as_bytes()));
            let url = capabilities.contains("url");
            let expected = Askable {
                form,
                url,
                sampling,
                sampling_with_tools: capabilities.contains(r#""tools":{}"#),
                roots,
            };
            assert_eq!(askable, expected, "{capabilities}");
            assert_eq!(askable.is_any(), form || url || sampling || roots);
        }
    }
}
