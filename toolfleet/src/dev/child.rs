//! A dispatcher, worker or gateway of a `dev`: this program again, in a process of its own.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::process::Command;
use uuid::Uuid;

use super::{
    ready::Awaited,
    state::{DevState, Role},
};
use crate::servers::{
    ServerError,
    process::{self, Ending, Launch, Process},
};

/// How long a worker may finish what it runs when it is told to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// Longer than a drain and the end of the tool processes after it.
const ENDING: Ending = Ending {
    ask: Signal::SIGTERM,
    grace: Duration::from_secs(15),
    at_once: Signal::SIGKILL,
};
/// A predecessor's child drains because its pipe is closed; it gets less time.
const ORPHAN: Ending = Ending {
    grace: Duration::from_secs(5),
    ..ENDING
};

/// How one of them is started, the same way each time.
#[derive(Debug, Clone)]
pub(crate) struct ChildSpec {
    pub(crate) role: Role,
    pub(crate) program: PathBuf,
    pub(crate) http_port: u16,
    /// Where callers find the API; for gateways.
    pub(crate) listen_port: u16,
    /// Where tools find the first gateway, if there is one; for workers.
    pub(crate) gateway_url: Option<String>,
    /// The id with which it identifies itself.
    pub(crate) instance: Uuid,
    pub(crate) nats_url: String,
    pub(crate) database_url: String,
    /// The same for sql tools; for workers.
    pub(crate) tool_database_url: String,
    pub(crate) concurrency: u32,
    pub(crate) secrets: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) log: PathBuf,
}

impl ChildSpec {
    /// How `ready` recognises it.
    pub(crate) fn awaited(&self) -> Awaited {
        Awaited {
            role: self.role,
            address: self.address(),
            instance: self.instance,
        }
    }

    /// Where its `/readyz` is.
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.http_port).into()
    }

    /// Starts it; it is not ready yet.
    pub(crate) fn start(&self) -> Result<Process, ServerError> {
        let mut command = Command::new(&self.program);
        command.args(self.arguments());
        command
            .env("DATABASE_URL", &self.database_url)
            .env("NATS_URL", &self.nats_url);
        if matches!(self.role, Role::Worker(_)) {
            command.env("WORKER_TOOL_DATABASE_URL", &self.tool_database_url);
        }
        let (name, log) = (self.role.to_string(), self.log.clone());
        Process::spawn(Launch {
            name,
            command,
            log,
            ending: ENDING,
            parent_pipe: true,
        })
    }

    fn arguments(&self) -> Vec<String> {
        let subcommand = match self.role {
            Role::Worker(_) => "worker",
            Role::Gateway(_) => "gateway",
            Role::Dispatcher(_) | Role::Nats | Role::Postgres => "dispatcher",
        };
        let mut arguments = vec![subcommand.to_owned(), "--parent-pipe".to_owned()];
        let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        flag("--http", self.address().to_string());
        flag("--instance", self.instance.to_string());
        if matches!(self.role, Role::Gateway(_)) {
            let listen: SocketAddr = (Ipv4Addr::LOCALHOST, self.listen_port).into();
            flag("--listen", listen.to_string());
            flag("--auth", "tokens".to_owned());
        }
        if matches!(self.role, Role::Worker(_)) {
            flag("--name", self.role.to_string());
            flag("--concurrency", self.concurrency.to_string());
            flag("--drain-timeout", format!("{}s", DRAIN.as_secs()));
            flag("--secrets", self.secrets.to_string_lossy().into_owned());
            flag("--state-dir", self.state_dir.to_string_lossy().into_owned());
            if let Some(url) = &self.gateway_url {
                flag("--gateway-url", url.clone());
            }
        }
        arguments
    }
}

/// Ends the processes that a killed predecessor's `dev.json` names and that still run.
///
/// A pid may belong to another program by now. A process of ours has the database's URL in its environment, with a password
/// that no other program knows. Only root can read that of a dispatcher or worker; for other users the command line has to do,
/// which names the address of its port; and a process that is not recognised ends by its closed pipe.
pub(crate) async fn end_orphans(left: &DevState) -> anyhow::Result<()> {
    let marker = format!("DATABASE_URL={}", left.database_url);
    let address = left.http_url.trim_start_matches("http://");
    let is_ours = |pid: u32| {
        let words = process::command_line(pid);
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        let known = match std::fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) => environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == marker.as_bytes()),
            Err(_hidden) => has(address),
        };
        known && has("--parent-pipe")
    };
    let workers = left.worker_pids.iter();
    let pids = workers
        .chain(&left.dispatcher_pids)
        .chain(&left.gateway_pids);
    let ends = pids.map(|pid| async { (*pid, process::end_orphan(*pid, ORPHAN, is_ours).await) });
    for (pid, gone) in futures_util::future::join_all(ends).await {
        anyhow::ensure!(
            gone,
            "a process of the previous `dev` (pid {pid}) does not end: end it by hand"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_what_it_needs_and_no_more() {
        let spec = |role| ChildSpec {
            role,
            program: "toolfleet".into(),
            http_port: 8080,
            listen_port: 8233,
            gateway_url: Some("http://127.0.0.1:8233".into()),
            instance: Uuid::nil(),
            nats_url: String::new(),
            database_url: "postgres://secret".into(),
            tool_database_url: "postgres://tools".into(),
            concurrency: 4,
            secrets: "/data/secrets".into(),
            state_dir: "/data/workers".into(),
            log: PathBuf::new(),
        };
        assert_eq!(
            spec(Role::Dispatcher(1)).arguments().join(" "),
            "dispatcher --parent-pipe --http 127.0.0.1:8080 --instance 00000000-0000-0000-0000-000000000000"
        );
        assert_eq!(
            spec(Role::Worker(2)).arguments().join(" "),
            "worker --parent-pipe --http 127.0.0.1:8080 --instance 00000000-0000-0000-0000-000000000000 --name dev-worker-2 --concurrency 4 --drain-timeout 10s \
             --secrets /data/secrets --state-dir /data/workers --gateway-url http://127.0.0.1:8233"
        );
        assert_eq!(
            spec(Role::Gateway(1)).arguments().join(" "),
            "gateway --parent-pipe --http 127.0.0.1:8080 --instance 00000000-0000-0000-0000-000000000000 --listen 127.0.0.1:8233 --auth tokens"
        );
    }
}
