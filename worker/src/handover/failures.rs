//! Why the files of a call cannot be handed over. Nothing was started then.

use std::io;

use fleet::{
    ids::FileId,
    outcome::ToolFailure,
    said,
    store::StoreError,
    taken_back::TakenBack,
    telemetry::report,
    wire::{code::Code, message::Message},
};
use serde_json::json;

/// A file that an attempt was told of is not there any more.
pub(super) fn gone(file: FileId) -> ToolFailure {
    let what = said!(
        "the file {file} is not there any more",
        "文件 {file} 已不存在"
    );
    of_file(what, file, "gone")
}

/// The bytes of a file are not those that were uploaded.
pub(super) fn changed(file: FileId) -> ToolFailure {
    let what = said!(
        "the bytes of the file {file} do not have its SHA-256",
        "文件 {file} 的内容与它的 SHA-256 不符"
    );
    of_file(what, file, "changed")
}

fn of_file(what: Message, file: FileId, problem: &str) -> ToolFailure {
    ToolFailure::new(Code::NotFound, what)
        .with_details(json!({ "file_id": file, "problem": problem }))
}

/// The ledger has not answered, so nothing is known of the file; or it has no such file of this attempt.
pub(super) fn unread(file: FileId, error: &StoreError) -> ToolFailure {
    if matches!(error, StoreError::Unreadable { .. }) {
        return gone(file);
    }
    tracing::debug!(error = report(error), "the files of a call were not read");
    silent()
}

/// The same, where it is known already.
pub(super) fn silent() -> ToolFailure {
    let what = Message::fixed(
        "the files of the call could not be read",
        "无法读取这次调用的文件",
    );
    ToolFailure::new(Code::Unavailable, what).taken_back(TakenBack::ArgumentsUnread)
}

/// This machine does not take the files.
pub(super) fn unwritten(error: &io::Error) -> ToolFailure {
    tracing::warn!(%error, "the files of a call could not be written for its program");
    let what = said!(
        "the files of the call could not be written: {error}",
        "无法写入这次调用的文件：{error}"
    );
    ToolFailure::new(Code::Unavailable, what).taken_back(TakenBack::NoResources)
}

/// It took too long.
pub(super) fn too_late() -> ToolFailure {
    let what = Message::fixed(
        "the attempt's time was over before its files were handed over",
        "这次尝试的文件还没有交给工具，时间就到了",
    );
    ToolFailure::new(Code::Timeout, what).taken_back(TakenBack::StartedTooLate)
}
