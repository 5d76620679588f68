//! The nats-server of a fleet: where it is, stopping it, starting it again, and who connects.

use std::{path::PathBuf, time::Duration};

use fleet_client::FleetClient;
use toolfleet::servers::{Nats, NatsOptions};

use crate::{fleet::Fleet, run_folder::RunFolder, shipped::User, wait::until_so};

impl Fleet {
    /// Where programs find nats-server; a dispatcher, where it has users.
    pub fn nats_url(&self) -> String {
        self.nats_url_at(self.nats_port)
    }

    /// Where a dispatcher finds it through a wire that listens on this port.
    pub fn nats_url_at(&self, port: u16) -> String {
        self.login(User::Dispatcher, port)[1].clone()
    }

    /// What a program that connects as this user is told, as flags; without users only the address.
    pub(crate) fn login(&self, user: User, port: u16) -> [String; 4] {
        let (url, inbox) = match &self.shipped {
            Some(_) => (user.url(port), user.inbox()),
            None => (format!("nats://127.0.0.1:{port}"), "_INBOX"),
        };
        ["--nats-url", &url, "--nats-inbox", inbox].map(str::to_owned)
    }

    /// A caller that connects as this user of the configuration that is shipped.
    ///
    /// # Panics
    ///
    /// It cannot.
    pub async fn client_of(&self, user: User) -> FleetClient {
        let client = connect(self.nats_port, Some(user)).await;
        let subjects = self.caller.subjects().clone();
        let caller = FleetClient::over(&client, subjects).await;
        caller.expect("open an inbox")
    }

    /// What the nats-server that is shipped has said so far.
    ///
    /// # Panics
    ///
    /// The fleet is on another one.
    pub fn shipped_log(&self) -> String {
        let log = self.nats_folder.path().join("shipped.log");
        std::fs::read_to_string(log).expect("the fleet is on a shipped one")
    }

    /// The port of nats-server on 127.0.0.1.
    pub const fn nats_port(&self) -> u16 {
        self.nats_port
    }

    /// The process of nats-server.
    ///
    /// # Panics
    ///
    /// It is down.
    pub fn nats_pid(&self) -> u32 {
        self.nats.as_ref().expect("nats-server runs").pid()
    }

    /// How many pointers are in the stream; `None` while there is no stream.
    pub async fn pointers(&self) -> Option<u64> {
        let mut stream = self.stream().await?;
        stream.info().await.ok().map(|info| info.state.messages)
    }

    /// Shuts nats-server down.
    pub async fn stop_nats(&mut self) {
        if let Some(nats) = self.nats.take() {
            nats.stop().await;
        }
    }

    /// Starts nats-server again where it was, and waits until the caller's connection stands.
    ///
    /// # Panics
    ///
    /// It does not come up.
    pub async fn start_nats(&mut self) {
        let starting = start_nats(&self.nats_folder, Some(self.nats_port), self.max_payload);
        self.nats = Some(starting.await);
        until_so("the caller to be connected again", async || {
            self.client.flush().await.is_ok()
                && self.client.connection_state() == async_nats::connection::State::Connected
        })
        .await;
    }

    /// Throws away what nats-server keeps on disk. It has to be down.
    ///
    /// # Panics
    ///
    /// It runs, or its folder cannot be emptied.
    pub fn wipe_nats(&self) {
        std::fs::remove_dir_all(self.nats_files()).expect("empty nats-server's folder");
    }

    /// Where nats-server keeps its streams. It has to be down: what is copied or changed there is what it starts with.
    ///
    /// # Panics
    ///
    /// It runs.
    pub fn nats_files(&self) -> PathBuf {
        assert!(self.nats.is_none(), "nats-server runs");
        self.nats_folder.path().join("store").join("jetstream")
    }
}

/// A caller's connection.
pub(crate) async fn connect(port: u16, user: Option<User>) -> async_nats::Client {
    // Back sooner than anybody of the fleet: what is measured after an outage is not the caller.
    let options = async_nats::ConnectOptions::new()
        .reconnect_delay_callback(|_failed| Duration::from_millis(20));
    let options = match user {
        Some(user) => {
            let options = options.user_and_password(user.name().to_owned(), user.password());
            options.custom_inbox_prefix(user.inbox())
        }
        None => options,
    };
    let connecting = options.connect(format!("nats://127.0.0.1:{port}")).await;
    connecting.expect("connect to nats-server")
}

pub(crate) async fn start_nats(folder: &RunFolder, port: Option<u16>, max_payload: u32) -> Nats {
    let options = NatsOptions {
        store: folder.path().join("store"),
        port,
        log: folder.path().join("log"),
        max_payload,
        password: None,
        further: String::new(),
    };
    Nats::start(options).await.expect("start nats-server")
}
