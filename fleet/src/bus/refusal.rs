//! What NATS says no to when it is asked about a stream.

use async_nats::jetstream::{
    ErrorCode,
    context::{
        CreateStreamError, CreateStreamErrorKind, DeleteStreamError, DeleteStreamErrorKind,
        GetStreamError, GetStreamErrorKind,
    },
};

/// Whether there was no stream to delete.
pub(super) fn is_gone(error: &DeleteStreamError) -> bool {
    matches!(error.kind(), DeleteStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Whether there is no stream of the name.
pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Whether a stream of the name is there already, with other settings.
pub(super) fn is_taken(error: &CreateStreamError) -> bool {
    matches!(error.kind(), CreateStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NAME_EXIST)
}
