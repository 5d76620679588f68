//! A folder that goes when this process ends, however it ends, and with it the servers that run inside.
//!
//! Test processes are killed, panic and leave through `exit`, none of which drops a static. So a small shell watches
//! over a pipe: it reads until the writing end, which only we hold, is closed, and then clears up.

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::sys::statvfs::statvfs;
use uuid::Uuid;

/// What a memory file system must have free before clusters are put there.
const MEMORY_FREE_MIN: u64 = 2 << 30;

/// A pid is signalled only while it runs on this folder: a killed server leaves its pid file to strangers.
const WATCH: &str = r#"
trap '' HUP INT TERM
cat > /dev/null
folder=$1
runs_here() {
    command=$(tr '\0' ' ' < "/proc/$1/cmdline" 2> /dev/null || ps -o args= -p "$1" 2> /dev/null)
    case "$command" in *"$folder/"*) return 0 ;; *) return 1 ;; esac
}
for lock in "$folder/data/postmaster.pid" "$folder/store/nats-server.pid"; do
    pid=$(head -n 1 "$lock" 2> /dev/null)
    [ -n "$pid" ] && runs_here "$pid" && kill -QUIT "$pid"
    tries=0
    while [ -n "$pid" ] && runs_here "$pid" && [ "$tries" -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
done
rm -rf "$folder"
"#;

/// The folder. Dropping it ends what runs inside, removes it, and waits for both.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    watch: Child,
}

impl RunFolder {
    /// Creates one where servers are quickest: in memory where there is enough, else in `/var/tmp`.
    ///
    /// Other users pass through it: root's Postgres runs as one of them.
    ///
    /// # Errors
    ///
    /// It cannot be created, or there is no shell to watch over it.
    pub fn create() -> io::Result<Self> {
        let name = format!("toolfleet-tests-{}", Uuid::new_v4().simple());
        let path = home().join(name);
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let mut watch = Command::new("/bin/sh");
        watch
            .args(["-c", WATCH, "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A group of its own: a signal to our group must not end the watch.
        let watch = watch.process_group(0).spawn()?;
        Ok(Self { path, watch })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        if let Err(reason) = self.watch.wait() {
            tracing::warn!(%reason, folder = %self.path.display(), "nobody clears a folder of a test");
        }
    }
}

fn home() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = statvfs(memory).map_or(0, |found| found.blocks_available() * found.fragment_size());
    if free >= MEMORY_FREE_MIN {
        memory.into()
    } else {
        "/var/tmp".into()
    }
}
