//! Settings that several processes share: flags with their environment variables, checked together at start.

use std::{fs::File, io::Read, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use secrecy::SecretString;
use uuid::Uuid;

use crate::{
    egress::{Egress, Exceptions, Reach},
    ids::Prefix,
    manifest::parse_duration,
    wire::subjects::is_literal,
};

/// Where the ledger is.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// The PostgreSQL database (15 or newer), as `postgres://user:password@host:port/database`, or `file:PATH` of a file with that.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = secret)]
    pub database_url: SecretString,
}

/// Where the bus is.
#[derive(Debug, Clone, Args)]
pub struct BusArgs {
    /// A NATS server (2.12.6 or newer, with JetStream), as `nats://user:password@host:port`, or `file:PATH` of a file with that; it
    /// names the rest of its cluster.
    #[arg(long, env = "NATS_URL", hide_env_values = true, default_value = "nats://127.0.0.1:4222", value_parser = secret)]
    pub nats_url: SecretString,
    /// The first token of every subject. Fleets with different prefixes do not see each other.
    #[arg(long, env = "TOOLFLEET_PREFIX", default_value = "toolfleet")]
    pub prefix: Prefix,
    /// What the subjects begin with on which this program is answered. It must be one that its NATS user may subscribe to,
    /// and for a caller one that the dispatchers answer on (`DISPATCHER_REPLIES`).
    #[arg(long, env = "NATS_INBOX", default_value = "_INBOX")]
    pub nats_inbox: InboxPrefix,
    /// How it proves to NATS who it is, where the URL does not say so.
    #[command(flatten)]
    pub login: LoginArgs,
}

/// Files with which this program and NATS prove to each other who they are. They are read at the start; a new certificate or
/// key counts from the next start on.
#[derive(Debug, Clone, Default, Args)]
pub struct LoginArgs {
    /// The authorities (PEM) that may have signed the certificate of NATS, instead of those of the system. The connection is
    /// then encrypted or not made, whatever the URL says.
    #[arg(id = "nats_ca", long = "nats-ca", env = "NATS_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The certificate (PEM) that this program shows to NATS; with --nats-key. The connection is then encrypted or not made.
    #[arg(
        id = "nats_cert",
        long = "nats-cert",
        env = "NATS_CERT",
        value_name = "FILE"
    )]
    pub cert: Option<PathBuf>,
    /// The private key (PEM) of --nats-cert.
    #[arg(
        id = "nats_key",
        long = "nats-key",
        env = "NATS_KEY",
        value_name = "FILE"
    )]
    pub key: Option<PathBuf>,
    /// The credentials of a NATS user, as `nsc` writes them. Not with --nats-nkey, nor with a user in the URL.
    #[arg(
        id = "nats_creds",
        long = "nats-creds",
        env = "NATS_CREDS",
        value_name = "FILE"
    )]
    pub creds: Option<PathBuf>,
    /// A file with the seed (`SU…`) of the NATS user's nkey. Not with --nats-creds, nor with a user in the URL.
    #[arg(
        id = "nats_nkey",
        long = "nats-nkey",
        env = "NATS_NKEY",
        value_name = "FILE"
    )]
    pub nkey: Option<PathBuf>,
}

impl BusArgs {
    /// The server at this URL, with the defaults of everything else.
    pub fn at(nats_url: SecretString) -> Self {
        Self {
            nats_url,
            prefix: "toolfleet".parse().expect("a prefix"),
            nats_inbox: InboxPrefix::default(),
            login: LoginArgs::default(),
        }
    }
}

/// What the inboxes of a connection begin with: tokens of printable ASCII without wildcards, joined by dots, 128 characters
/// at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxPrefix(String);

/// Why it is not the beginning of an inbox.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error(
    "write the beginning of a subject, such as _INBOX or _INBOX.acme, without a dot at its end and without wildcards"
)]
pub struct NotAnInbox;

impl InboxPrefix {
    const BYTES_MAX: usize = 128;

    /// As it stands in front of the first dot that the client adds.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for InboxPrefix {
    fn default() -> Self {
        Self("_INBOX".to_owned())
    }
}

impl std::str::FromStr for InboxPrefix {
    type Err = NotAnInbox;

    fn from_str(text: &str) -> Result<Self, NotAnInbox> {
        let fits = text.len() <= Self::BYTES_MAX && !text.starts_with('$');
        if fits && is_literal(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAnInbox)
        }
    }
}

/// Where requests of tools may go.
#[derive(Debug, Clone, Args)]
pub struct EgressArgs {
    /// Where HTTP tools may go: `any`, or `public`, which leaves out this machine, its network and its cloud's metadata. Names
    /// are resolved once, and every address is judged.
    #[arg(long = "egress", env = "WORKER_EGRESS", value_enum, default_value_t)]
    pub reach: Reach,
    /// Names, addresses and networks that HTTP tools may go to whatever they are: `billing.internal,10.1.0.0/16`.
    #[arg(
        long = "egress-allow",
        env = "WORKER_EGRESS_ALLOW",
        value_name = "NAMES",
        default_value = "",
        hide_default_value = true
    )]
    pub exceptions: Exceptions,
}

impl EgressArgs {
    /// The rule that they make.
    pub fn egress(&self) -> Egress {
        Egress::new(self.reach, self.exceptions.clone())
    }
}

/// Where probes and scrapers find the process.
#[derive(Debug, Clone, Args)]
pub struct HttpArgs {
    /// Address of `/healthz`, `/readyz` and `/metrics`; port 0 lets the system pick one. Keep it off public networks.
    #[arg(long, env = "TOOLFLEET_HTTP", default_value = "127.0.0.1:0")]
    pub http: SocketAddr,
    /// How `/readyz` names this process, so that its parent can tell it from a stranger on the same port.
    #[arg(long, hide = true)]
    pub instance: Option<Uuid>,
}

/// For a process that stops when its parent is gone.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct ParentArgs {
    /// Drain and stop when standard input ends: the process that started this one is gone.
    #[arg(long, hide = true)]
    pub parent_pipe: bool,
}

/// All settings that cannot be used. The program exits with code 64.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigError(pub Vec<String>);

/// Reads a duration such as `30s`.
///
/// # Errors
///
/// A sentence that says what a duration looks like.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}

/// Reads a secret, which is never printed: the text itself, or `file:PATH` of a file that contains it, so that no environment
/// does. White space at the file's end is not part of it.
///
/// # Errors
///
/// A sentence: the file cannot be read, or has more than 64 KiB.
pub fn secret(text: &str) -> Result<SecretString, String> {
    let Some(path) = text.strip_prefix(SECRET_FILE) else {
        return Ok(SecretString::from(text.to_owned()));
    };
    let mut read = String::new();
    File::open(path)
        .and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut read))
        .map_err(|error| format!("the file cannot be read: {error}"))?;
    if read.len() as u64 > SECRET_BYTES_MAX {
        return Err("the file is too large for a secret; write at most 64 KiB".to_owned());
    }
    Ok(SecretString::from(read.trim_end().to_owned()))
}

/// What the value of a secret setting begins with whose rest is the path of a file.
const SECRET_FILE: &str = "file:";
const SECRET_BYTES_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn a_secret_stands_there_or_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        std::fs::write(&path, "postgres://a:b@c/d\n").unwrap();
        let told = secret(&format!("file:{}", path.display())).unwrap();
        assert_eq!(told.expose_secret(), "postgres://a:b@c/d");
        let plain = secret("postgres://a:b@c/d").unwrap();
        assert_eq!(plain.expose_secret(), told.expose_secret());
        assert!(
            secret("file:/nowhere")
                .unwrap_err()
                .contains("cannot be read")
        );
        std::fs::write(&path, "x".repeat(70_000)).unwrap();
        assert!(secret(&format!("file:{}", path.display())).is_err());
    }
}
