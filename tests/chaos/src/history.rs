//! The questions and answers of clients: a file of lines, in the order in which they were written.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::effects::Mode;

/// How much is kept back before it is written out.
const BUFFER_BYTES: usize = 64 * 1024;

/// Writes lines, from many clients at once.
#[derive(Debug)]
pub struct Writer {
    began: Instant,
    before: Duration,
    lines: Mutex<BufWriter<File>>,
}

impl Writer {
    /// Begins a new file.
    ///
    /// # Errors
    ///
    /// The file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::on(File::create(path)?, Duration::ZERO))
    }

    /// Goes on with a file whose last line was written so long after the clients began.
    ///
    /// # Errors
    ///
    /// There is no such file, or it cannot be written to.
    pub fn resume(path: &Path, last: Duration) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self::on(file, last))
    }

    fn on(file: File, before: Duration) -> Self {
        Self {
            began: Instant::now(),
            before,
            lines: Mutex::new(BufWriter::with_capacity(BUFFER_BYTES, file)),
        }
    }

    /// Writes a line, with the time as it is now: lines stand in the order of their times.
    ///
    /// # Errors
    ///
    /// The file does not take it.
    pub fn append(&self, mut entry: Entry) -> io::Result<()> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.before + self.began.elapsed();
        entry.at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        serde_json::to_writer(&mut *lines, &entry)?;
        lines.write_all(b"\n")
    }

    /// Writes out what was kept back.
    ///
    /// # Errors
    ///
    /// The file does not take it.
    pub fn flush(&self) -> io::Result<()> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.flush()
    }
}

/// Reads a whole file.
///
/// # Errors
///
/// It cannot be read, or a line is no entry; the message says which.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let lines = BufReader::new(File::open(path)?).lines();
    let entries = lines.enumerate().map(|(index, line)| {
        serde_json::from_str(&line?).map_err(|error| {
            let place = format!("line {} of {}", index + 1, path.display());
            io::Error::new(io::ErrorKind::InvalidData, format!("{place}: {error}"))
        })
    });
    entries.collect()
}

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Milliseconds since the clients began.
    pub at_ms: u64,
    /// Which client.
    pub client: u32,
    /// Which of its operations: a question and its answer have the same.
    pub op_id: u64,
    /// What it did.
    pub op: Op,
    /// The question, or what became of it.
    pub phase: Phase,
    /// Which call it is about, of all that clients make in this run.
    pub n: u64,
    /// Its tool.
    pub tool: String,
    /// Its idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How its tool is told to behave.
    pub mode: Mode,
    /// The call's id, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The answer, as it came. For a batch: the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Submits a call and waits for what comes of it.
    Submit,
    /// Submits a call and does not wait.
    SubmitAsync,
    /// Submits a call as one of a batch.
    Batch,
    /// Sends the same call with the same key again.
    Replay,
    /// Sends the key again with other arguments.
    Misuse,
    /// Asks how a call stands.
    Get,
    /// Asks, and waits for the end.
    Attach,
    /// Asks for a call to be stopped.
    Cancel,
    /// Settles a call in doubt by what the file of effects says.
    Settle,
    /// Says yes to a call that waits for it.
    Approve,
    /// Says no.
    Deny,
    /// Says yes or no to other arguments than those that were shown.
    OtherArguments,
    /// Hands in what came of a call that was handed out.
    Output,
    /// Hands in something that its tool may not answer.
    BadOutput,
    /// Hands in something else after the first answer.
    OtherOutput,
}

/// The question, or what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is about to be asked.
    Asked,
    /// There is an answer.
    Answered,
    /// No answer came, or the client hung up: the outcome is unknown.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(op_id: u64) -> Entry {
        Entry {
            at_ms: 0,
            client: 1,
            op_id,
            op: Op::Submit,
            phase: Phase::Answered,
            n: 3,
            tool: "charge".to_owned(),
            key: Some("c-3".to_owned()),
            mode: Mode::Ok,
            call_id: None,
            answer: Some(serde_json::from_str(r#"{"sum":1.10,"id":9007199254740993}"#).unwrap()),
        }
    }

    #[test]
    fn what_was_written_is_read_again_digit_by_digit() {
        let folder = fleet_tests::run_folder::RunFolder::create().unwrap();
        let path = folder.path().join("history.jsonl");
        let writer = Writer::create(&path).unwrap();
        writer.append(entry(0)).unwrap();
        writer.flush().unwrap();
        drop(writer);
        let later = Writer::resume(&path, Duration::from_secs(7)).unwrap();
        later.append(entry(1)).unwrap();
        later.flush().unwrap();

        let entries = read(&path).unwrap();
        assert_eq!(entries.iter().map(|e| e.op_id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(entries[0].answer, entry(0).answer);
        assert!(entries[1].at_ms >= 7_000 && entries[0].at_ms < 7_000);
    }

    #[test]
    fn a_torn_line_is_named() {
        let folder = fleet_tests::run_folder::RunFolder::create().unwrap();
        let path = folder.path().join("history.jsonl");
        std::fs::write(&path, "{\"at_ms\":1,\"cli").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.starts_with("line 1 of "), "{error}");
    }
}
