//! The headers of a chunk, in requests and in answers.

/// The header that names the file of a chunk.
pub(super) const FILE: &str = "Toolfleet-File";
/// The header with the place of a chunk in its file.
pub(super) const OFFSET: &str = "Toolfleet-File-Offset";
/// The header with the bytes that the file of a chunk has.
pub(super) const BYTES: &str = "Toolfleet-File-Bytes";
/// The header with the type of the file of a chunk.
pub(super) const MIME: &str = "Toolfleet-File-Mime";
