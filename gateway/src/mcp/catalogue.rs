//! What the gateway knows of tools when it takes a call over MCP or of a vendor's client: how each may be repeated, what its
//! answers are made of, and what is spoken to it.
//!
//! It is as the dispatchers said within the last second, and decides nothing that the door does not decide again: who has it from before a
//! change gets the door's refusal.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use fleet::{
    definitions::Format,
    ids::{Label, ToolName},
    manifest::{ChatProtocol, Manifest, OverMcp, TaskUse},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tokio::{sync::Mutex, time::Instant};

use super::{key_argument, mirrored::unmirrored};
use crate::{
    ask::Dispatchers,
    body::aside,
    listed::{listed, tools},
    refusal::Refused,
};

/// How old it may be.
const AGE_MAX: Duration = Duration::from_secs(1);
/// The same for a tool that it does not have: one that was just applied is found soon, and made-up names cost few questions.
const ABSENT_AGE_MAX: Duration = Duration::from_millis(200);

/// Of all tools, listed for models or not. It has an entry for each tool of the fleet and for no other.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    last: std::sync::Mutex<LastLook>,
    /// Held while somebody asks: one question serves all who wait for one, and who needs none does not wait.
    asking: Mutex<()>,
}

/// What came of the last questions.
#[derive(Debug, Default)]
struct LastLook {
    seen: Option<AsSeen>,
    /// When the last one failed, and why.
    failed: Option<(Instant, Refused)>,
}

impl LastLook {
    /// What it says of a tool to who asks since then; `None`: it has to be asked for.
    fn says(&self, tool: &ToolName, asked: Instant) -> Option<KnownFacts> {
        if let Some(seen) = &self.seen {
            let found = seen.tools.get(tool.as_str());
            let age_max = match found {
                Some(_) => AGE_MAX,
                None => ABSENT_AGE_MAX,
            };
            // Who asked while somebody else was asking has the answer, however long that took.
            if seen.at >= asked || asked.duration_since(seen.at) < age_max {
                return Some(Ok(found.cloned()));
            }
        }
        // Else each would wait for a failure of its own, one after the other.
        let failed = self.failed.as_ref().filter(|(at, _)| *at >= asked);
        failed.map(|(_, refused)| Err(refused.clone()))
    }
}

/// Of one tool, where there is one.
type KnownFacts = Result<Option<Arc<ToolFacts>>, Refused>;

#[derive(Debug)]
struct AsSeen {
    /// When it was asked for.
    at: Instant,
    tools: HashMap<String, Arc<ToolFacts>>,
}

/// What is known of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolFacts {
    /// Whether it may change something.
    pub(super) writes: bool,
    /// Whether the door makes a key of the arguments of its calls.
    pub(super) has_own_keys: bool,
    /// The argument that names the intention, at a tool that writes.
    pub(super) key_argument: String,
    /// Whether its results are made of blocks.
    pub(super) is_content: bool,
    /// When its calls become tasks.
    pub(super) task: TaskUse,
    /// Whether a probe looks into its doubts.
    pub(super) has_probe: bool,
    /// How long a call is known from its acceptance, at least, unless its caller gives it less time.
    pub(super) kept: Duration,
    /// Of a model, what requests to it speak.
    pub(crate) protocol: Option<ChatProtocol>,
}

impl ToolFacts {
    /// How long the calls of a tool are known of which nothing else is known.
    pub(super) const KEPT: Duration = Manifest::KEY_RETENTION_MIN;
}

impl Default for ToolFacts {
    /// Of a tool that may write, and says nothing else.
    fn default() -> Self {
        Self {
            writes: true,
            has_own_keys: false,
            key_argument: String::new(),
            is_content: false,
            task: TaskUse::default(),
            has_probe: false,
            kept: Self::KEPT,
            protocol: None,
        }
    }
}

impl Catalogue {
    /// What is known of this tool; `None`: there is none of that name. Everybody who asks meanwhile waits for one question.
    ///
    /// # Errors
    ///
    /// The dispatchers do not answer.
    pub(crate) async fn facts(
        &self,
        dispatchers: &Dispatchers,
        tenant: &Label,
        tool: &ToolName,
    ) -> KnownFacts {
        self.known_or(tool, look(dispatchers, tenant)).await
    }

    /// What is known of this tool, or what this look finds, which nobody takes where another one is under way or has just been.
    async fn known_or(
        &self,
        tool: &ToolName,
        look: impl Future<Output = Result<AsSeen, Refused>>,
    ) -> KnownFacts {
        let asked = Instant::now();
        if let Some(known) = self.last().says(tool, asked) {
            return known;
        }
        let _asking = self.asking.lock().await;
        if let Some(known) = self.last().says(tool, asked) {
            return known;
        }
        let looked = look.await;
        let mut last = self.last();
        match looked {
            Ok(seen) => {
                let found = seen.tools.get(tool.as_str()).cloned();
                last.seen = Some(seen);
                Ok(found)
            }
            Err(refused) => {
                last.failed = Some((Instant::now(), refused.clone()));
                Err(refused)
            }
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, LastLook> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn look(dispatchers: &Dispatchers, tenant: &Label) -> Result<AsSeen, Refused> {
    let at = Instant::now();
    let bytes = listed(dispatchers, tenant, Format::Full).await?;
    let tools = aside(bytes.len(), move || read(&bytes)).await??;
    Ok(AsSeen { at, tools })
}

fn read(listing: &[u8]) -> Result<HashMap<String, Arc<ToolFacts>>, Refused> {
    let definitions = tools(listing)?;
    let facts = definitions
        .iter()
        .filter_map(|definition| facts_of(definition));
    Ok(facts.collect())
}

/// Of a definition in the format `full`.
fn facts_of(definition: &RawValue) -> Option<(String, Arc<ToolFacts>)> {
    #[derive(Deserialize)]
    struct FullDefinition {
        name: String,
        effect: String,
        key: String,
        #[serde(default)]
        output: Option<String>,
        #[serde(default)]
        mcp: OverMcp,
        #[serde(default)]
        probed: bool,
        #[serde(default)]
        deadline_ms: u64,
        #[serde(default)]
        key_retention_ms: u64,
        #[serde(default)]
        protocol: Option<String>,
        input_schema: Value,
    }

    let read: FullDefinition = serde_json::from_str(definition.get()).ok()?;
    let writes = read.effect != "read";
    let facts = ToolFacts {
        writes,
        has_own_keys: read.key == "from_arguments",
        key_argument: match writes {
            true => {
                // As it is shown.
                let mut shown = read.input_schema;
                unmirrored(&mut shown);
                key_argument::name(&shown)
            }
            false => String::new(),
        },
        is_content: read.output.as_deref() == Some("content"),
        task: read.mcp.task,
        has_probe: read.probed,
        kept: Duration::from_millis(read.deadline_ms.saturating_add(read.key_retention_ms))
            .max(ToolFacts::KEPT),
        protocol: read.protocol.and_then(|word| word.parse().ok()),
    };
    Some((read.name, Arc::new(facts)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::refusal::Repeatable;

    /// So many callers ask at once, and the question is answered when all of them wait. What each was told, and how many questions it took.
    async fn at_once(
        catalogue: &Catalogue,
        callers: usize,
        answer: impl Fn() -> Result<HashMap<String, Arc<ToolFacts>>, Refused>,
    ) -> (Vec<KnownFacts>, usize) {
        let (questions, all_wait) = (AtomicUsize::new(0), CancellationToken::new());
        let tool = "look".parse().unwrap();
        let look = async || {
            questions.fetch_add(1, Ordering::Relaxed);
            let at = Instant::now();
            all_wait.cancelled().await;
            answer().map(|tools| AsSeen { at, tools })
        };
        let asking = (0..callers).map(|_| catalogue.known_or(&tool, look()));
        // All are polled once before this is.
        let (told, ()) = tokio::join!(join_all(asking), async { all_wait.cancel() });
        (told, questions.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_make_one_question_and_an_error_is_of_those_alone() {
        let catalogue = Catalogue::default();
        let facts = || HashMap::from([("look".to_owned(), Arc::new(ToolFacts::default()))]);
        let refused = || Err(Refused::no_answer(Repeatable::Always));
        let (told, questions) = at_once(&catalogue, 30, refused).await;
        assert_eq!((told.len(), questions), (30, 1));
        assert!(told.iter().all(Result::is_err));
        // Whoever comes later asks anew.
        tokio::time::advance(Duration::from_millis(1)).await;
        let (told, questions) = at_once(&catalogue, 30, || Ok(facts())).await;
        assert_eq!((told.len(), questions), (30, 1));
        let is_there = |one: &KnownFacts| one.as_ref().is_ok_and(Option::is_some);
        assert!(told.iter().all(is_there));
        // And nobody who comes within a second.
        tokio::time::advance(Duration::from_millis(999)).await;
        let (told, questions) = at_once(&catalogue, 30, refused).await;
        assert_eq!(questions, 0);
        assert!(told.iter().all(is_there));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_not_there_is_believed_for_a_moment_and_a_tool_for_a_second() {
        let tools = [("look".to_owned(), Arc::new(ToolFacts::default()))];
        let last = LastLook {
            seen: Some(AsSeen {
                at: Instant::now(),
                tools: tools.into(),
            }),
            failed: None,
        };
        let says = |tool: &str| last.says(&tool.parse().unwrap(), Instant::now());
        for (after_ms, tool, nothing) in [(199, true, true), (1, true, false), (799, true, false)] {
            tokio::time::advance(Duration::from_millis(after_ms)).await;
            assert_eq!(says("look").is_some(), tool, "{after_ms}");
            assert_eq!(says("nothing").is_some(), nothing, "{after_ms}");
        }
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(says("look").is_none());
    }

    #[test]
    fn what_is_known_of_a_tool_is_what_its_definition_says() {
        let listing = json!({"tools": [
            {"name": "look", "effect": "read", "key": "optional", "input_schema": {}},
            {"name": "draw", "effect": "idempotent", "key": "optional", "input_schema": {}, "output": "content"},
            {"name": "slow", "effect": "read", "key": "optional", "input_schema": {}, "mcp": {"task": "required"},
             "probed": true, "deadline_ms": 5_000, "key_retention_ms": 86_400_000},
            {"name": "charge", "effect": "once", "key": "from_arguments", "input_schema": {"properties": {"idempotency_key": {}}}},
            {"name": "later", "effect": "of_a_later_release", "key": "other", "input_schema": {}},
            {"odd": 1},
        ]});
        let read = read(listing.to_string().as_bytes()).unwrap();
        assert_eq!(read.len(), 5);
        let of = |name: &str| (*read[name]).clone();
        assert!(!of("look").writes && of("draw").writes && of("later").writes);
        let slow = of("slow");
        assert!(slow.has_probe && slow.task == TaskUse::Required);
        assert_eq!(slow.kept, Duration::from_secs(24 * 3_600 + 5));
        assert_eq!(
            (of("look").task, of("look").kept),
            (TaskUse::Optional, ToolFacts::KEPT)
        );
        assert!(of("draw").is_content && !of("charge").is_content);
        assert!(of("charge").has_own_keys && !of("draw").has_own_keys);
        assert_eq!(of("charge").key_argument, "toolfleet_idempotency_key");
    }
}
