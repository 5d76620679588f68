//! Which files a tool takes beside its arguments.

use serde::{Deserialize, Serialize};

use super::{executor::ExecutorSpec, problem::Problems, size};
use crate::{
    files::{BYTES_MAX, CallFile, MimePattern, NAMED_MAX},
    said,
    wire::message::Message,
};

/// Which files a tool takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesSpec {
    /// The most files of a call, 1 to 16.
    #[serde(default = "FilesSpec::default_max")]
    pub max: usize,
    /// The types that it takes, 1 to 16 patterns.
    #[serde(default = "FilesSpec::default_mime")]
    pub mime: Vec<MimePattern>,
    /// The most bytes of each file, 1 B to 32 MiB.
    #[serde(default = "FilesSpec::default_bytes", with = "size")]
    pub bytes: usize,
}

impl FilesSpec {
    const PATTERNS_MAX: usize = 16;

    const fn default_max() -> usize {
        NAMED_MAX
    }

    fn default_mime() -> Vec<MimePattern> {
        vec!["*/*".parse().expect("it takes every type")]
    }

    const fn default_bytes() -> usize {
        // As many as a file may have.
        BYTES_MAX as usize
    }

    /// Why the tool does not take so many files; `None`: it does.
    pub fn too_many(&self, files: usize) -> Option<Message> {
        let max = self.max;
        (files > max).then(|| {
            said!(
                "the tool takes {max} files at most, and the call names {files}",
                "这个工具最多接受 {max} 个文件，而调用给出了 {files} 个"
            )
        })
    }

    /// Why the tool does not take this file; `None`: it does.
    pub fn misfit(&self, file: &CallFile) -> Option<Message> {
        let CallFile {
            file_id,
            mime,
            bytes,
            ..
        } = file;
        if !self.mime.iter().any(|pattern| pattern.takes(mime)) {
            let patterns: Vec<String> = self.mime.iter().map(ToString::to_string).collect();
            let patterns = patterns.join(", ");
            return Some(said!(
                "the file {file_id} is of the type {mime}, and the tool takes {patterns}",
                "文件 {file_id} 的类型是 {mime}，而这个工具接受 {patterns}"
            ));
        }
        let most = self.bytes;
        (*bytes > most as u64).then(|| {
            said!(
                "the file {file_id} has {bytes} bytes, and the tool takes files of at most {most}",
                "文件 {file_id} 有 {bytes} 字节，而这个工具接受的文件最多 {most} 字节"
            )
        })
    }

    /// Why the tool does not take these files together; `None`: it does.
    pub fn unfit(&self, files: &[CallFile]) -> Option<Message> {
        let misfit = || files.iter().find_map(|file| self.misfit(file));
        self.too_many(files.len()).or_else(misfit)
    }

    pub(super) fn check(&self, executor: &ExecutorSpec, problems: &mut Problems) {
        if let ExecutorSpec::Sql(_) = executor {
            problems.add(
                "/files",
                "a statement gets its arguments and nothing else, so a sql tool cannot read files; leave files out",
            );
        }
        if let ExecutorSpec::Mcp(_) = executor {
            problems.add(
                "/files",
                "MCP has no files beside arguments, so a tool of an MCP server cannot read them; leave files out",
            );
        }
        if !(1..=NAMED_MAX).contains(&self.max) {
            problems.add(
                "/files/max",
                "a call names 1 to 16 files; write a number of these, or leave files out",
            );
        }
        if !(1..=Self::PATTERNS_MAX).contains(&self.mime.len()) {
            problems.add(
                "/files/mime",
                "it says which types the tool takes; write 1 to 16 of them, such as image/* or application/pdf, or leave mime out",
            );
        }
        if !(1..=Self::default_bytes()).contains(&self.bytes) {
            problems.add(
                "/files/bytes",
                "it is the most that each file may have; write 1B to 32MiB",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(mime: &str, bytes: u64) -> CallFile {
        CallFile {
            file_id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            name: "a".to_owned(),
            mime: mime.to_owned(),
            bytes,
            sha256: [0; 32],
        }
    }

    #[test]
    fn a_tool_takes_what_it_says_and_anything_where_it_says_nothing() {
        let spec: FilesSpec =
            serde_json::from_value(json!({"max": 2, "mime": ["image/*"], "bytes": "1KiB"}))
                .unwrap();
        let image = || file("image/png", 1024);
        assert_eq!(spec.unfit(&[image(), image()]), None);
        assert!(spec.unfit(&[image(), image(), image()]).is_some());
        assert!(spec.unfit(&[file("image/png", 1025)]).is_some());
        assert!(spec.unfit(&[file("application/pdf", 1)]).is_some());
        let any: FilesSpec = serde_json::from_value(json!({})).unwrap();
        assert_eq!(any.unfit(&[file("application/pdf", BYTES_MAX)]), None);
    }
}
