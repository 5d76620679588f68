//! The file of effects, read as it grows: a person would look there for the effect of a call in doubt.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use crate::effects::{Did, Mark, Mode};

/// The file, and what was read of it so far.
#[derive(Debug)]
pub(super) struct Marks {
    path: PathBuf,
    read: Mutex<Reading>,
}

#[derive(Debug, Default)]
struct Reading {
    end: u64,
    /// The beginning of a line whose end is not written yet.
    torn: Vec<u8>,
    calls: HashMap<String, Standing>,
}

/// What is to be seen of a call at its tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Standing {
    applied: bool,
    may_act: bool,
}

impl Standing {
    /// What may be said: that it was applied, that it was not, or nothing as long as its tool may still act.
    pub(super) const fn finding(self) -> Option<&'static str> {
        match (self.applied, self.may_act) {
            (true, _) => Some("applied"),
            (false, true) => None,
            (false, false) => Some("not_applied"),
        }
    }

    fn add(&mut self, mark: &Mark) {
        match mark.did {
            Did::Started => self.may_act |= !does_nothing(mark),
            Did::Applied | Did::Recognised => self.applied = true,
            Did::Replied => {}
        }
    }
}

/// Whether a request that was seen will never have an effect.
fn does_nothing(mark: &Mark) -> bool {
    match mark.mode {
        Mode::Business => true,
        Mode::Refuse | Mode::ErrorBefore | Mode::HangBefore => mark.attempt == 1,
        _ => false,
    }
}

impl Marks {
    pub(super) fn of(path: PathBuf) -> Self {
        Self {
            path,
            read: Mutex::default(),
        }
    }

    /// Reads what is new in the file, and says how this call stands.
    pub(super) fn look(&self, call: &str) -> io::Result<Standing> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(read.end))?;
        let mut new = std::mem::take(&mut read.torn);
        let more = file.read_to_end(&mut new)?;
        read.end += u64::try_from(more).expect("a file's size is a u64");
        let whole = new.iter().rposition(|byte| *byte == b'\n');
        read.torn = new.split_off(whole.map_or(0, |at| at + 1));
        for line in new.split_inclusive(|byte| *byte == b'\n') {
            let mark: Mark = serde_json::from_slice(line)?;
            read.calls.entry(mark.call.clone()).or_default().add(&mark);
        }
        Ok(read.calls.get(call).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write as _};

    use super::*;

    fn line(did: Did, mode: Mode, attempt: u32) -> String {
        let mark = Mark {
            at: 0,
            did,
            tool: "charge".to_owned(),
            call: "a".to_owned(),
            attempt,
            key: String::new(),
            n: 1,
            mode,
        };
        serde_json::to_string(&mark).unwrap() + "\n"
    }

    fn found(lines: &[String]) -> Option<&'static str> {
        let mut standing = Standing::default();
        for line in lines {
            standing.add(&serde_json::from_str(line).unwrap());
        }
        standing.finding()
    }

    #[test]
    fn not_applied_is_said_only_of_what_will_never_act() {
        assert_eq!(found(&[]), Some("not_applied"));
        let hangs = line(Did::Started, Mode::HangBefore, 1);
        assert_eq!(found(std::slice::from_ref(&hangs)), Some("not_applied"));
        let again = line(Did::Started, Mode::HangBefore, 2);
        assert_eq!(found(&[hangs, again]), None);
        let late = line(Did::Started, Mode::Late, 1);
        assert_eq!(found(std::slice::from_ref(&late)), None);
        let applied = line(Did::Applied, Mode::Late, 1);
        assert_eq!(found(&[late, applied]), Some("applied"));
    }

    #[test]
    fn a_line_is_read_when_its_end_is_there() {
        let folder = fleet_tests::run_folder::RunFolder::create().unwrap();
        let path = folder.path().join("effects.jsonl");
        let text = line(Did::Applied, Mode::Ok, 1);
        let (first, second) = text.split_at(20);
        std::fs::write(&path, first).unwrap();
        let marks = Marks::of(path.clone());
        assert_eq!(
            marks.look("a").unwrap().finding(),
            Some("not_applied"),
            "torn"
        );
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(second.as_bytes()).unwrap();
        assert_eq!(marks.look("a").unwrap().finding(), Some("applied"));
        assert_eq!(marks.look("b").unwrap(), Standing::default());
    }
}
