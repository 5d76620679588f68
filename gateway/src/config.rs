//! The settings of a gateway.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum};
use fleet::{
    config::{BusArgs, ConfigError, HttpArgs, ParentArgs, StoreArgs},
    telemetry::TelemetryOptions,
};

use crate::edge::hosts::{HostName, WebOrigin};

/// The settings of a gateway.
#[derive(Debug, Clone, Args)]
pub struct Config {
    /// Where the history is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Where the bus is.
    #[command(flatten)]
    pub bus: BusArgs,
    /// Where probes and scrapers look.
    #[command(flatten)]
    pub http: HttpArgs,
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryOptions,
    /// The process that started it.
    #[command(flatten)]
    pub parent: ParentArgs,
    /// A label for logs and connections.
    #[arg(long, env = "TOOLFLEET_NAME", default_value = "gateway")]
    pub name: String,
    /// Where callers find the API. It speaks in the clear: on another address than a loopback one, a proxy with TLS belongs before
    /// it.
    #[arg(long, env = "GATEWAY_LISTEN", default_value = "127.0.0.1:8233")]
    pub listen: SocketAddr,
    /// The names by which callers may ask for it (the header `Host`), separated by commas, without a port. Always allowed:
    /// `localhost`, the loopback addresses, and the address of --listen unless that is every address. Others are refused, so
    /// that a page whose name suddenly leads here cannot ask.
    #[arg(
        long,
        env = "GATEWAY_ALLOWED_HOSTS",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    pub allowed_hosts: Vec<HostName>,
    /// The web pages that may ask from a browser, as `https://app.example`, separated by commas. Pages of the gateway's own
    /// address may always. Never with cookies.
    #[arg(
        long = "cors-origin",
        env = "GATEWAY_CORS_ORIGINS",
        value_name = "ORIGINS",
        value_delimiter = ','
    )]
    pub cors_origins: Vec<WebOrigin>,
    /// How callers say who they are: by tokens (`toolfleet tokens create`), or not at all, which is for loopback addresses only.
    #[arg(long, env = "GATEWAY_AUTH", value_enum, default_value_t = Auth::Tokens)]
    pub auth: Auth,
    /// Connections at a time; further ones are closed at once.
    #[arg(long, env = "GATEWAY_CONNECTIONS_MAX", default_value_t = 4_096)]
    pub connections_max: usize,
    /// Connections of one token; further ones are refused and closed. Without it a quarter of --connections-max, and at least
    /// --strangers-max.
    #[arg(long, env = "GATEWAY_CONNECTIONS_EACH_MAX")]
    pub connections_each_max: Option<usize>,
    /// Connections from one address, or one network of IPv6 (/64), whose last request did not say who asks; further ones wait
    /// two seconds for a place, then they are closed. Behind a proxy all callers have its address: set it to as many connections as
    /// the proxy holds.
    #[arg(long, env = "GATEWAY_STRANGERS_MAX", default_value_t = 64)]
    pub strangers_max: usize,
    /// Streams of events at a time; further ones are refused.
    #[arg(long, env = "GATEWAY_STREAMS_MAX", default_value_t = 2_048)]
    pub streams_max: usize,
    /// Streams of events of one token, or from one address where nobody is asked for a token; further ones are refused.
    #[arg(long, env = "GATEWAY_STREAMS_EACH_MAX", default_value_t = 1_024)]
    pub streams_each_max: usize,
    /// The most bytes of a file that is sent to it; 32 MiB (33554432) are the most that the fleet keeps.
    #[arg(long, env = "GATEWAY_FILES_BYTES_MAX", default_value_t = 33_554_432)]
    pub files_bytes_max: u64,
    /// MiB of bodies in memory at a time, beyond the first 16 KiB of each; what has no room is refused. Those of one token have
    /// half of it, those of requests that did not say who asks an eighth, and each at least the room for one.
    #[arg(long, env = "GATEWAY_BODIES_MAX_MIB", default_value_t = 64)]
    pub bodies_max_mib: usize,
    /// MiB of answers in memory that their clients have not read yet, beyond those of 16 KiB and less; where there are more, the connection
    /// is closed whose answer waits for the longest, of the token with too many. One token may have half of it, and each the
    /// largest answer.
    #[arg(long, env = "GATEWAY_ANSWERS_MAX_MIB", default_value_t = 64)]
    pub answers_max_mib: usize,
    /// A folder with resources and prompts for clients of MCP, read when the gateway starts: docs/mcp.md.
    #[arg(long, env = "GATEWAY_MCP_CONTENT", value_name = "DIR")]
    pub mcp_content: Option<PathBuf>,
    /// Where the console leads for the trace of a call: a URL of http or https with `{trace_id}` in it, such as
    /// `https://traces.example/trace/{trace_id}`.
    #[arg(long, env = "GATEWAY_TRACE_URL", value_name = "URL")]
    pub trace_url: Option<String>,
    /// Connections to Postgres, for the history and the tokens; two more are for looks at single calls.
    #[arg(long, env = "GATEWAY_READ_CONNECTIONS", default_value_t = 4)]
    pub read_connections: u32,
}

/// How callers say who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// By a token in `Authorization: Bearer`.
    Tokens,
    /// Not at all: whoever reaches the port may do everything.
    None,
}

impl Config {
    /// Connections that one token may have.
    pub(crate) fn connections_each_max(&self) -> usize {
        let share = (self.connections_max / 4).max(self.strangers_max);
        self.connections_each_max.unwrap_or(share)
    }

    /// Whether the settings fit together.
    ///
    /// # Errors
    ///
    /// Every setting that does not fit, at once, by variable name.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut wrong = Vec::new();
        if self.auth == Auth::None && !self.listen.ip().is_loopback() {
            wrong.push(
                "GATEWAY_AUTH may be none only where GATEWAY_LISTEN is a loopback address"
                    .to_owned(),
            );
        }
        if !(1..=65_536).contains(&self.connections_max) {
            wrong.push("GATEWAY_CONNECTIONS_MAX must be 1 to 65536".to_owned());
        }
        if !(1..=self.connections_max).contains(&self.strangers_max) {
            wrong.push("GATEWAY_STRANGERS_MAX must be 1 to GATEWAY_CONNECTIONS_MAX".to_owned());
        }
        let each = self.connections_each_max;
        if each.is_some_and(|each| !(1..=self.connections_max).contains(&each)) {
            wrong.push(
                "GATEWAY_CONNECTIONS_EACH_MAX must be 1 to GATEWAY_CONNECTIONS_MAX".to_owned(),
            );
        }
        if !(16..=65_536).contains(&self.bodies_max_mib) {
            wrong.push("GATEWAY_BODIES_MAX_MIB must be 16 to 65536".to_owned());
        }
        if !(16..=65_536).contains(&self.answers_max_mib) {
            wrong.push("GATEWAY_ANSWERS_MAX_MIB must be 16 to 65536".to_owned());
        }
        if !(1..=65_536).contains(&self.streams_max) {
            wrong.push("GATEWAY_STREAMS_MAX must be 1 to 65536".to_owned());
        }
        if !(1..=self.streams_max).contains(&self.streams_each_max) {
            wrong.push("GATEWAY_STREAMS_EACH_MAX must be 1 to GATEWAY_STREAMS_MAX".to_owned());
        }
        if !(1..=33_554_432).contains(&self.files_bytes_max) {
            wrong.push("GATEWAY_FILES_BYTES_MAX must be 1 to 33554432".to_owned());
        }
        let leads = |url: &String| {
            (url.starts_with("https://") || url.starts_with("http://"))
                && url.contains("{trace_id}")
        };
        if !self.trace_url.as_ref().is_none_or(leads) {
            wrong.push(
                "GATEWAY_TRACE_URL must be a URL of http or https with {trace_id} in it".to_owned(),
            );
        }
        if !(1..=64).contains(&self.read_connections) {
            wrong.push("GATEWAY_READ_CONNECTIONS must be 1 to 64".to_owned());
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(ConfigError(wrong))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        config: Config,
    }

    fn wrong(flags: &[&str]) -> Vec<String> {
        let own = ["gateway", "--database-url", "postgres://h/d"];
        let flags = Flags::try_parse_from(own.iter().chain(flags)).map(|flags| flags.config);
        let checked = flags.map(|config| config.check());
        let Ok(checked) = checked else {
            return vec!["no such flag".to_owned()];
        };
        checked
            .err()
            .map(|ConfigError(wrong)| wrong)
            .unwrap_or_default()
    }

    #[test]
    fn nobody_is_let_in_unasked_from_another_machine() {
        assert!(wrong(&[]).is_empty());
        assert!(wrong(&["--auth", "none"]).is_empty());
        assert!(wrong(&["--auth", "none", "--listen", "[::1]:8233"]).is_empty());
        for outside in ["0.0.0.0:8233", "10.0.0.1:8233", "[::]:8233"] {
            let said = wrong(&["--auth", "none", "--listen", outside]);
            assert_eq!(said.len(), 1, "{outside}");
            assert!(wrong(&["--listen", outside]).is_empty());
        }
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let said = wrong(&[
            "--connections-max",
            "0",
            "--strangers-max",
            "5",
            "--streams-max",
            "5",
            "--streams-each-max",
            "6",
            "--files-bytes-max",
            "0",
            "--read-connections",
            "0",
        ]);
        assert_eq!(said.len(), 5, "{said:?}");
    }
}
