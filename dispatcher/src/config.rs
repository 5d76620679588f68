//! The settings of a dispatcher.

use clap::Args;
use fleet::{
    config::{BusArgs, ConfigError, HttpArgs, ParentArgs, StoreArgs},
    store::files::FileQuota,
    telemetry::TelemetryOptions,
};

use crate::{
    quota::{Limits, TenantQuotas},
    replies::Replies,
};

/// The settings of a dispatcher.
#[derive(Debug, Clone, Args)]
pub struct Config {
    /// Where the ledger is.
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
    /// A label for logs and connections. The process itself is identified by a random id.
    #[arg(long, env = "TOOLFLEET_NAME", default_value = "dispatcher")]
    pub name: String,
    /// Requests in hand, worked on or waiting for their answer; further ones are refused as `overloaded`. Too few refuse what
    /// would fit, too many cost memory: each holds up to 256 KiB. A batch counts as many as it has calls. The last quarter is
    /// for tenants that have less than their equal share.
    #[arg(long, env = "DISPATCHER_REQUESTS_MAX", default_value_t = 16_384)]
    pub requests_max: usize,
    /// Bytes of the requests in hand, with those that wait for their answer; further requests are refused as `overloaded`. Too
    /// few refuse what would fit, too many cost as much memory. The last quarter is for tenants that have less than their equal
    /// share.
    #[arg(long, env = "DISPATCHER_BYTES_MAX", default_value_t = 1024 * 1024 * 1024)]
    pub bytes_max: usize,
    /// Requests a second that a tenant may send to this dispatcher, and one second's worth of them at once; more are refused as
    /// `rate_limited`. A batch counts as many as it has calls, and a request four more for each millisecond that
    /// it keeps a thread. 0: no limit.
    #[arg(long, env = "DISPATCHER_TENANT_CALLS_PER_SECOND", default_value_t = 0)]
    pub tenant_calls_per_second: u64,
    /// Bytes a second, headers and bodies, that a tenant may send to this dispatcher, and one second's worth of them at once;
    /// more are refused as `rate_limited`. A larger request passes when the tenant has sent nothing for a while. 0: no limit.
    #[arg(long, env = "DISPATCHER_TENANT_BYTES_PER_SECOND", default_value_t = 0)]
    pub tenant_bytes_per_second: u64,
    /// Calls of a queue that a tenant may have under way at a time, handed to NATS or running; more wait, held in the ledger, until
    /// one of them ends. Never more than three quarters of the slots that its workers have. Too few leave slots of workers idle.
    /// Calls of tools with a limit of their own do not count. Set the same for every dispatcher. 0: no limit.
    #[arg(long, env = "DISPATCHER_TENANT_RUNNING", default_value_t = 0)]
    pub tenant_running: u64,
    /// Open calls that a tenant may have at a time, over the whole fleet; more are refused as `quota_exceeded`. Set the same
    /// for every dispatcher. 0: no limit.
    #[arg(long, env = "DISPATCHER_TENANT_QUOTA", default_value_t = 1_000_000)]
    pub tenant_quota: u64,
    /// Tenants with another quota: `acme=5000,beta=100`. 0: no limit.
    #[arg(
        long,
        env = "DISPATCHER_TENANT_QUOTAS",
        default_value = "",
        hide_default_value = true
    )]
    pub tenant_quotas: TenantQuotas,
    /// Files that a tenant may keep at a time, over the whole fleet, those that are being handed in included; more are refused as
    /// `quota_exceeded`. Set the same for every dispatcher. 0: no limit.
    #[arg(long, env = "DISPATCHER_TENANT_FILES", default_value_t = 10_000)]
    pub tenant_files: u64,
    /// Bytes that these files may have together; one that is being handed in counts with the bytes that were announced. They are kept in
    /// Postgres. Set the same for every dispatcher. 0: no limit.
    #[arg(long, env = "DISPATCHER_TENANT_FILE_BYTES", default_value_t = 1024 * 1024 * 1024)]
    pub tenant_file_bytes: u64,
    /// Beginnings of the subjects on which callers are answered, each with a dot at its end; `{tenant}` is the tenant that the
    /// request names: `_INBOX.{tenant}.,_INBOX_operator.`. A request that names another reply subject is dropped.
    #[arg(long, env = "DISPATCHER_REPLIES", default_value = "_INBOX.")]
    pub replies: Replies,
    /// Connections to Postgres for reads, beside the ledger's own four.
    #[arg(long, env = "DISPATCHER_READ_CONNECTIONS", default_value_t = 4)]
    pub read_connections: u32,
    /// Days of history to keep. A whole day is dropped when no open call and no living key needs it. 0 keeps all.
    #[arg(long, env = "DISPATCHER_HISTORY_DAYS", default_value_t = 90)]
    pub history_days: i32,
}

impl Config {
    /// How many open calls each tenant may have.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            default: self.tenant_quota,
            of: self.tenant_quotas.clone(),
        }
    }

    /// How many files each tenant may keep.
    pub(crate) const fn file_quota(&self) -> FileQuota {
        FileQuota {
            files: self.tenant_files,
            bytes: self.tenant_file_bytes,
        }
    }

    /// Whether the settings fit together.
    ///
    /// # Errors
    ///
    /// Every setting that does not fit, at once, by variable name.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut wrong = Vec::new();
        if !(1..=200_000).contains(&self.requests_max) {
            wrong.push("DISPATCHER_REQUESTS_MAX must be 1 to 200000".to_owned());
        }
        if self.bytes_max < 16 * 1024 * 1024 {
            wrong.push("DISPATCHER_BYTES_MAX must be 16777216 or more".to_owned());
        }
        if !(1..=64).contains(&self.read_connections) {
            wrong.push("DISPATCHER_READ_CONNECTIONS must be 1 to 64".to_owned());
        }
        if !(0..=36_500).contains(&self.history_days) {
            wrong.push("DISPATCHER_HISTORY_DAYS must be 0 to 36500".to_owned());
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(ConfigError(wrong))
        }
    }
}
