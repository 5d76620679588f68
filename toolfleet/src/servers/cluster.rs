//! Creates a cluster of Postgres, with the password that is its only login.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};
use uuid::Uuid;

use super::{error::ServerError, place::Place};

/// The superuser of the cluster, and the name of the database.
pub(crate) const NAME: &str = "toolfleet";
/// How long a new cluster may take.
const INITDB_MAX: Duration = Duration::from_secs(60);

/// Creates the cluster if it is new; returns the password either way.
pub(crate) async fn open_or_create(
    bin: &Path,
    place: &Place,
    fsync: bool,
) -> Result<String, ServerError> {
    let secret = place.folder.with_file_name("postgres.password");
    if place.folder.join("PG_VERSION").exists() {
        let doing = "read the cluster's password from";
        let doing = format!(
            "{doing} {} (without it, remove the data folder)",
            secret.display()
        );
        return fs::read_to_string(&secret)
            .map(|text| text.trim().to_owned())
            .map_err(ServerError::prepare(doing));
    }
    let password = new_password(place, &secret).map_err(ServerError::prepare(format!(
        "write the cluster's password to {}",
        secret.display()
    )))?;
    // Beside its final place, so that an interrupted start never leaves half a cluster there.
    let unfinished = place.folder.with_extension("new");
    remove_folder(&unfinished)?;
    place.create(&unfinished)?;
    initdb(bin, place, &unfinished, &secret, fsync).await?;
    // An empty folder is replaced; anything else is not ours to replace.
    fs::rename(&unfinished, &place.folder).map_err(ServerError::prepare(format!(
        "put the new cluster into {}",
        place.folder.display()
    )))?;
    Ok(password)
}

/// A Postgres program as the cluster's user, without our environment: that may contain secrets, or `PG…` settings.
pub(crate) fn program(program: &Path, place: &Place, folder: &Path) -> Command {
    let mut command = Command::new(program);
    // In English, for its messages are compared with known ones.
    command
        .env_clear()
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .current_dir(folder);
    if let Some(owner) = &place.owner {
        // The standard library drops root's other groups too.
        command.uid(owner.uid).gid(owner.gid);
    }
    command
}

/// Removes a folder, if it exists.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), ServerError> {
    match fs::remove_dir_all(folder) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => {
            Err(ServerError::prepare(format!("remove {}", folder.display()))(reason))
        }
        _ => Ok(()),
    }
}

fn new_password(place: &Place, secret: &Path) -> io::Result<String> {
    let password = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    match fs::remove_file(secret) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => return Err(reason),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(secret)?;
    file.write_all(password.as_bytes())?;
    file.sync_all()?;
    place.give(secret)?;
    Ok(password)
}

async fn initdb(
    bin: &Path,
    place: &Place,
    folder: &Path,
    secret: &Path,
    fsync: bool,
) -> Result<(), ServerError> {
    let initdb = bin.join("initdb");
    let mut command = program(&initdb, place, folder);
    command.arg("-D").arg(folder).arg("--pwfile").arg(secret);
    command.args([
        "--username",
        NAME,
        "--auth",
        "scram-sha-256",
        "--encoding",
        "UTF8",
        "--no-locale",
    ]);
    command
        .arg("--no-instructions")
        .args((!fsync).then_some("--no-sync"));
    command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .process_group(0);
    let output = timeout(INITDB_MAX, command.output()).await;
    let output = output.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let output = output.map_err(ServerError::prepare(format!("run {}", initdb.display())))?;
    if output.status.success() {
        return Ok(());
    }
    let (place, said) = (
        folder.display(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    Err(ServerError::Data(format!(
        "initdb cannot create a cluster in {place}: {}",
        said.trim()
    )))
}
