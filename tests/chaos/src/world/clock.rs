//! The time of day of one process, which can be moved while it runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

const SOURCE: &str = include_str!("../../clock/clock.c");

/// What a process has to load for its clock to be movable.
#[derive(Debug, Clone)]
pub struct Library(PathBuf);

impl Library {
    /// Compiles it into this folder.
    ///
    /// # Errors
    ///
    /// There is no C compiler, or it refuses.
    pub fn compile(folder: &Path) -> Result<Self> {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        fs::write(&source, SOURCE).context("write the source of the clock")?;
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status()
            .context("start the C compiler: `make setup` installs one")?;
        ensure!(
            compiled.success(),
            "the C compiler refuses {}",
            source.display()
        );
        Ok(Self(library))
    }
}

/// A clock of a process's own.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
    library: Library,
    moved_by: i64,
}

impl Clock {
    /// One that goes right.
    ///
    /// # Errors
    ///
    /// Its file cannot be written.
    pub fn new(library: &Library, folder: &Path, name: &str) -> Result<Self> {
        let mut clock = Self {
            file: folder.join(format!("clock of {name}")),
            library: library.clone(),
            moved_by: 0,
        };
        clock.jump(0)?;
        Ok(clock)
    }

    /// What a process needs in its environment to go by this clock.
    pub fn variables(&self) -> [(String, String); 2] {
        [
            (
                "LD_PRELOAD".to_owned(),
                self.library.0.display().to_string(),
            ),
            ("CHAOS_CLOCK".to_owned(), self.file.display().to_string()),
        ]
    }

    /// Moves it by so many seconds, at once.
    ///
    /// # Errors
    ///
    /// Its file cannot be written.
    pub fn jump(&mut self, seconds: i64) -> Result<()> {
        self.moved_by += seconds;
        let mut file = fs::OpenOptions::new();
        // The same file: the processes that use it have it mapped.
        let file = file
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.file);
        let mut file = file.with_context(|| format!("open {}", self.file.display()))?;
        std::io::Write::write_all(&mut file, &self.moved_by.to_ne_bytes())
            .with_context(|| format!("write {}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_clock_shows_another_time() {
        let folder = std::env::temp_dir().join(format!("clock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let library = Library::compile(&folder).unwrap();
        let mut clock = Clock::new(&library, &folder, "date").unwrap();
        let mut ahead = |seconds| {
            clock.jump(seconds).unwrap();
            let told = Command::new("date")
                .arg("+%s")
                .envs(clock.variables())
                .output()
                .unwrap();
            let told: i64 = String::from_utf8(told.stdout)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let right = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
            told - i64::try_from(right).unwrap()
        };
        assert!((-5..=0).contains(&ahead(0)));
        assert!((3_595..=3_600).contains(&ahead(3_600)));
        assert!((-605..=-600).contains(&ahead(-4_200)));
        fs::remove_dir_all(folder).unwrap();
    }
}
