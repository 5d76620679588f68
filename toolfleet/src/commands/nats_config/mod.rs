//! `toolfleet nats-config`: writes the users of nats-server, each with the rights of its role.
//!
//! `users` says who there is, `text` how the configuration reads, `secrets` makes their secrets and keeps those that are there.

mod secrets;
mod text;
mod users;

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use fleet::{
    config::{BusArgs, secret},
    ids::{Label, Prefix},
    process::check_bus_url,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use self::{
    secrets::{Kind, Secrets},
    users::{Queues, Roster, Service, wrong},
};
use super::output;
use crate::dev::private;

/// What `nats-config` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct NatsConfig {
    /// The tenants, separated by commas: for each a user agent-TENANT
    #[arg(long, value_name = "TENANTS", value_delimiter = ',', required = true)]
    tenant: Vec<Label>,
    /// Those of the tenants that get an account of their own, with limits for connections, subscriptions and messages, which
    /// nats-server has for accounts only. The others are users of the fleet's account
    #[arg(long, value_name = "TENANTS", value_delimiter = ',')]
    own_account: Vec<Label>,
    /// Those of them whose messages may be larger than 512 KiB: who send large batches, or call chat tools
    #[arg(long, value_name = "TENANTS", value_delimiter = ',')]
    large: Vec<Label>,
    /// The queues, separated by commas: for each a user worker-QUEUE. One for workers of several queues has them joined by +
    #[arg(
        long,
        value_name = "QUEUES",
        value_delimiter = ',',
        default_value = "default"
    )]
    queue: Vec<Queues>,
    /// The tools that are NATS services, separated by commas: for each a user service-TOOL. TOOL is found at tools.TOOL,
    /// TOOL=SUBJECT at that subject; tools of one program are joined by +
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    service: Vec<Service>,
    /// The first token of every subject of the fleet
    #[arg(long, env = "TOOLFLEET_PREFIX", default_value = "toolfleet")]
    prefix: Prefix,
    /// Where programs will find nats-server, without a user; written into each user's file
    #[arg(long, value_name = "URL", default_value = "nats://127.0.0.1:4222", value_parser = secret)]
    url: SecretString,
    /// Make nkeys instead of passwords
    #[arg(long)]
    nkeys: bool,
    /// The folder for the files; made if it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print JSON: the files that were written and the users
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Writes into DIR:
  nats-server.conf  a configuration for one server, unless it is there: change what is the machine's
  users.conf        accounts, users and their rights, without secrets; nats-server.conf includes it, and your own may
  secrets.conf      passwords, or public keys; included by users.conf, so nats-server must be able to read it (mode 0600)
  USER.env          what programs of that user set: NATS_URL, NATS_INBOX, … (mode 0600)
  USER.url          of dispatchers and workers, the address with the password, which NATS_URL names (mode 0600)
  USER.nk           with --nkeys, the seed of the user's key (mode 0600)

Secrets that are in DIR already stay as they are, so the same command with one more tenant adds a user. Secrets are printed
nowhere. Let nats-server read the files again afterwards: nats-server --signal reload.";

impl NatsConfig {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        check_bus_url(&BusArgs::at(self.url.clone()))?;
        if self.url.expose_secret().contains('@') {
            return Err(wrong(
                "--url names a user: write the address alone".to_owned(),
            ));
        }
        let roster = Roster::new(
            self.prefix,
            self.tenant,
            &self.own_account,
            &self.large,
            self.queue,
            self.service,
        )?;
        let kind = if self.nkeys {
            Kind::Nkey
        } else {
            Kind::Password
        };
        let dir = &self.out;
        fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let dir = fs::canonicalize(dir).with_context(|| format!("open {}", dir.display()))?;
        let secrets = Secrets::read_or_make(&dir, kind, &roster)?;
        let mut written = Vec::new();
        for user in &roster.users {
            let (name, login) = (&user.name, secrets.of(&user.name));
            if let Some(seed) = login.seed() {
                private_file(
                    &dir,
                    &format!("{name}.nk"),
                    &format!("{seed}\n"),
                    &mut written,
                )?;
            }
            let mut url = text::url(user, login, self.url.expose_secret());
            if user.is_process {
                let file = format!("{name}.url");
                private_file(&dir, &file, &format!("{url}\n"), &mut written)?;
                url = format!("file:{}", dir.join(file).display());
            }
            let key = dir.join(format!("{name}.nk"));
            let env = text::env(user, login, &url, &key);
            private_file(&dir, &format!("{name}.env"), &env, &mut written)?;
        }
        private_file(&dir, "secrets.conf", &secrets.text(), &mut written)?;
        let users = text::users(&roster, kind);
        let path = dir.join("users.conf");
        fs::write(&path, users).with_context(|| format!("write {}", path.display()))?;
        written.push(path);
        if let Some(path) = server_file(&dir)? {
            written.push(path);
        }
        tell(self.json, &roster, &written)
    }
}

fn private_file(
    dir: &Path,
    name: &str,
    text: &str,
    written: &mut Vec<PathBuf>,
) -> anyhow::Result<()> {
    let path = dir.join(name);
    private::replace(&path, text.as_bytes())
        .with_context(|| format!("write {}", path.display()))?;
    written.push(path);
    Ok(())
}

/// Writes the server's own settings, unless there are some: they are the machine's.
fn server_file(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let path = dir.join("nats-server.conf");
    let open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&path);
    match open {
        Ok(mut file) => {
            file.write_all(text::SERVER.as_bytes())
                .with_context(|| format!("write {}", path.display()))?;
            Ok(Some(path))
        }
        Err(reason) if reason.kind() == std::io::ErrorKind::AlreadyExists => Ok(None),
        Err(reason) => Err(reason).with_context(|| format!("write {}", path.display())),
    }
}

fn tell(as_json: bool, roster: &Roster, written: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let users: Vec<&str> = roster.users.iter().map(|user| user.name.as_str()).collect();
    if as_json {
        output::print_json(&json!({ "users": users, "files": written }))?;
    } else {
        let files: Vec<String> = written
            .iter()
            .map(|file| format!("wrote {}", file.display()))
            .collect();
        output::print(&format!(
            "{}\nusers: {}",
            files.join("\n"),
            users.join(", ")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
