//! A cluster that dies, is copied, and has its copy put in its place on the same port.

use std::{fs, path::PathBuf, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{Connection, Executor, PgConnection};
use toolfleet::servers::find::{self, SearchPaths};

use crate::{
    postgres::{Cluster, Database, output, split},
    run_folder::RunFolder,
};

impl Cluster {
    /// Ends the server in the middle of whatever it does. Nothing is flushed, and no client is told.
    ///
    /// # Panics
    ///
    /// It does not run.
    pub async fn kill(&mut self) {
        let server = self.server.take().expect("the server runs");
        let pid = i32::try_from(server.pid()).expect("a pid fits");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill the server");
        server.stop().await;
    }

    /// Takes a base backup of the running server, as an operator does.
    ///
    /// # Panics
    ///
    /// The server refuses.
    pub async fn back_up(&self) {
        let (front, _) = split(&self.url);
        let mut backup = program("pg_basebackup").await;
        backup.args(["--checkpoint=fast", "--wal-method=stream", "--no-sync"]);
        backup.arg("--pgdata").arg(self.copy_folder());
        backup.args(["--dbname", front]);
        output(&mut backup).expect("take a base backup");
        // Root's server is run by another user.
        let mut owner = Command::new("chown");
        owner
            .arg("-R")
            .arg(format!("--reference={}", self.data_folder().display()));
        output(owner.arg(self.copy_folder())).expect("hand the backup to the server's user");
    }

    /// Copies the files of the server, which has to be down.
    ///
    /// # Panics
    ///
    /// It runs, or cannot be copied.
    pub fn copy_cold(&self) {
        assert!(self.server.is_none(), "the server runs");
        let mut copy = Command::new("cp");
        copy.arg("-a")
            .arg(self.data_folder())
            .arg(self.copy_folder());
        output(&mut copy).expect("copy the cluster");
    }

    /// Puts the copy in the place of the server, which has to be down.
    ///
    /// # Panics
    ///
    /// It runs, or there is no copy.
    pub fn put_copy_in_place(&self) {
        assert!(self.server.is_none(), "the server runs");
        fs::remove_dir_all(self.data_folder()).expect("throw the old files away");
        fs::rename(self.copy_folder(), self.data_folder()).expect("put the copy in place");
    }

    /// The same, as a standby that waits to be promoted.
    ///
    /// # Panics
    ///
    /// It runs, or there is no copy.
    pub fn put_copy_in_place_as_standby(&self) {
        fs::write(self.copy_folder().join("standby.signal"), "").expect("make it a standby");
        self.put_copy_in_place();
    }

    /// Promotes the standby that runs.
    ///
    /// # Panics
    ///
    /// It does not become a primary.
    pub async fn promote(&self) {
        let mut connection = PgConnection::connect(&self.url).await.expect("connect");
        let promoted = connection.execute("SELECT pg_promote(true, 60)").await;
        promoted.expect("promote the standby");
    }

    fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn copy_folder(&self) -> PathBuf {
        self.folder.path().join("copy")
    }
}

impl Database {
    /// Dumps this database, and restores it into an empty one.
    ///
    /// # Panics
    ///
    /// A server refuses.
    pub async fn dump_into(&self, empty: &Self) {
        let folder = RunFolder::create().expect("a folder for the dump");
        let file = folder.path().join("dump.sql");
        let mut dump = program("pg_dump").await;
        dump.args(["--dbname", &self.url, "--file"]).arg(&file);
        output(&mut dump).expect("dump the database");
        let mut restore = program("psql").await;
        restore.args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"]);
        restore.args(["--dbname", &empty.url, "--file"]).arg(&file);
        output(&mut restore).expect("restore the dump");
    }
}

/// A program that comes with the server.
async fn program(name: &str) -> Command {
    let bin = find::postgres_bin(&SearchPaths::of_this_process())
        .await
        .expect("find Postgres");
    // On a PATH there may be links to some of a server's programs only.
    let server = fs::canonicalize(bin.join("postgres")).expect("find Postgres's programs");
    Command::new(server.with_file_name(name))
}
