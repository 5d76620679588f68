//! Postgres and nats-server alone.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use nix::{sys::signal::Signal, unistd::geteuid};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tokio::time::timeout;
use toolfleet::servers::{Nats, NatsOptions, Postgres, PostgresOptions, nats::MAX_PAYLOAD};

use crate::support::{LONG, folder, is_gone, send};

#[tokio::test]
async fn a_killed_nats_server_comes_back_on_its_port() {
    let folder = folder(0o755);
    let options = NatsOptions {
        store: folder.path().join("nats"),
        port: None,
        log: folder.path().join("nats.log"),
        max_payload: MAX_PAYLOAD,
        password: None,
        further: String::new(),
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

    // A pid file that names another process must not end that process.
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
        password: None,
        further: String::new(),
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

fn postgres_in(folder: &Path) -> PostgresOptions {
    PostgresOptions {
        data: folder.join("postgres"),
        port: None,
        log: folder.join("postgres.log"),
        fsync: false,
        variables: Vec::new(),
    }
}
