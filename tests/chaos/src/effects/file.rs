//! The file of effects: a line for everything that happened at a tool, by whichever process it happened in.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};

use super::{Did, Mark, Mode, told::Told};

/// The file, open for appending.
#[derive(Debug)]
pub struct File(fs::File);

impl File {
    /// Opens it, or makes it.
    ///
    /// # Errors
    ///
    /// The folder is not there, or not ours.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map(Self)
    }

    /// Appends a line as the program of a caller, about a call that it was handed.
    ///
    /// # Errors
    ///
    /// The disk refuses.
    pub fn note_handed(
        &self,
        tool: &str,
        call: &str,
        (n, mode): (u64, Mode),
        did: Did,
    ) -> io::Result<()> {
        self.note(&Told::handed(tool, call, n, mode), did)
    }

    /// Appends a line, and has an effect on disk before it returns.
    ///
    /// # Errors
    ///
    /// The disk refuses.
    pub(super) fn note(&self, told: &Told, did: Did) -> io::Result<()> {
        let mark = Mark {
            at: now(),
            did,
            tool: told.tool.clone(),
            call: told.call.clone(),
            attempt: told.attempt,
            key: told.key.clone(),
            n: told.n,
            mode: told.mode,
        };
        let mut line = serde_json::to_string(&mark).expect("a mark has only texts and numbers");
        line.push('\n');
        // Several processes append: what is one write is not torn apart by another.
        let written = (&self.0).write(line.as_bytes())?;
        if written < line.len() {
            return Err(io::Error::other("the file of effects took half a line"));
        }
        if did == Did::Applied {
            self.0.sync_data()?;
        }
        Ok(())
    }
}

/// All that happened so far, in the order of the file. A file that is not there yet has nothing in it.
///
/// # Panics
///
/// It cannot be read, or something in it is not of our making: nothing could be judged by it.
pub fn read(path: &Path) -> Vec<Mark> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => String::new(),
        Err(problem) => panic!("read the file of effects: {problem}"),
    };
    // Without its end a line is one that is being written.
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let mark = |line| match serde_json::from_str(line) {
        Ok(mark) => mark,
        Err(problem) => panic!("a line of the file of effects is no mark: {problem}: {line}"),
    };
    lines.map(mark).collect()
}

/// Nanoseconds of a clock that all processes of the machine share.
fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the machine has a monotonic clock");
    u64::try_from(Duration::from(now).as_nanos()).expect("it runs for less than 500 years")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Mode;

    #[test]
    fn what_was_noted_is_read_back_in_order_and_half_a_line_is_not() {
        let folder = fleet_tests::run_folder::RunFolder::create().unwrap();
        let path = folder.path().join("effects");
        assert!(read(&path).is_empty());
        let told = Told {
            tool: "charge".to_owned(),
            call: "c".to_owned(),
            attempt: 2,
            key: "k".to_owned(),
            n: 7,
            mode: Mode::HangAfter,
            remaining: Duration::ZERO,
        };
        let (one, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        one.note(&told, Did::Started).unwrap();
        other.note(&told, Did::Applied).unwrap();
        (&one.0).write_all(b"{\"at\":").unwrap();
        let marks = read(&path);
        assert_eq!(
            marks.iter().map(|mark| mark.did).collect::<Vec<_>>(),
            [Did::Started, Did::Applied]
        );
        assert!(marks[0].at <= marks[1].at && marks[0].at > 0);
        assert_eq!((marks[1].n, marks[1].attempt), (7, 2));
        assert_eq!(marks[1].mode, Mode::HangAfter);
    }
}
