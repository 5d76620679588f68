//! The tools, the controls, the breakers, the learned timeouts and the MCP servers as this process knows them: read at the start,
//! then what is new within a second.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, RwLock, RwLockWriteGuard},
    time::Duration,
};

use futures_util::StreamExt;
use sqlx::{PgConnection, PgExecutor, PgPool};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    breaker::Breakers,
    bus::connect::Bus,
    controls::Controls,
    ids::{QueueName, ServerName, ToolName},
    manifest::{McpServer, Visibility},
    store::{
        StoreError, breakers, controls, mcp_servers, timeouts,
        tools::{self, Change, Revisions},
    },
    telemetry::report,
};

/// Every version of every tool that this process can read, which are retired, and the controls. Cheap to clone; clones share
/// the state.
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<RwLock<Tools>>);

#[derive(Debug, Default)]
struct Tools {
    /// The number of quarantines when they were read.
    quarantines: i32,
    rev: i64,
    tools: HashMap<ToolName, Versions>,
    /// The revision of the controls when they were read.
    control_rev: i64,
    controls: Arc<Controls>,
    /// The revision of the breakers when they were read.
    breaker_rev: i64,
    breakers: Arc<Breakers>,
    /// The revision of the learned timeouts when they were read.
    timeout_rev: i64,
    /// By tool and version.
    timeouts: HashMap<ToolName, HashMap<i32, Duration>>,
    /// The revision of the MCP servers when they were read.
    mcp_rev: i64,
    mcp_servers: HashMap<ServerName, Arc<McpServer>>,
}

/// The versions of one tool.
#[derive(Debug, Default)]
struct Versions {
    by_number: BTreeMap<i32, Arc<Tool>>,
    /// This version and those before it are retired; 0: none is.
    retired_up_to: i32,
}

impl Versions {
    fn newest(&self) -> Option<&Arc<Tool>> {
        self.by_number.last_key_value().map(|(_, tool)| tool)
    }

    fn is_retired(&self, tool: &Tool) -> bool {
        tool.manifest.version <= self.retired_up_to
    }
}

/// What a caller finds under the name of a tool, and perhaps a version.
#[derive(Debug)]
pub enum Lookup {
    /// It takes new calls.
    Offered(Arc<Tool>),
    /// It exists, and takes no new calls.
    Retired(Arc<Tool>),
    /// The tool exists, that version does not.
    NoSuchVersion(i32),
    /// The tool does not exist.
    NoSuchTool,
}

impl Registry {
    /// How often new versions are looked for, even without the bell.
    pub const POLL: Duration = Duration::from_secs(1);

    /// The tool for a new call that asks for this version, or for none.
    pub fn look_up(&self, tool: &ToolName, version: Option<i32>) -> Lookup {
        self.read(|known| {
            let Some(versions) = known.tools.get(tool) else {
                return Lookup::NoSuchTool;
            };
            let found = match version {
                None => versions.newest(),
                Some(version) => versions.by_number.get(&version),
            };
            match (found, version) {
                (Some(tool), _) if versions.is_retired(tool) => Lookup::Retired(Arc::clone(tool)),
                (Some(tool), _) => Lookup::Offered(Arc::clone(tool)),
                (None, Some(version)) if !versions.by_number.is_empty() => {
                    Lookup::NoSuchVersion(version)
                }
                (None, _) => Lookup::NoSuchTool,
            }
        })
    }

    /// The newest version, retired or not: for calls of the fleet itself, such as a probe.
    pub fn current(&self, tool: &ToolName) -> Option<Arc<Tool>> {
        self.read(|known| known.tools.get(tool)?.newest().map(Arc::clone))
    }

    /// This version, retired or not: a call stays with the one it was accepted with.
    pub fn version(&self, tool: &ToolName, version: i32) -> Option<Arc<Tool>> {
        self.read(|known| {
            let versions = known.tools.get(tool)?;
            versions.by_number.get(&version).map(Arc::clone)
        })
    }

    /// Whether the calls of this version tell their session nothing. Of one that is not known here: no.
    pub fn is_hidden(&self, tool: &str, version: i32) -> bool {
        self.read(|known| {
            let versions = known.tools.get(tool);
            let known = versions.and_then(|versions| versions.by_number.get(&version));
            known.is_some_and(|known| known.manifest.visibility == Visibility::Hidden)
        })
    }

    /// Whether it has any version.
    pub fn knows(&self, tool: &ToolName) -> bool {
        self.current(tool).is_some()
    }

    /// Whether calls of this tool still meet its breaker for this target: its newest version takes calls, has a breaker and goes there.
    pub fn meets_breaker(&self, tool: &ToolName, target: &str) -> bool {
        let Lookup::Offered(newest) = self.look_up(tool, None) else {
            return false;
        };
        newest.manifest.breaker.is_some() && newest.manifest.executor.has_target(target)
    }

    /// Whether calls of any tool meet a breaker.
    pub fn has_breakers(&self) -> bool {
        self.read(|known| {
            let mut newest = known.tools.values().filter_map(Versions::newest);
            newest.any(|tool| tool.manifest.breaker.is_some())
        })
    }

    /// The queues of every version that workers run: a call stays with the version it was accepted with.
    pub fn queues(&self) -> BTreeSet<QueueName> {
        self.read(|known| {
            let versions = known.tools.values();
            let versions = versions.flat_map(|versions| versions.by_number.values());
            let run = versions.filter(|tool| !tool.manifest.is_run_by_client());
            run.map(|tool| tool.manifest.queue.clone()).collect()
        })
    }

    /// Whether any version of any tool has a cache.
    pub fn has_caches(&self) -> bool {
        self.read(|known| {
            let versions = known.tools.values();
            let mut tools = versions.flat_map(|versions| versions.by_number.values());
            tools.any(|tool| tool.manifest.cache.is_some())
        })
    }

    /// Whether the newest version of any tool has a policy.
    pub fn has_policies(&self) -> bool {
        self.read(|known| {
            let mut newest = known.tools.values().filter_map(Versions::newest);
            newest.any(|tool| tool.manifest.policy.is_some())
        })
    }

    /// The newest version of every tool, retired or not: retired ones may have open calls.
    pub fn all_current(&self) -> Vec<Arc<Tool>> {
        self.read(|known| {
            let newest = known.tools.values().filter_map(Versions::newest);
            newest.map(Arc::clone).collect()
        })
    }

    /// The newest version of every tool that takes new calls.
    pub fn all_offered(&self) -> Vec<Arc<Tool>> {
        self.read(|known| {
            let newest = known
                .tools
                .values()
                .filter_map(|versions| versions.newest().filter(|tool| !versions.is_retired(tool)));
            newest.map(Arc::clone).collect()
        })
    }

    /// The controls that hold.
    pub fn controls(&self) -> Arc<Controls> {
        self.read(|known| Arc::clone(&known.controls))
    }

    /// The breakers, as they were read last.
    pub fn breakers(&self) -> Arc<Breakers> {
        self.read(|known| Arc::clone(&known.breakers))
    }

    /// The newest version of an MCP server.
    pub fn mcp_server(&self, name: &ServerName) -> Option<Arc<McpServer>> {
        self.read(|known| known.mcp_servers.get(name).map(Arc::clone))
    }

    /// Knows a server without a ledger that has it: for executors by themselves.
    #[must_use]
    pub fn with_mcp_server(self, server: McpServer) -> Self {
        let name = server.name.clone();
        self.write().mcp_servers.insert(name, Arc::new(server));
        self
    }

    /// The timeout that the fleet has learned for this version; `None`: none yet.
    pub fn learned_timeout(&self, tool: &ToolName, version: i32) -> Option<Duration> {
        self.read(|known| known.timeouts.get(tool)?.get(&version).copied())
    }

    /// Reads what is new. A version that this program cannot read is left out and logged.
    ///
    /// After lost writes everything is read anew: tools may be gone, and revisions are used again.
    ///
    /// # Errors
    ///
    /// Postgres does not answer.
    pub async fn refresh(&self, pool: &PgPool) -> Result<(), StoreError> {
        let now = tools::revisions(pool).await?;
        if now.quarantines == self.read(|tools| tools.quarantines) {
            return self.read_new(pool, now).await;
        }
        let anew = Self(Arc::new(RwLock::new(Tools {
            quarantines: now.quarantines,
            ..Tools::default()
        })));
        anew.read_new(pool, now).await?;
        let anew = std::mem::take(&mut *anew.write());
        *self.write() = anew;
        Ok(())
    }

    async fn read_new(&self, pool: &PgPool, now: Revisions) -> Result<(), StoreError> {
        loop {
            let rows = tools::since(pool, self.read(|tools| tools.rev)).await?;
            if rows.is_empty() {
                // Last, so that the tools are known whatever becomes of the controls.
                self.read_controls(pool, now.controls).await?;
                self.read_breakers(pool, now.breakers).await?;
                self.read_timeouts(pool, now.timeouts).await?;
                return self.read_mcp_servers(pool, now.mcp_servers).await;
            }
            for (rev, change) in rows {
                match change {
                    Change::Applied(manifest) => self.add(rev, &manifest),
                    Change::Retired(tool, version) => self.retire(rev, &tool, version),
                }
            }
        }
    }

    /// Reads the controls where their revision has moved, or where one of those that are known is over.
    async fn read_controls(&self, pool: &PgPool, rev: i64) -> Result<(), StoreError> {
        let now = Instant::now();
        let is_due = |known: &Tools| {
            known.control_rev != rev || known.controls.next_end().is_some_and(|end| end <= now)
        };
        if !self.read(is_due) {
            return Ok(());
        }
        let controls = Arc::new(controls::holding(pool).await?);
        let mut known = self.write();
        // Another refresh may have read later ones meanwhile; after lost writes everything starts anew.
        if known.control_rev <= rev {
            known.control_rev = rev;
            known.controls = controls;
        }
        Ok(())
    }

    /// Reads what is new of the breakers alone, on this connection: so it waits for none of a pool, which may have to be opened first.
    ///
    /// # Errors
    ///
    /// Postgres does not answer.
    pub async fn refresh_breakers(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let now = tools::revisions(&mut *connection).await?;
        // After lost writes everything is read anew, by the next refresh.
        if now.quarantines != self.read(|tools| tools.quarantines) {
            return Ok(());
        }
        self.read_breakers(connection, now.breakers).await
    }

    /// Reads the breakers where their revision has moved. That one is due is known without a look.
    async fn read_breakers(&self, ledger: impl PgExecutor<'_>, rev: i64) -> Result<(), StoreError> {
        if self.read(|known| known.breaker_rev == rev) {
            return Ok(());
        }
        let breakers = Arc::new(breakers::known(ledger).await?);
        let mut known = self.write();
        if known.breaker_rev <= rev {
            known.breaker_rev = rev;
            known.breakers = breakers;
        }
        Ok(())
    }

    /// Reads the learned timeouts where their revision has moved.
    async fn read_timeouts(&self, pool: &PgPool, rev: i64) -> Result<(), StoreError> {
        if self.read(|known| known.timeout_rev == rev) {
            return Ok(());
        }
        let timeouts = timeouts::learned(pool).await?;
        let mut known = self.write();
        if known.timeout_rev <= rev {
            known.timeout_rev = rev;
            known.timeouts = timeouts;
        }
        Ok(())
    }

    /// Reads the MCP servers where their revision has moved: never in a fleet that has none.
    async fn read_mcp_servers(&self, pool: &PgPool, rev: i64) -> Result<(), StoreError> {
        if self.read(|known| known.mcp_rev) == rev {
            return Ok(());
        }
        let servers = servers::read(&mcp_servers::newest(pool).await?);
        let mut known = self.write();
        if known.mcp_rev <= rev {
            (known.mcp_rev, known.mcp_servers) = (rev, servers);
        }
        Ok(())
    }

    fn add(&self, rev: i64, manifest: &str) {
        let tool = Tool::read(manifest);
        if let Err(why) = &tool {
            tracing::warn!(
                rev,
                why,
                "a tool version cannot be read by this program and is left out"
            );
        }
        let mut known = self.write();
        known.rev = known.rev.max(rev);
        if let Ok(tool) = tool {
            let (name, version) = (tool.manifest.name.clone(), tool.manifest.version);
            let versions = known.tools.entry(name).or_default();
            versions.by_number.insert(version, Arc::new(tool));
        }
    }

    fn retire(&self, rev: i64, tool: &str, version: i32) {
        let mut known = self.write();
        known.rev = known.rev.max(rev);
        // An unreadable name belongs to a tool that this program has left out.
        if let Ok(tool) = tool.parse() {
            let versions = known.tools.entry(tool).or_default();
            versions.retired_up_to = versions.retired_up_to.max(version);
        }
    }

    /// Keeps the registry up to date until `stop`: at the bell, and once a second without it.
    pub async fn keep_fresh(self, pool: PgPool, bus: Bus, stop: CancellationToken) {
        let mut bell = match bus.client.subscribe(bus.subjects.control_changed()).await {
            Ok(bell) => Some(bell),
            Err(error) => {
                tracing::warn!(%error, "cannot listen for changed tools and controls; looking once a second instead");
                None
            }
        };
        loop {
            let rung = async {
                let rung = match bell.as_mut() {
                    Some(bell) => bell.next().await.is_some(),
                    None => false,
                };
                // The bell is gone; the poll goes on without it.
                if !rung {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = rung => {}
                () = tokio::time::sleep(Self::POLL) => {}
            }
            if let Err(error) = self.refresh(&pool).await {
                tracing::debug!(
                    error = report(&error),
                    "tools and controls were not refreshed; going on with the ones known"
                );
            }
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tools> {
        self.0
            .write()
            .expect("no thread panics while holding the registry")
    }

    fn read<T>(&self, of: impl FnOnce(&Tools) -> T) -> T {
        of(&self
            .0
            .read()
            .expect("no thread panics while holding the registry"))
    }
}

mod servers;
#[cfg(test)]
mod tests;
mod tool;

pub use self::tool::Tool;
