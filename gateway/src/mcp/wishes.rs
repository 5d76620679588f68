//! What a request wants to hear while it is answered. Pure.
//!
//! Progress is told to who sends a token for it, log messages to who says from which level on. Who sends neither is answered with JSON, and
//! costs nothing more.

use fleet::wire::message::Message;
use serde_json::value::RawValue;

use super::{
    log_level::LogLevel,
    message::{RpcRequest, id_of},
    revision::Revision,
    rpc::RpcError,
};

/// Where a request says that it wants to hear of progress.
const PROGRESS: &str = "progressToken";
/// Where a request says which log messages it wants.
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// From which level on log messages are told in an older revision to who hears of progress and has said nothing of levels.
const UNSAID: LogLevel = LogLevel::Info;

/// What a request wants to hear while it is answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Wishes {
    /// With what its progress is told: a string or a whole number, as it was sent.
    pub(super) progress: Option<Box<RawValue>>,
    /// From which level on log messages are told.
    pub(super) log: Option<LogLevel>,
}

impl Wishes {
    /// Of a request. `session`: from which level on its session wants log messages, for older revisions say that once for all.
    ///
    /// # Errors
    ///
    /// A token is none, or there is no such level.
    pub(super) fn of(
        request: &RpcRequest,
        revision: Revision,
        session: Option<LogLevel>,
    ) -> Result<Self, RpcError> {
        let progress = request.meta.get(PROGRESS).map(|token| {
            id_of(token).map(|id| id.0).ok_or_else(|| {
                RpcError::invalid_params(Message::fixed(
                    "params._meta.progressToken must be a string or a whole number",
                    "params._meta.progressToken 必须是字符串或整数",
                ))
            })
        });
        let progress = progress.transpose()?;
        let log = match (revision, request.meta.get(LEVEL)) {
            (Revision::Legacy, _) => session.or(progress.as_ref().map(|_| UNSAID)),
            (Revision::Modern, None) => None,
            (Revision::Modern, Some(level)) => {
                let level = LogLevel::read(level);
                Some(level.ok_or_else(|| RpcError::invalid_params(NO_LEVEL))?)
            }
        };
        Ok(Self { progress, log })
    }

    /// Whether there is anything to be told.
    pub(super) const fn is_any(&self) -> bool {
        self.progress.is_some() || self.log.is_some()
    }
}

/// The level that `logging/setLevel` asks for.
///
/// # Errors
///
/// There is no such level.
pub(super) fn level(request: &RpcRequest) -> Result<LogLevel, RpcError> {
    let level = request.params.get("level");
    let level = level.and_then(|level| LogLevel::read(level));
    level.ok_or_else(|| RpcError::invalid_params(NO_LEVEL))
}

/// What is no level.
const NO_LEVEL: Message = Message::fixed(
    "a log level is debug, info, notice, warning, error, critical, alert or emergency",
    "日志级别只能是 debug、info、notice、warning、error、critical、alert 或 emergency",
);

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{super::message::RpcMessage, *};

    fn request(meta: &str) -> RpcRequest {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"_meta":{meta}}}}}"#
        );
        match RpcMessage::read(&Bytes::from(body)) {
            Ok(RpcMessage::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_sends_no_token_and_no_level_is_told_nothing() {
        let of = |meta: &str, revision| Wishes::of(&request(meta), revision, None);
        assert!(!of("{}", Revision::Modern).unwrap().is_any());
        for token in ["1", "\"a\"", "-7"] {
            let wishes = of(&format!(r#"{{"progressToken":{token}}}"#), Revision::Legacy);
            assert_eq!(wishes.unwrap().progress.unwrap().get(), token);
        }
        for token in ["null", "1.5", "{}", "true"] {
            let wishes = of(&format!(r#"{{"progressToken":{token}}}"#), Revision::Modern);
            assert!(wishes.is_err(), "{token}");
        }
        let level = r#"{"io.modelcontextprotocol/logLevel":"warning"}"#;
        assert_eq!(
            of(level, Revision::Modern).unwrap().log,
            Some(LogLevel::Warning)
        );
        // That is said by a request of its own there.
        assert_eq!(of(level, Revision::Legacy).unwrap().log, None);
        for wrong in ["\"loud\"", "1", "null"] {
            let meta = format!(r#"{{"io.modelcontextprotocol/logLevel":{wrong}}}"#);
            assert!(of(&meta, Revision::Modern).is_err(), "{wrong}");
        }
        let session = Wishes::of(&request("{}"), Revision::Legacy, Some(LogLevel::Error));
        assert_eq!(session.unwrap().log, Some(LogLevel::Error));
        // Who has said nothing, and listens all the same.
        let unsaid = of(r#"{"progressToken":1}"#, Revision::Legacy).unwrap();
        assert_eq!(unsaid.log, Some(LogLevel::Info));
    }
}
