//! Where the real servers are, and whether they are new enough.

use std::{
    env,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::Command;

use super::error::ServerError;

/// Where the search looks. Only [`SearchPaths::of_this_process`] reads the environment.
#[derive(Debug, Clone, Default)]
pub struct SearchPaths {
    /// `TOOLFLEET_NATS_SERVER`: the program itself.
    pub nats_server: Option<PathBuf>,
    /// `TOOLFLEET_POSTGRES_BIN`: the folder with `postgres` and `initdb`.
    pub postgres_bin: Option<PathBuf>,
    /// `PATH`.
    pub path: Option<OsString>,
    /// Folders in and above which `.tools/bin` may be: the current one and the executable's.
    pub starts: Vec<PathBuf>,
}

impl SearchPaths {
    /// The environment, the current folder and the executable's folder of this process.
    pub fn of_this_process() -> Self {
        let program = env::current_exe().ok();
        let program_folder = program
            .as_deref()
            .and_then(Path::parent)
            .map(Path::to_path_buf);
        Self {
            nats_server: env::var_os("TOOLFLEET_NATS_SERVER").map(PathBuf::from),
            postgres_bin: env::var_os("TOOLFLEET_POSTGRES_BIN").map(PathBuf::from),
            path: env::var_os("PATH"),
            starts: env::current_dir()
                .ok()
                .into_iter()
                .chain(program_folder)
                .collect(),
        }
    }

    fn on_path(&self) -> Vec<PathBuf> {
        self.path
            .iter()
            .flat_map(env::split_paths)
            .filter(|folder| folder.is_absolute())
            .collect()
    }
}

/// The oldest nats-server that we run on.
pub const NATS_SERVER_MIN: Version = Version([2, 12, 6]);
/// The oldest Postgres that we run on.
pub const POSTGRES_MIN: Version = Version([15, 0, 0]);

/// The `nats-server` to run.
///
/// # Errors
///
/// None is found, or none is new enough; the message says what to do.
pub async fn nats_server(paths: &SearchPaths) -> Result<PathBuf, ServerError> {
    let candidates = match &paths.nats_server {
        Some(told) if !told.is_file() => {
            return Err(ServerError::Program(format!(
                "TOOLFLEET_NATS_SERVER is {}, which is not a program; \
                 name a nats-server {NATS_SERVER_MIN} or newer, or run `make setup` in a clone of Toolfleet and `. ./.tools/env` there",
                told.display()
            )));
        }
        Some(told) => vec![told.clone()],
        None => nats_candidates(paths),
    };
    let advice = "run `make setup` in a clone of Toolfleet and `. ./.tools/env` there, \
                  or set TOOLFLEET_NATS_SERVER to the program";
    first_good("nats-server", candidates, NATS_SERVER_MIN, advice).await
}

/// The folder of the Postgres programs to run.
///
/// # Errors
///
/// None is found, or none is new enough; the message says what to do.
pub async fn postgres_bin(paths: &SearchPaths) -> Result<PathBuf, ServerError> {
    let folders = match &paths.postgres_bin {
        Some(told) if !told.join("initdb").is_file() => {
            return Err(ServerError::Program(format!(
                "TOOLFLEET_POSTGRES_BIN is {}, which is not a folder with `postgres` and `initdb`; \
                 name that of a Postgres {POSTGRES_MIN} or newer, or unset it",
                told.display()
            )));
        }
        Some(told) => vec![told.clone()],
        None => postgres_candidates(paths),
    };
    let with_initdb = folders
        .into_iter()
        .filter(|folder| folder.join("initdb").is_file());
    let programs = with_initdb.map(|folder| folder.join("postgres")).collect();
    let advice = "install it (Debian: `apt-get install postgresql`, macOS: `brew install postgresql@17`), \
                  or set TOOLFLEET_POSTGRES_BIN to the folder with `postgres` and `initdb`; `make setup` checks both";
    let mut program = first_good("postgres", programs, POSTGRES_MIN, advice).await?;
    program.pop();
    Ok(program)
}

fn nats_candidates(paths: &SearchPaths) -> Vec<PathBuf> {
    let tools = paths
        .starts
        .iter()
        .flat_map(|start| start.ancestors())
        .map(|folder| folder.join(".tools/bin"));
    tools
        .chain(paths.on_path())
        .map(|folder| folder.join("nats-server"))
        .collect()
}

fn postgres_candidates(paths: &SearchPaths) -> Vec<PathBuf> {
    let mut folders = paths.on_path();
    folders.extend(versioned("/usr/lib/postgresql", "", "bin"));
    folders.extend(versioned("/usr", "pgsql-", "bin"));
    for homebrew in ["/opt/homebrew/opt", "/usr/local/opt"] {
        folders.extend(versioned(homebrew, "postgresql@", "bin"));
        folders.push(Path::new(homebrew).join("postgresql/bin"));
    }
    folders
}

/// The folders `<parent>/<prefix><number>/<below>`, the highest number first.
fn versioned(parent: &str, prefix: &str, below: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let number = entry
                .file_name()
                .to_str()?
                .strip_prefix(prefix)?
                .parse()
                .ok()?;
            Some((number, entry.path().join(below)))
        })
        .collect();
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|(_, folder)| folder).collect()
}

async fn first_good(
    what: &str,
    candidates: Vec<PathBuf>,
    oldest: Version,
    advice: &str,
) -> Result<PathBuf, ServerError> {
    let mut unfit = Vec::new();
    for program in candidates.into_iter().filter(|program| program.is_file()) {
        match version_of(&program).await {
            Some(version) if version >= oldest => return Ok(program),
            Some(version) => unfit.push(format!("{} is {version}", program.display())),
            None => unfit.push(format!("{} does not tell its version", program.display())),
        }
        if unfit.len() == UNFIT_MAX {
            break;
        }
    }
    let found = if unfit.is_empty() {
        "none was found".to_owned()
    } else {
        unfit.join(", ")
    };
    Err(ServerError::Program(format!(
        "{what} {oldest} or newer is needed and {found}: {advice}"
    )))
}

/// How many unfit programs are tried before the search gives up.
const UNFIT_MAX: usize = 8;

async fn version_of(program: &Path) -> Option<Version> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(5), command.output())
        .await
        .ok()?
        .ok()?;
    Version::parse(&String::from_utf8_lossy(&output.stdout))
}

/// A server's version; parts that it does not state are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 3]);

impl Version {
    /// The first word that looks like a version: `nats-server: v2.15.0`, `postgres (PostgreSQL) 17beta1`.
    fn parse(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let word = word.strip_prefix('v').unwrap_or(word);
            let mut parts = word.split('.').map(|part| {
                let digits = part
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(part.len());
                part[..digits].parse::<u32>().ok()
            });
            let major = parts.next().flatten()?;
            let mut rest = parts.map(|part| part.unwrap_or(0));
            Some(Self([
                major,
                rest.next().unwrap_or(0),
                rest.next().unwrap_or(0),
            ]))
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        match (minor, patch) {
            (0, 0) => write!(f, "{major}"),
            (_, 0) => write!(f, "{major}.{minor}"),
            (_, _) => write!(f, "{major}.{minor}.{patch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fake(folder: &Path, name: &str, says: &str) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let program = folder.join(name);
        std::fs::write(&program, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn versions_are_read_from_what_the_servers_print() {
        for (text, version) in [
            ("nats-server: v2.15.0", [2, 15, 0]),
            ("nats-server: v2.12.6-RC.1", [2, 12, 6]),
            (
                "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)",
                [15, 14, 0],
            ),
            ("postgres (PostgreSQL) 18beta1", [18, 0, 0]),
        ] {
            assert_eq!(Version::parse(text), Some(Version(version)), "{text}");
        }
        assert_eq!(Version::parse("command not found"), None);
        assert!(Version([2, 9, 10]) < NATS_SERVER_MIN);
    }

    #[tokio::test]
    async fn the_project_folder_goes_before_the_path_and_old_servers_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("old");
        fake(&old, "nats-server", "nats-server: v2.9.10");
        let good = fake(
            &folder.path().join("project/.tools/bin"),
            "nats-server",
            "nats-server: v2.12.6",
        );
        let mut paths = SearchPaths {
            path: Some(old.into_os_string()),
            ..SearchPaths::default()
        };

        let refusal = nats_server(&paths).await.unwrap_err().to_string();
        assert!(
            refusal.contains("2.9.10") && refusal.contains("make setup"),
            "{refusal}"
        );

        paths.starts = vec![folder.path().join("project/deep/down")];
        assert_eq!(nats_server(&paths).await.unwrap(), good);
    }

    #[tokio::test]
    async fn what_the_environment_names_is_taken_or_refused_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let told = fake(folder.path(), "postgres", "postgres (PostgreSQL) 14.2");
        fake(folder.path(), "initdb", "");
        let paths = SearchPaths {
            postgres_bin: Some(folder.path().to_path_buf()),
            ..SearchPaths::of_this_process()
        };
        let refusal = postgres_bin(&paths).await.unwrap_err().to_string();
        assert!(
            refusal.contains(told.to_str().unwrap()) && refusal.contains("14.2"),
            "{refusal}"
        );
    }
}
