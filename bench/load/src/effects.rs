//! The ledger of effects, outside the product: one record for each effect that happened, appended by the handler.
//!
//! One file per worker process, in a folder that the bench names. A record is written by one system call before the handler
//! answers, so a killed worker loses none.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read, Write},
    path::Path,
    sync::Arc,
};

use sha2::{Digest, Sha256};

/// Bytes of one record.
const RECORD: usize = 24;

/// The identity of a call of a run; sent as an argument, the same for every attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The run of the bench. Records of other runs are ignored.
    pub(crate) run: u32,
    /// The workload within the run.
    pub(crate) workload: u32,
    /// The call within the workload, from 0.
    pub(crate) number: u64,
}

impl Tag {
    /// Characters of its text.
    pub(crate) const LENGTH: usize = 32;

    /// As it is sent: hexadecimal, so that Postgres can read it as a uuid too.
    pub(crate) fn write(self, text: &mut [u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bits = self.bits();
        for (place, letter) in text.iter_mut().take(Self::LENGTH).enumerate() {
            let digit = (bits >> (4 * (Self::LENGTH - 1 - place))) & 15;
            *letter = DIGITS[usize::try_from(digit).expect("four bits")];
        }
    }

    /// Parses it; `None` if it is something else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == Self::LENGTH;
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| fits)?;
        Some(Self::of(bits))
    }

    /// Of its bits.
    pub(crate) fn of(bits: u128) -> Self {
        let bytes = bits.to_be_bytes();
        let word = |from: usize| {
            let word: [u8; 4] = bytes[from..from + 4].try_into().expect("four bytes");
            u32::from_be_bytes(word)
        };
        let number: [u8; 8] = bytes[8..].try_into().expect("eight bytes");
        Self {
            run: word(0),
            workload: word(4),
            number: u64::from_be_bytes(number),
        }
    }

    fn bits(self) -> u128 {
        u128::from(self.run) << 96 | u128::from(self.workload) << 64 | u128::from(self.number)
    }
}

/// Where a worker's handlers record effects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects(Option<Arc<File>>);

impl Effects {
    /// A file of this process in the folder.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let name = format!("effects-{}", std::process::id());
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(folder.join(name))?;
        Ok(Self(Some(Arc::new(file))))
    }

    /// Records that the effect of this call happened, with the key that the tool got.
    pub(crate) fn happened(&self, tag: Tag, key: &str) -> io::Result<()> {
        let Self(Some(file)) = self else {
            return Ok(());
        };
        let mut record = [0; RECORD];
        record[..16].copy_from_slice(&tag.bits().to_be_bytes());
        record[16..].copy_from_slice(&Sha256::digest(key)[..8]);
        // One write of one record: the kernel appends it as a whole.
        file.as_ref().write_all(&record)
    }
}

/// One effect of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Happened {
    /// The call.
    pub(crate) number: u64,
    /// A hash of its key; 0 where the key does not matter.
    pub(crate) key: u64,
}

/// Every effect of this workload, from all files of the folder, in the order of the calls.
pub(crate) fn read(folder: &Path, run: u32, workload: u32) -> io::Result<Vec<Happened>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let mut file = BufReader::with_capacity(RECORD * 4096, File::open(entry?.path())?);
        let mut record = [0; RECORD];
        loop {
            match file.read_exact(&mut record) {
                Ok(()) => {}
                Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(problem) => return Err(problem),
            }
            let (bits, key) = record.split_at(16);
            let tag = Tag::of(u128::from_be_bytes(bits.try_into().expect("16 bytes")));
            if (tag.run, tag.workload) == (run, workload) {
                found.push(Happened {
                    number: tag.number,
                    key: u64::from_be_bytes(key.try_into().expect("8 bytes")),
                });
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(workload: u32, number: u64) -> Tag {
        Tag {
            run: 0xfeed_0001,
            workload,
            number,
        }
    }

    #[test]
    fn a_tag_is_read_as_it_was_written() {
        let mut text = [0; Tag::LENGTH];
        tag(3, u64::MAX - 1).write(&mut text);
        let text = std::str::from_utf8(&text).unwrap();
        assert_eq!(text, "feed000100000003fffffffffffffffe");
        assert_eq!(Tag::parse(text), Some(tag(3, u64::MAX - 1)));
        for wrong in ["", "feed", "+eed000100000003fffffffffffffff", "x"] {
            assert_eq!(Tag::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn effects_of_other_workloads_and_runs_are_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::open(folder.path()).unwrap();
        effects.happened(tag(1, 7), "a").unwrap();
        effects.happened(tag(2, 7), "a").unwrap();
        effects.happened(tag(1, 3), "b").unwrap();
        effects
            .happened(
                Tag {
                    run: 1,
                    ..tag(1, 4)
                },
                "c",
            )
            .unwrap();
        let found = read(folder.path(), tag(1, 0).run, 1).unwrap();
        let numbers: Vec<u64> = found.iter().map(|effect| effect.number).collect();
        assert_eq!(numbers, [3, 7]);
        assert_ne!(found[0].key, found[1].key);
    }
}
