//! The tool `toolfleet_get`, which the gateway answers itself: a read that waits for a call by its id.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    arguments::{Limits, parse},
    ids::CallId,
    wire::{code::Code, message::Message},
};
use serde::Deserialize;

use super::{client::McpClient, look::LookedCall};
use crate::{asked::call_id, desk::CallDesk, refusal::Refused, wait::WaitUntil};

/// Its name. Another tool of that name is not shown over MCP.
pub(super) const NAME: &str = "toolfleet_get";
/// The longest wait, in seconds: what stands between ends a silent connection after thirty.
pub(super) const WAIT_MAX_S: u64 = 25;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WantedCall {
    call: CallId,
    wait: Duration,
}

impl WantedCall {
    /// Of these arguments.
    ///
    /// # Errors
    ///
    /// They are not as the tool's schema says.
    pub(super) fn read(arguments: &Bytes) -> Result<Self, Refused> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Arguments {
            call_id: String,
            #[serde(default)]
            wait_s: Option<u64>,
        }

        let read = parse(arguments, &Limits::DEFAULT)
            .map_err(|wrong| Refused::new(wrong.code.into(), wrong.message))?;
        let read: Arguments = serde_json::from_value(read).map_err(|_other| {
            let what = Message::fixed(
                "give call_id, and perhaps wait_s, a whole number up to 25",
                "请给出 call_id，也可以给出 wait_s（不超过 25 的整数）",
            );
            Refused::new(Code::InvalidArguments, what)
        })?;
        let wait = read.wait_s.unwrap_or(WAIT_MAX_S).min(WAIT_MAX_S);
        Ok(Self {
            call: call_id(&read.call_id)?,
            wait: Duration::from_secs(wait),
        })
    }

    /// The call as it stands when it is decided, or when the time is over. One of a tool that the token is not for, or of another tenant,
    /// is answered as one that does not exist. Dropping the future gives up the answer.
    ///
    /// # Errors
    ///
    /// No dispatcher answers.
    pub(super) async fn answer(
        self,
        desk: &CallDesk,
        client: &McpClient,
    ) -> Result<LookedCall, Refused> {
        LookedCall::at(desk, client, self.call, self.wait, WaitUntil::Decided).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_by_its_id_and_nothing_else() {
        let id = CallId::generate();
        let read = |arguments: String| WantedCall::read(&Bytes::from(arguments));
        let wanted = read(format!(r#"{{"call_id":"{id}"}}"#)).unwrap();
        assert_eq!(wanted.wait, Duration::from_secs(25));
        let wanted = read(format!(r#"{{"call_id":"{id}","wait_s":0}}"#)).unwrap();
        assert_eq!(
            wanted,
            WantedCall {
                call: id,
                wait: Duration::ZERO
            }
        );
        for wrong in [
            "{}".to_owned(),
            "[]".to_owned(),
            r#"{"call_id":"x"}"#.to_owned(),
            format!(r#"{{"call_id":"{id}","wait_s":-1}}"#),
            format!(r#"{{"call_id":"{id}","more":1}}"#),
            format!(r#"{{"call_id":"{id}","call_id":"{id}"}}"#),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
