//! The meaning of NATS's errors about streams.

use async_nats::jetstream::{
    ErrorCode,
    context::{
        CreateStreamError, CreateStreamErrorKind, DeleteStreamError, DeleteStreamErrorKind,
        GetStreamError, GetStreamErrorKind,
    },
};

/// Whether the stream to delete did not exist.
pub(super) fn is_gone(error: &DeleteStreamError) -> bool {
    matches!(error.kind(), DeleteStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Whether no stream of this name exists.
pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Whether a stream of this name exists already, with other settings.
pub(super) fn is_taken(error: &CreateStreamError) -> bool {
    matches!(error.kind(), CreateStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NAME_EXIST)
}
