//! The nats-server of a fleet: where it is, stopping it, starting it again, and who connects.

use std::{path::PathBuf, time::Duration};

use toolfleet::servers::{Nats, NatsOptions};

use crate::{fleet::Fleet, run_folder::RunFolder, shipped::User, wait::until_so};

impl Fleet {
    /// Where the processes of the fleet find nats-server.
    pub fn nats_url(&self) -> String {
        self.nats_url_at(self.nats_port)
    }

    /// The same through a wire that listens on this port.
    pub fn nats_url_at(&self, port: u16) -> String {
        match &self.shipped {
            Some(_) => User::Fleet.url(port),
            None => format!("nats://127.0.0.1:{port}"),
        }
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
    };
    Nats::start(options).await.expect("start nats-server")
}
