//! The messages between worker and guard on the control socket.
//!
//! Worker to guard, once: the length of a JSON head (four bytes, big endian), the head, the tool's stdin. Guard to worker, at
//! most once: one line of JSON. The environment is not part of it: the guard is started with the tool's environment and passes
//! it on, so no message and no command line contains a secret.

use std::{
    io::{self, Read},
    path::PathBuf,
};

use fleet::{ids::AttemptId, manifest::Sandbox, taken_back::TakenBack};
use serde::{Deserialize, Serialize};

use super::sandbox::Excess;

/// The tool to start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// A path, or a name to look up in `PATH`.
    pub(crate) program: String,
    /// Its fixed arguments.
    pub(crate) args: Vec<String>,
    /// Where it starts; the worker's own folder when absent.
    pub(crate) cwd: Option<String>,
    /// What it may reach and use; all that the worker's user may when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<Sandbox>,
    /// The folder of the pipe into which it writes what it tells while it runs, if it has one, and the pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fifo: Option<(PathBuf, PathBuf)>,
    /// The folder with the files of its call, if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<PathBuf>,
    /// The folder of the pipe that is its standard input as long as it lives, and the pipe. What follows is not written then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stdin: Option<(PathBuf, PathBuf)>,
    /// Whose program it is.
    pub(crate) attempt: AttemptId,
    /// How many bytes of stdin follow.
    pub(crate) input_bytes: u32,
}

/// The guard's report about the tool.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GuardReport {
    /// It ended by itself, before the worker asked for that.
    Exited(Ending),
    /// It used more than its sandbox gives, and is being killed.
    Exceeded(Excess),
    /// It was never started.
    NotStarted(NotStarted),
}

/// Why a tool was never started.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotStarted {
    /// For people.
    pub(crate) why: String,
    /// Why the attempt is taken back, where it was not the tool's fault.
    pub(crate) taken_back: Option<TakenBack>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// With this exit code.
    Code(i32),
    /// By this signal; 0 when it has no name (the real-time ones).
    Signal(i32),
}

/// The most bytes a head may have. Linux allows a command line of about 2 MiB; a manifest is far smaller.
const HEAD_MAX: u32 = 1024 * 1024;
/// The most bytes of stdin: arguments have at most 1 MiB at the door, may refer to 8 MiB, and may grow a little on the way.
const INPUT_MAX: u32 = 10 * 1024 * 1024;

/// The message that starts a tool. `None` when it is too large to be one.
pub(crate) fn encode(start: &Start, input: &[u8]) -> Option<Vec<u8>> {
    let head = serde_json::to_vec(start).expect("a start is made of text and numbers");
    let head_len = u32::try_from(head.len())
        .ok()
        .filter(|len| *len <= HEAD_MAX)?;
    u32::try_from(input.len())
        .ok()
        .filter(|len| *len <= INPUT_MAX)?;
    let mut frame = Vec::with_capacity(4 + head.len() + input.len());
    frame.extend(head_len.to_be_bytes());
    frame.extend(head);
    frame.extend(input);
    Some(frame)
}

/// Reads the message that starts a tool, and the tool's stdin.
pub(super) fn read(mut from: impl Read) -> io::Result<(Start, Vec<u8>)> {
    let mut head_len = [0; 4];
    from.read_exact(&mut head_len)?;
    let head = read_bytes(&mut from, u32::from_be_bytes(head_len), HEAD_MAX)?;
    let start: Start = serde_json::from_slice(&head)?;
    let input = read_bytes(&mut from, start.input_bytes, INPUT_MAX)?;
    Ok((start, input))
}

fn read_bytes(from: &mut impl Read, len: u32, max: u32) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len.min(max)).ok().filter(|_| len <= max);
    let mut bytes = vec![0; len.ok_or(io::ErrorKind::InvalidData)?];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(input: &[u8]) -> Start {
        let input_bytes = u32::try_from(input.len()).unwrap();
        Start {
            program: "p".into(),
            args: vec!["é".into()],
            cwd: None,
            sandbox: None,
            fifo: None,
            files: None,
            stdin: None,
            attempt: AttemptId::generate(),
            input_bytes,
        }
    }

    #[test]
    fn a_start_arrives_as_it_was_sent() {
        let frame = encode(&start(b"{}"), b"{}").unwrap();
        let (read_start, input) = read(&frame[..]).unwrap();
        assert_eq!(
            (read_start.program.as_str(), &read_start.args[..]),
            ("p", &["é".to_owned()][..])
        );
        assert_eq!(input, b"{}");
    }

    #[test]
    fn half_a_start_is_an_error() {
        let frame = encode(&start(b"{}"), b"{}").unwrap();
        for cut in 0..frame.len() {
            assert!(read(&frame[..cut]).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn a_start_that_claims_to_be_huge_is_refused_before_it_is_read() {
        assert!(read(&[0xff, 0xff, 0xff, 0xff][..]).is_err());
        assert!(encode(&start(b""), &vec![b' '; INPUT_MAX as usize + 1]).is_none());
    }

    #[test]
    fn reports_are_one_short_line() {
        let line = |report: &GuardReport| serde_json::to_string(report).unwrap();
        assert_eq!(
            line(&GuardReport::Exited(Ending::Code(0))),
            r#"{"exited":{"code":0}}"#
        );
        assert_eq!(
            line(&GuardReport::Exited(Ending::Signal(9))),
            r#"{"exited":{"signal":9}}"#
        );
        assert_eq!(
            line(&GuardReport::Exceeded(Excess::Memory)),
            r#"{"exceeded":"memory"}"#
        );
        assert_eq!(
            line(&GuardReport::NotStarted(NotStarted {
                why: "x\ny".into(),
                taken_back: Some(TakenBack::NoResources),
            })),
            r#"{"not_started":{"why":"x\ny","taken_back":"no_resources"}}"#
        );
    }
}
