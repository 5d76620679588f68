//! A private nats-server with `JetStream`, on 127.0.0.1 only.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    process::Command,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    error::ServerError,
    find::{self, SearchPaths},
    ports::free_ports,
    process::{self, Ending, Launch, Process, Stopped},
};

/// The options of a start.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Its folder: streams, configuration, pid; created if it is missing.
    pub store: PathBuf,
    /// The port on 127.0.0.1; a free one when none is given.
    pub port: Option<u16>,
    /// The server's log, appended to.
    pub log: PathBuf,
    /// The largest message in bytes.
    pub max_payload: u32,
    /// The password of the user [`NatsOptions::USER`], of letters and digits; without one every program of this machine is let in.
    pub password: Option<String>,
    /// Further lines of its configuration, such as its users; a setting that they name is theirs. Where they include a file,
    /// its path begins at the store.
    pub further: String,
}

impl NatsOptions {
    /// The one user, where there is a password.
    pub const USER: &str = "toolfleet";
}

/// What `dev` and the tests allow a message to be: a batch of a thousand calls fits.
pub const MAX_PAYLOAD: u32 = 8 * 1024 * 1024;

/// A running nats-server. Dropping it kills it and does not wait.
#[derive(Debug)]
pub struct Nats {
    process: Process,
    port: u16,
    password: Option<String>,
}

const START_MAX: Duration = Duration::from_secs(30);
const TRIES_MAX: u32 = 5;
const POLL: Duration = Duration::from_millis(10);
const ENDING: Ending = Ending {
    ask: Signal::SIGTERM,
    grace: Duration::from_secs(10),
    at_once: Signal::SIGKILL,
};
const CONFIGURATION: &str = "nats-server.conf";
const PID: &str = "nats-server.pid";

impl Nats {
    /// Starts it and waits, at most 30 s, until it greets a connection.
    ///
    /// Dropping the future ends everything that it started.
    ///
    /// # Errors
    ///
    /// No fit nats-server is installed, or it does not start; the message quotes its log.
    pub async fn start(options: NatsOptions) -> Result<Self, ServerError> {
        let server = find::nats_server(&SearchPaths::of_this_process()).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let port = options
                .port
                .map_or_else(|| Ok(free_ports(1)?[0]), Ok::<u16, ServerError>)?;
            match Self::serve(&server, &options, port).await {
                // Another program took the port between our look and the server's.
                Err(ServerError::Ended { tail, .. })
                    if options.port.is_none()
                        && tail.contains("already in use")
                        && tries < TRIES_MAX => {}
                other => return other,
            }
        }
    }

    async fn serve(server: &Path, options: &NatsOptions, port: u16) -> Result<Self, ServerError> {
        let (store, configuration) = write_configuration(options, port)?;
        let mut command = Command::new(server);
        command
            .arg("-c")
            .arg(&configuration)
            .env_clear()
            .current_dir(&store);
        let (name, log) = ("nats-server".to_owned(), options.log.clone());
        let mut process = Process::spawn(Launch {
            name,
            command,
            log,
            ending: ENDING,
            parent_pipe: false,
        })?;
        let pid = store.join(PID);
        let written = private(&pid, &process.pid().to_string());
        written.map_err(ServerError::prepare(format!("write {}", pid.display())))?;
        let program = server.file_name().unwrap_or_default().to_string_lossy();
        let announced = format!("{program}_{}.ports", process.pid());
        greeted(&mut process, &store.join("ports").join(announced), port).await?;
        Ok(Self {
            process,
            port,
            password: options.password.clone(),
        })
    }

    /// The address for clients, with the password where there is one.
    pub fn url(&self) -> String {
        let login = self.password.as_ref().map_or_else(String::new, |password| {
            format!("{}:{password}@", NatsOptions::USER)
        });
        format!("nats://{login}127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1; give it to the next start, so that clients can reconnect.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Shuts it down: at most 10 s, then SIGKILL.
    pub async fn stop(mut self) -> Stopped {
        self.process.stop(&CancellationToken::new()).await
    }

    /// The process alone, for an owner that keeps it alive.
    pub fn into_process(self) -> Process {
        self.process
    }

    /// Ends a nats-server that runs on this store and whose owner is gone; returns its pid, if there was one.
    ///
    /// # Errors
    ///
    /// It does not end.
    pub async fn end_orphan(store: &Path) -> Result<Option<u32>, ServerError> {
        let store = fs::canonicalize(store).unwrap_or_else(|_| store.to_path_buf());
        let noted = fs::read_to_string(store.join(PID)).ok();
        let Some(pid) = noted.and_then(|text| text.trim().parse().ok()) else {
            return Ok(None);
        };
        let value = store.join(CONFIGURATION).to_string_lossy().into_owned();
        let is_ours = |pid| process::runs_as(pid, "nats-server", "-c", &value);
        if !is_ours(pid) {
            return Ok(None);
        }
        if process::end_orphan(pid, ENDING, is_ours).await {
            return Ok(Some(pid));
        }
        let store = store.display();
        Err(ServerError::Data(format!(
            "a nats-server (pid {pid}) runs on {store} and does not end: end it by hand"
        )))
    }
}

/// The store, absolute, and the configuration in it; `max_payload` has no flag.
fn write_configuration(
    options: &NatsOptions,
    port: u16,
) -> Result<(PathBuf, PathBuf), ServerError> {
    let at = || ServerError::prepare(format!("prepare {}", options.store.display()));
    fs::create_dir_all(&options.store).map_err(at())?;
    let store = options.store.canonicalize().map_err(at())?;
    let ports = store.join("ports");
    // A killed server leaves its file there.
    match fs::remove_dir_all(&ports) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => return Err(at()(reason)),
        _ => fs::create_dir(&ports).map_err(at())?,
    }
    let login = options
        .password
        .as_ref()
        .map_or_else(String::new, |password| {
            let user = NatsOptions::USER;
            format!("authorization: {{ user: {user}, password: \"{password}\" }}\n")
        });
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\nports_file_dir: {ports}\nmax_payload: {payload}\n\
         jetstream: {{ store_dir: {store} }}\n{login}{further}",
        further = options.further,
        ports = quoted(&ports)?,
        payload = options.max_payload,
        store = quoted(&store)?,
    );
    let configuration = store.join(CONFIGURATION);
    private(&configuration, &text).map_err(at())?;
    Ok((store, configuration))
}

/// Writes a file that only its owner may read, in place of whatever had its name: a link there is not followed.
fn private(file: &Path, text: &str) -> io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};

    match fs::remove_file(file) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => return Err(reason),
        _ => {}
    }
    let mut new = fs::OpenOptions::new();
    new.write(true).create_new(true).mode(0o600);
    new.open(file)?.write_all(text.as_bytes())
}

fn quoted(path: &Path) -> Result<String, ServerError> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(char::is_control));
    let text = text.ok_or_else(|| {
        let problem = "is not readable text, which nats-server needs: use another data folder";
        ServerError::Data(format!("the path {} {problem}", path.display()))
    })?;
    Ok(format!(
        "\"{}\"",
        text.replace('\\', "\\\\").replace('"', "\\\"")
    ))
}

/// Waits for the ports file, which only this very process writes, and for the first line of a connection.
async fn greeted(process: &mut Process, announced: &Path, port: u16) -> Result<(), ServerError> {
    let began = Instant::now();
    loop {
        if let Some(status) = process
            .ended()
            .map_err(ServerError::prepare("look after nats-server"))?
        {
            return Err(process.ended_early(status));
        }
        let last = if announced.exists() {
            match timeout(Duration::from_secs(1), greets(port)).await {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => "it greets with something else than INFO".to_owned(),
                Ok(Err(problem)) => problem.to_string(),
                Err(_) => "no greeting".to_owned(),
            }
        } else {
            "it does not listen yet".to_owned()
        };
        if began.elapsed() > START_MAX {
            return Err(process.silent(START_MAX, last));
        }
        sleep(POLL).await;
    }
}

async fn greets(port: u16) -> io::Result<bool> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut greeting = [0; 5];
    connection.read_exact(&mut greeting).await?;
    Ok(&greeting == b"INFO ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_a_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, planted) = (folder.path().join("victim"), folder.path().join(PID));
        fs::write(&victim, "theirs").unwrap();
        std::os::unix::fs::symlink(&victim, &planted).unwrap();
        private(&planted, "42").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(&planted).unwrap(), "42");
    }

    #[test]
    fn a_path_cannot_leave_its_place_in_the_configuration() {
        assert_eq!(
            quoted(Path::new(r#"/a "b"\c"#)).unwrap(),
            r#""/a \"b\"\\c""#
        );
        assert!(quoted(Path::new("/a\nlisten: 0.0.0.0")).is_err());
    }
}
