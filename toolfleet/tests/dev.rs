//! `toolfleet dev` and the servers under it, with real servers and real kills.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::Mutex,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use toolfleet::{
    dev::{Dev, DevHooks, DevOptions, DevState, Screen},
    servers::{
        Nats, NatsOptions, Postgres, PostgresOptions, nats::MAX_PAYLOAD, process::command_line,
    },
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_toolfleet");
/// Far more than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_killed_nats_server_comes_back_on_its_port() {
    let folder = folder(0o755);
    let options = NatsOptions {
        store: folder.path().join("nats"),
        port: None,
        log: folder.path().join("nats.log"),
        max_payload: MAX_PAYLOAD,
    };
    let first = Nats::start(options.clone()).await.unwrap();
    let (port, pid) = (first.port(), first.pid());
    let client = async_nats::connect(first.url()).await.unwrap();
    assert_eq!(
        client.server_info().max_payload,
        usize::try_from(MAX_PAYLOAD).unwrap()
    );
    assert!(client.server_info().jetstream);
    drop(client);

    let mut process = first.into_process();
    send(pid, Signal::SIGKILL);
    timeout(LONG, process.wait()).await.unwrap().unwrap();
    let second = Nats::start(NatsOptions {
        port: Some(port),
        ..options
    })
    .await
    .unwrap();
    assert_eq!(second.port(), port);
    let pid = second.pid();
    second.stop().await;
    assert!(is_gone(pid));
}

#[tokio::test]
async fn a_killed_postgres_comes_back_with_its_data_on_its_port() {
    let folder = folder(0o755);
    let options = postgres_in(folder.path());
    let first = Postgres::start(options.clone()).await.unwrap();
    let (port, pid, url) = (first.port(), first.pid(), first.url());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection
        .execute("CREATE TABLE kept AS SELECT 'still here' AS word")
        .await
        .unwrap();

    let mut process = first.into_process();
    send(pid, Signal::SIGKILL);
    timeout(LONG, process.wait()).await.unwrap().unwrap();
    // At once: the backends of the killed postmaster may still be there.
    let second = Postgres::start(PostgresOptions {
        port: Some(port),
        ..options
    })
    .await
    .unwrap();
    assert_eq!(second.url(), url);
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let row = connection
        .fetch_one("SELECT word, version() FROM kept")
        .await
        .unwrap();
    assert_eq!(row.get::<String, _>(0), "still here");
    let pid = second.pid();
    second.stop().await;
    assert!(is_gone(pid));
}

#[tokio::test]
async fn postgres_asks_for_the_password_and_stores_utf8() {
    let folder = folder(0o755);
    let postgres = Postgres::start(postgres_in(folder.path())).await.unwrap();
    let stranger = format!(
        "postgres://toolfleet:guess@127.0.0.1:{}/toolfleet",
        postgres.port()
    );
    assert!(PgConnection::connect(&stranger).await.is_err());
    let secret = fs::metadata(folder.path().join("postgres.password")).unwrap();
    assert_eq!(secret.permissions().mode() & 0o777, 0o600);

    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    for (setting, value) in [
        ("server_encoding", "UTF8"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("max_connections", "200"),
        ("fsync", "off"),
        ("synchronous_commit", "on"),
    ] {
        let row = connection
            .fetch_one(AssertSqlSafe(format!("SHOW {setting}")))
            .await
            .unwrap();
        assert_eq!(row.get::<String, _>(0), value, "{setting}");
    }
    postgres.stop().await;
}

#[tokio::test]
async fn servers_that_lost_their_owner_are_found_and_ended() {
    let folder = folder(0o755);
    let options = postgres_in(folder.path());
    let postgres = Postgres::start(options.clone()).await.unwrap();
    assert_eq!(
        Postgres::end_orphan(&options.data).await.unwrap(),
        Some(postgres.pid())
    );
    assert_eq!(Postgres::end_orphan(&options.data).await.unwrap(), None);
    assert!(is_gone(postgres.pid()));

    // A pid file that names somebody else must not end him.
    let store = folder.path().join("nats");
    fs::create_dir(&store).unwrap();
    fs::write(
        store.join("nats-server.pid"),
        std::process::id().to_string(),
    )
    .unwrap();
    assert_eq!(Nats::end_orphan(&store).await.unwrap(), None);
}

#[tokio::test]
async fn a_server_that_does_not_start_is_quoted() {
    let folder = folder(0o755);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let options = NatsOptions {
        store: folder.path().join("nats"),
        port: Some(taken.local_addr().unwrap().port()),
        log: folder.path().join("nats.log"),
        max_payload: MAX_PAYLOAD,
    };
    let problem = Nats::start(options).await.unwrap_err().to_string();
    assert!(
        problem.contains("address already in use") && problem.contains("nats.log"),
        "{problem}"
    );
}

#[tokio::test]
async fn for_root_a_closed_folder_moves_the_cluster_and_leaves_a_link() {
    if !geteuid().is_root() {
        return;
    }
    let closed = folder(0o700);
    let options = postgres_in(closed.path());
    let first = Postgres::start(options.clone()).await.unwrap();
    let target = fs::read_link(&options.data).unwrap();
    let home = target.parent().unwrap().to_path_buf();
    assert!(first.note().unwrap().contains(target.to_str().unwrap()));
    assert!(home.starts_with("/var/tmp") && fs::metadata(&target).unwrap().uid() != 0);
    assert_ne!(
        fs::metadata(format!("/proc/{}", first.pid()))
            .unwrap()
            .uid(),
        0
    );
    let mut connection = PgConnection::connect(&first.url()).await.unwrap();
    connection.execute("CREATE TABLE kept ()").await.unwrap();
    first.stop().await;

    let second = Postgres::start(options.clone()).await.unwrap();
    let mut connection = PgConnection::connect(&second.url()).await.unwrap();
    connection.execute("SELECT FROM kept").await.unwrap();

    // Its person removes the folder while it runs: the next one begins empty, alone.
    let abandoned = second.pid();
    fs::remove_file(&options.data).unwrap();
    let third = Postgres::start(options).await.unwrap();
    assert!(is_gone(abandoned));
    let mut connection = PgConnection::connect(&third.url()).await.unwrap();
    assert!(connection.execute("SELECT FROM kept").await.is_err());
    third.stop().await;
    fs::remove_dir_all(home).unwrap();
}

#[tokio::test]
async fn a_second_dev_on_the_same_data_is_refused_with_the_first_ones_pid() {
    let folder = folder(0o755);
    let mut first = DevProcess::start(folder.path(), &["--workers", "1"]).await;
    let second = timeout(LONG, dev(folder.path(), &[]).output())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains(&format!("pid {}", first.pid)) && said.contains("--data"),
        "{said}"
    );
    assert!(first.child.try_wait().unwrap().is_none());
    first.stop().await;
}

#[tokio::test]
async fn whatever_dies_is_started_again_where_it_was_and_dev_json_follows() {
    let folder = folder(0o755);
    let first = DevProcess::start(folder.path(), &["--workers", "2"]).await;
    let before = first.state();
    assert_eq!(
        (before.worker_pids.len(), before.dispatcher_pids.len()),
        (2, 1)
    );
    let file = fs::metadata(folder.path().join("data/dev.json")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);

    let mut killed = vec![before.worker_pids[0], before.dispatcher_pids[0]];
    killed.extend(before.nats_pid.into_iter().chain(before.postgres_pid));
    killed.iter().for_each(|pid| send(*pid, Signal::SIGKILL));
    let after = first.wait_for("everything to be back", |now| {
        let pids = pids_of(now);
        pids.len() == pids_of(&before).len() && killed.iter().all(|pid| !pids.contains(pid))
    });
    let after = after.await;
    assert_eq!(
        after.worker_pids[1], before.worker_pids[1],
        "the other worker is left alone"
    );
    assert_eq!(
        (&after.nats_url, &after.database_url),
        (&before.nats_url, &before.database_url)
    );
    assert_eq!(after.http_url, before.http_url);

    async_nats::connect(&after.nats_url).await.unwrap();
    PgConnection::connect(&after.database_url).await.unwrap();
    wait_until("the dispatcher to listen again", || {
        std::net::TcpStream::connect(after.http_url.trim_start_matches("http://")).is_ok()
    })
    .await;
    first.stop().await;
}

#[tokio::test]
async fn a_stop_leaves_no_process_and_no_dev_json() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let folder = folder(0o755);
        let dev = DevProcess::start(folder.path(), &["--workers", "2"]).await;
        let pids = pids_of(&dev.state());
        assert_eq!(pids.len(), 5);
        send(dev.pid, signal);
        let output = dev.stop().await;
        assert!(output.status.success(), "{signal}: {output:?}");
        assert!(pids.iter().all(|pid| is_gone(*pid)), "{signal}");
        assert!(!folder.path().join("data/dev.json").exists());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for promised in [
            "nats://127.0.0.1:",
            "psql postgres://",
            "http://127.0.0.1:",
            "logs",
            "Ctrl-C",
            "stopped",
        ] {
            assert!(said.contains(promised), "{promised}: {said}");
        }
    }
}

#[tokio::test]
async fn after_a_killed_dev_the_next_one_starts_clean_on_the_same_data() {
    let folder = folder(0o755);
    let mut first = DevProcess::start(folder.path(), &["--workers", "2"]).await;
    let before = first.state();
    let mut connection = PgConnection::connect(&before.database_url).await.unwrap();
    connection
        .execute("CREATE TABLE public.kept ()")
        .await
        .unwrap();
    send(first.pid, Signal::SIGKILL);
    timeout(LONG, first.child.wait()).await.unwrap().unwrap();
    wait_until("dispatchers and workers to end by themselves", || {
        before
            .worker_pids
            .iter()
            .chain(&before.dispatcher_pids)
            .all(|pid| is_gone(*pid))
    })
    .await;
    assert!(!is_gone(before.postgres_pid.unwrap()) && !is_gone(before.nats_pid.unwrap()));

    let second = DevProcess::start(folder.path(), &["--workers", "1"]).await;
    let after = second
        .wait_for("its own dev.json", |now| now.nats_pid != before.nats_pid)
        .await;
    assert!(pids_of(&before).iter().all(|pid| is_gone(*pid)));
    let mut connection = PgConnection::connect(&after.database_url).await.unwrap();
    connection.execute("SELECT FROM public.kept").await.unwrap();
    second.stop().await;
}

#[tokio::test]
async fn a_child_that_cannot_start_fails_the_start_with_its_log_and_nothing_stays() {
    let folder = folder(0o755);
    let refuses = folder.path().join("refuses");
    fs::write(&refuses, "#!/bin/sh\necho 'no such luck'\nexit 64\n").unwrap();
    fs::set_permissions(&refuses, fs::Permissions::from_mode(0o755)).unwrap();
    let options = DevOptions {
        program: Some(refuses),
        ..options(folder.path())
    };
    let problem = start(&options)
        .await
        .err()
        .expect("a dispatcher that ends is no dispatcher")
        .to_string();
    assert!(
        problem.contains("dev-dispatcher-1") && problem.contains("no such luck"),
        "{problem}"
    );
    let postgres = fs::read_to_string(folder.path().join("data/postgres/postmaster.pid"));
    assert!(postgres.is_err(), "Postgres was shut down: {postgres:?}");
}

static DEATHS: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

fn deaths_of(database_url: &str) -> Vec<u32> {
    let deaths = DEATHS.lock().unwrap();
    deaths
        .iter()
        .filter(|(url, _)| url == database_url)
        .map(|(_, pid)| *pid)
        .collect()
}

#[tokio::test]
async fn each_death_of_a_worker_is_reported_once_and_a_drained_worker_is_no_death() {
    let folder = folder(0o755);
    let dev = start(&DevOptions {
        workers: 2,
        ..options(folder.path())
    })
    .await
    .unwrap()
    .unwrap();
    let before = dev.state();
    let (killed, drained) = (before.worker_pids[0], before.worker_pids[1]);
    send(killed, Signal::SIGKILL);
    wait_until("the worker to be replaced", || {
        let now = dev.state().worker_pids;
        now.len() == 2 && !now.contains(&killed)
    })
    .await;
    dev.stop().await;
    let deaths = deaths_of(&before.database_url);
    assert_eq!(
        deaths.iter().filter(|pid| **pid == killed).count(),
        1,
        "{deaths:?}"
    );
    assert!(!deaths.contains(&drained), "{deaths:?}");
}

#[tokio::test]
async fn the_workers_of_a_killed_dev_are_reported_by_the_next_one() {
    let folder = folder(0o755);
    let mut killed = DevProcess::start(folder.path(), &["--workers", "2"]).await;
    let left = killed.state();
    send(killed.pid, Signal::SIGKILL);
    timeout(LONG, killed.child.wait()).await.unwrap().unwrap();

    let dev = start(&options(folder.path())).await.unwrap().unwrap();
    let database_url = dev.state().database_url;
    wait_until("both deaths to be reported", || {
        deaths_of(&database_url) == left.worker_pids
    })
    .await;
    assert!(left.worker_pids.iter().all(|pid| is_gone(*pid)));
    dev.stop().await;
}

fn options(folder: &Path) -> DevOptions {
    DevOptions {
        data: folder.join("data"),
        tools: None,
        workers: 1,
        dispatchers: 1,
        nats_port: 0,
        postgres_port: 0,
        http_port: 0,
        concurrency: 4,
        program: Some(PROGRAM.into()),
    }
}

/// Starts a `dev` in this process; its dispatchers and workers are processes as ever.
async fn start(options: &DevOptions) -> anyhow::Result<Option<Dev>> {
    let hooks = DevHooks {
        migrate: |database_url| Box::pin(migrate(database_url)),
        apply_tools: |_, _| Box::pin(async { Ok(Vec::new()) }),
        worker_died: |database_url, pid| {
            DEATHS.lock().unwrap().push((database_url, pid));
            Box::pin(async { Ok(()) })
        },
    };
    let never = CancellationToken::new();
    timeout(
        LONG,
        Box::pin(Dev::start(
            options,
            hooks,
            Screen::new(std::io::sink()),
            &never,
            &never,
        )),
    )
    .await
    .unwrap()
}

async fn migrate(database_url: String) -> anyhow::Result<()> {
    let status = Command::new(PROGRAM)
        .arg("migrate")
        .env("DATABASE_URL", database_url)
        .status()
        .await?;
    anyhow::ensure!(status.success(), "migrate failed");
    Ok(())
}

/// The program itself, as a person runs it. Dropping it asks it to stop and waits.
struct DevProcess {
    child: Child,
    pid: u32,
    file: PathBuf,
}

impl DevProcess {
    async fn start(folder: &Path, more: &[&str]) -> Self {
        let mut child = dev(folder, more).spawn().unwrap();
        let (pid, file) = (child.id().unwrap(), folder.join("data/dev.json"));
        let before = fs::metadata(&file).ok().map(|old| old.ino());
        wait_until("dev.json", || {
            assert!(
                child.try_wait().unwrap().is_none(),
                "dev ended instead of starting"
            );
            fs::metadata(&file)
                .ok()
                .map(|new| new.ino())
                .is_some_and(|new| Some(new) != before)
        })
        .await;
        Self { child, pid, file }
    }

    fn state(&self) -> DevState {
        serde_json::from_slice(&fs::read(&self.file).unwrap()).unwrap()
    }

    async fn wait_for(&self, what: &str, is_so: impl Fn(&DevState) -> bool) -> DevState {
        wait_until(what, || is_so(&self.state())).await;
        self.state()
    }

    async fn stop(mut self) -> Output {
        send(self.pid, Signal::SIGTERM);
        timeout(LONG, self.child.wait())
            .await
            .expect("dev stops")
            .unwrap();
        let mut output = Output {
            status: self.child.wait().await.unwrap(),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        tokio::io::AsyncReadExt::read_to_end(
            &mut self.child.stdout.take().unwrap(),
            &mut output.stdout,
        )
        .await
        .unwrap();
        output
    }
}

impl Drop for DevProcess {
    fn drop(&mut self) {
        let until = std::time::Instant::now() + LONG;
        while self.child.try_wait().is_ok_and(|ended| ended.is_none())
            && std::time::Instant::now() < until
        {
            send(self.pid, Signal::SIGTERM);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn dev(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .arg("dev")
        .arg("--data")
        .arg(folder.join("data"))
        .args(more);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn postgres_in(folder: &Path) -> PostgresOptions {
    PostgresOptions {
        data: folder.join("postgres"),
        port: None,
        log: folder.join("postgres.log"),
        fsync: false,
    }
}

/// A folder that goes with the test; another user passes through it when its mode lets him.
fn folder(mode: u32) -> TempDir {
    let permissions = fs::Permissions::from_mode(mode);
    tempfile::Builder::new()
        .permissions(permissions)
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap()
}

fn pids_of(state: &DevState) -> Vec<u32> {
    let servers = state.nats_pid.into_iter().chain(state.postgres_pid);
    state
        .worker_pids
        .iter()
        .chain(&state.dispatcher_pids)
        .copied()
        .chain(servers)
        .collect()
}

fn send(pid: u32, signal: Signal) {
    // It may be gone already, which is what most of these signals are for.
    let _sent = kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal);
}

fn is_gone(pid: u32) -> bool {
    command_line(pid).is_empty()
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "waited {LONG:?} for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
