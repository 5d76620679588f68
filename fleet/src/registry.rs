//! The tools, the controls and the breakers as this process knows them: read at the start, then what is new within a second.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, RwLock, RwLockWriteGuard},
    time::Duration,
};

use futures_util::StreamExt;
use serde_json::value::RawValue;
use sqlx::PgPool;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    arguments::{self, Limits, Schema, SchemaProblem},
    breaker::Breakers,
    bus::connect::Bus,
    call::Language,
    controls::Controls,
    ids::{QueueName, ToolName},
    manifest::Manifest,
    outcome::ToolFailure,
    store::{
        StoreError, breakers, controls,
        tools::{self, Change, Revisions},
    },
    telemetry::report,
    wire::{code::Code, message::Message},
};

/// One version of one tool, with its schemas compiled.
#[derive(Debug)]
pub struct Tool {
    /// What was applied.
    pub manifest: Manifest,
    /// Its input schema, compiled.
    pub schema: Schema,
    /// Its output schema, compiled, if it has one.
    pub output: Option<Schema>,
}

impl Tool {
    /// Why an answer does not fit the tool's `output_schema`; `None` where it fits, or where there is no schema.
    ///
    /// The reason quotes no value of the answer. Takes long for a large answer: do not run it on a thread of the runtime.
    pub fn answer_problem(&self, answer: &RawValue) -> Option<ToolFailure> {
        let schema = self.output.as_ref()?;
        let problem = match arguments::parse_any(answer.get().as_bytes(), &Limits::ANSWER) {
            Ok(value) => {
                let violations = schema.validate(&value);
                if violations.is_empty() {
                    return None;
                }
                violations
                    .without_values(|_everything| true)
                    .summary_of(&Message::fixed("the answer", "结果"))
            }
            Err(error) => error.message,
        };
        let message = Message::new(
            format!(
                "the tool's answer does not fit its output_schema: {}",
                problem.told(Language::En)
            ),
            format!(
                "工具返回的结果不符合它的 output_schema：{}",
                problem.told(Language::Zh)
            ),
        );
        Some(ToolFailure::new(Code::OutputInvalid, message))
    }
}

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

    /// Whether it has any version.
    pub fn knows(&self, tool: &ToolName) -> bool {
        self.current(tool).is_some()
    }

    /// Whether calls of this tool still meet its breaker for this target: its newest version takes calls, has a breaker and goes there.
    pub fn meets_breaker(&self, tool: &ToolName, target: &str) -> bool {
        let Lookup::Offered(newest) = self.look_up(tool, None) else {
            return false;
        };
        newest.manifest.breaker.is_some() && newest.manifest.executor.target() == target
    }

    /// The queues of every version: a call stays with the version it was accepted with.
    pub fn queues(&self) -> BTreeSet<QueueName> {
        self.read(|known| {
            let versions = known.tools.values();
            let versions = versions.flat_map(|versions| versions.by_number.values());
            versions.map(|tool| tool.manifest.queue.clone()).collect()
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
                return self.read_breakers(pool, now.breakers).await;
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

    /// Reads the breakers where their revision has moved. That one is due is known without a look.
    async fn read_breakers(&self, pool: &PgPool, rev: i64) -> Result<(), StoreError> {
        if self.read(|known| known.breaker_rev == rev) {
            return Ok(());
        }
        let breakers = Arc::new(breakers::known(pool).await?);
        let mut known = self.write();
        if known.breaker_rev <= rev {
            known.breaker_rev = rev;
            known.breakers = breakers;
        }
        Ok(())
    }

    fn add(&self, rev: i64, manifest: &str) {
        let tool = read_tool(manifest);
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

fn read_tool(manifest: &str) -> Result<Tool, String> {
    let manifest: Manifest = serde_json::from_str(manifest).map_err(|error| error.to_string())?;
    let first = |problems: Vec<SchemaProblem>| {
        let first = problems.into_iter().next();
        first.map(|problem| problem.message).unwrap_or_default()
    };
    let schema = Schema::compile_input(&manifest.caller_schema()).map_err(first)?;
    let output = manifest.output_schema.as_ref().map(Schema::compile);
    Ok(Tool {
        output: output.transpose().map_err(first)?,
        manifest,
        schema,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(output_schema: serde_json::Value) -> Tool {
        let mut manifest = json!({
            "name": "t", "version": 1, "description": "d", "effect": "read", "input_schema": {"type": "object"},
            "executor": {"http": {"method": "GET", "url": "http://a/"}},
        });
        manifest["output_schema"] = output_schema;
        if manifest["output_schema"].is_null() {
            manifest.as_object_mut().unwrap().remove("output_schema");
        }
        read_tool(&manifest.to_string()).unwrap()
    }

    fn problem(tool: &Tool, answer: &str) -> Option<String> {
        let answer = RawValue::from_string(answer.to_owned()).unwrap();
        let failure = tool.answer_problem(&answer)?;
        assert_eq!(failure.code, Code::OutputInvalid);
        let told = failure.message.english();
        assert!(told.len() <= ToolFailure::MESSAGE_MAX);
        Some(told.to_owned())
    }

    #[test]
    fn only_calls_of_the_newest_version_meet_a_breaker() {
        let registry = Registry(Arc::new(RwLock::new(Tools::default())));
        let look: ToolName = "look".parse().unwrap();
        let meets = |host: &str| registry.meets_breaker(&look, &format!("http://{host}"));
        let add = |version: i32, host: &str, has_breaker: bool| {
            let mut manifest = json!({
                "name": "look", "version": version, "description": "d", "effect": "read", "input_schema": {"type": "object"},
                "executor": {"http": {"method": "GET", "url": format!("http://{host}/")}},
            });
            if has_breaker {
                manifest["breaker"] = json!({});
            }
            registry.add(i64::from(version), &manifest.to_string());
        };
        assert!(!meets("a"), "there is no such tool");
        add(1, "a", true);
        assert_eq!((meets("a"), meets("b")), (true, false));
        add(2, "b", true);
        assert_eq!((meets("a"), meets("b")), (false, true));
        registry.retire(3, "look", 2);
        assert!(!meets("b"), "it takes no calls");
        add(4, "b", false);
        assert!(!meets("b"), "it has no breaker");
    }

    #[test]
    fn an_answer_is_held_against_the_output_schema() {
        let exact = tool(json!({
            "type": "object", "required": ["id"],
            "properties": {"id": {"type": "integer", "maximum": 9_007_199_254_740_992_u64}, "kind": {"enum": ["card", "cash"]}},
        }));
        assert_eq!(problem(&exact, r#"{"id": 9007199254740992}"#), None);
        assert!(problem(&exact, r#"{"id": 9007199254740993}"#).is_some());
        assert!(problem(&exact, r#"{"id": 1, "id": 2}"#).is_some());
        assert!(
            problem(&exact, "null")
                .unwrap()
                .contains("the answer: expected object")
        );
        // Any kind of value can be promised; without a schema every answer is accepted.
        assert_eq!(problem(&tool(json!({"type": "array"})), "[]"), None);
        assert_eq!(problem(&tool(json!(null)), r#"{"id": 1, "id": 2}"#), None);
    }

    #[test]
    fn what_is_wrong_with_an_answer_is_told_without_the_answer() {
        let promised = tool(json!({
            "properties": {
                "a": {"type": "integer"}, "b": {"enum": ["4111-1112"]}, "c": {"type": "string"}, "d": {"minimum": 5},
            },
            "propertyNames": {"maxLength": 3},
        }));
        let answer =
            r#"{"a": "4111-1111", "b": "4111-1111", "c": 41111111, "d": -4111.5, "4111-1111": 1}"#;
        let told = problem(&promised, answer).unwrap();
        for value in ["4111-1111", "41111111", "4111.5", "nearest"] {
            assert!(!told.contains(value), "{told}");
        }
        assert!(
            told.contains("/a: expected integer, found string"),
            "{told}"
        );
    }

    #[test]
    fn a_large_answer_that_is_wrong_everywhere_is_told_shortly() {
        let promised = tool(json!({"type": "array", "items": {"type": "string"}}));
        let answer = format!("[{}1]", "1,".repeat(500_000));
        assert!(
            problem(&promised, &answer)
                .unwrap()
                .contains("found integer")
        );
    }
}
