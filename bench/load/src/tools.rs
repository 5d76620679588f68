//! The tools of the bench: three handlers that only record that they ran, and a statement that inserts a row.

use std::{io, time::Duration};

use anyhow::{Context, bail};
use bytes::Bytes;
use fleet::{
    bus::connect::Bus,
    call::Effect,
    manifest::{self, BreakerSpec, CacheSpec, Manifest, RateLimit},
    store::{
        PgConnection,
        tools::{Applied, apply},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use worker::{Builder, Tool, ToolContext, ToolError, Worker, tool::Settings};

use super::effects::{Effects, Tag};

/// The queue of all of them, so that the bench's workers get no other calls.
pub const QUEUE: &str = "bench";
/// How long a call takes that is to be slow.
const SLOW: Duration = Duration::from_millis(200);
/// The author in the history.
const BY: &str = "bench";
/// Raised with every change of a manifest: an applied version never changes.
const VERSION: i32 = 2;

/// How a call is to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// Its first attempt does nothing and says so.
    NotStarted,
    /// The tool says no.
    Business,
    /// It takes a fifth of a second.
    Slow,
}

impl Fault {
    /// All of them, in the order in which they are mixed.
    pub(crate) const ALL: [Self; 3] = [Self::NotStarted, Self::Business, Self::Slow];

    /// As it is sent.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "not_started",
            Self::Business => "business",
            Self::Slow => "slow",
        }
    }
}

/// What every tool of the bench is given.
#[derive(Debug, Deserialize, JsonSchema)]
struct Args {
    /// Which call of which run it is, 32 hexadecimal digits.
    #[schemars(length(min = 32, max = 32))]
    id: String,
    /// Makes the arguments as large as they are to be.
    #[expect(dead_code, reason = "only its size matters")]
    pad: String,
    /// How large the result is to be, 0 if not said.
    result_bytes: Option<u32>,
    /// How long the call is to take, in milliseconds, 0 if not said.
    takes_ms: Option<u32>,
    /// How the call is to go wrong, if at all.
    fault: Option<Fault>,
}

/// What they answer.
#[derive(Debug, Serialize, JsonSchema)]
struct Done {
    /// As much as was asked for.
    pad: String,
}

async fn run(args: Args, context: ToolContext, effects: &Effects) -> Result<Done, ToolError> {
    let Some(tag) = Tag::parse(&args.id) else {
        return Err(ToolError::business("id is not 32 hexadecimal digits"));
    };
    match args.fault {
        None => {}
        Some(Fault::Slow) => tokio::time::sleep(SLOW).await,
        Some(Fault::Business) => return Err(ToolError::business("the bench asked for a no")),
        Some(Fault::NotStarted) if context.attempt() == 1 => {
            return Err(ToolError::not_started("the bench asked for a retry"));
        }
        Some(Fault::NotStarted) => {}
    }
    if let Some(takes_ms) = args.takes_ms {
        tokio::time::sleep(Duration::from_millis(takes_ms.into())).await;
    }
    effects.happened(tag, context.idempotency_key())?;
    let bytes = usize::try_from(args.result_bytes.unwrap_or_default()).unwrap_or_default();
    Ok(Done {
        pad: "x".repeat(bytes),
    })
}

macro_rules! tool {
    ($type:ident, $name:literal, $effect:expr) => {
        struct $type(Effects);

        impl Tool for $type {
            type Args = Args;
            type Output = Done;
            const NAME: &'static str = $name;
            const VERSION: i32 = VERSION;
            const EFFECT: Effect = $effect;
            const DESCRIPTION: &'static str =
                "Does nothing but note that it ran; `toolfleet bench` measures the fleet with it.";

            fn settings(&self) -> Settings {
                Settings::default().queue(QUEUE)
            }

            async fn call(&self, args: Args, context: ToolContext) -> Result<Done, ToolError> {
                run(args, context, &self.0).await
            }
        }
    };
}

tool!(Read, "bench_read", Effect::Read);
tool!(Idempotent, "bench_idempotent", Effect::Idempotent);
tool!(Once, "bench_once", Effect::Once);

/// A worker with the native tools.
pub(crate) fn builder(effects: &Effects) -> Builder {
    Worker::builder()
        .tool(Read(effects.clone()))
        .tool(Idempotent(effects.clone()))
        .tool(Once(effects.clone()))
}

/// A brake of a tool that never holds a call up here, so that what is measured is what it costs to have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Brake {
    /// A breaker, which stays closed
    Breaker,
    /// A rate limit of 100,000 starts a second
    RateLimit,
    /// A concurrency of 1,000, the most there is
    Concurrency,
}

impl Brake {
    const ALL: [Self; 3] = [Self::Breaker, Self::RateLimit, Self::Concurrency];

    /// The field of the manifest.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Breaker => "breaker",
            Self::RateLimit => "rate_limit",
            Self::Concurrency => "concurrency",
        }
    }

    fn put_on(self, manifest: &mut Manifest) {
        match self {
            Self::Breaker => manifest.breaker = Some(BreakerSpec::default()),
            Self::Concurrency => manifest.concurrency = Some(1_000),
            Self::RateLimit => {
                manifest.rate_limit = Some(RateLimit {
                    calls: Some(100_000),
                    per: Some(Duration::from_secs(1)),
                    burst: Some(10_000),
                    ..RateLimit::default()
                });
            }
        }
    }
}

/// Which of the tools with one effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Of transactions a statement of its own, of others the plain one.
    Faulty,
    /// Keeps its answers.
    Cached,
    /// The plain one with a brake.
    Braked(Brake),
}

impl Kind {
    /// What a report says of it.
    pub(crate) const fn suffix(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Faulty => None,
            Self::Cached => Some("cached"),
            Self::Braked(brake) => Some(brake.as_str()),
        }
    }
}

/// The name of the tool with this effect.
pub(crate) fn name(effect: Effect, kind: Kind) -> String {
    let suffix = match (kind, effect) {
        (Kind::Faulty, Effect::Transaction) => Some("faulty"),
        (kind, _any) => kind.suffix(),
    };
    match suffix {
        Some(suffix) => format!("bench_{effect}_{suffix}"),
        None => format!("bench_{effect}"),
    }
}

/// The name of a copy of that tool, from 1; of the tool itself for 0.
pub(crate) fn copy_name(original: &str, copy: u32) -> String {
    match copy {
        0 => original.to_owned(),
        copy => format!("{original}_{copy}"),
    }
}

/// The tool of a queue without workers.
pub(crate) const PARKED: &str = "bench_parked";

/// The manifests: a tool for each effect, the one without workers, and of those that are `called` what has a brake and so many
/// copies.
pub(crate) fn manifests(
    copies: u32,
    called: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<Manifest>> {
    let native = builder(&Effects::default());
    let mut manifests = native.manifests().to_vec();
    for kind in [Kind::Plain, Kind::Faulty] {
        manifests.push(transaction(kind)?);
    }
    manifests.push(cached(&manifests[0])?);
    for brake in Brake::ALL {
        for effect in Effect::ALL {
            let (plain, braked) = (
                name(*effect, Kind::Plain),
                name(*effect, Kind::Braked(brake)),
            );
            let one = manifests.iter().find(|one| one.name.as_str() == plain);
            if let Some(one) = one.filter(|_plain| called(&braked)) {
                let mut one = Manifest {
                    name: braked.parse().context("name a tool")?,
                    ..one.clone()
                };
                brake.put_on(&mut one);
                manifests.push(one);
            }
        }
    }
    let originals = manifests.clone();
    manifests.push(parked(&originals[0])?);
    for original in originals.iter().filter(|one| called(one.name.as_str())) {
        for copy in 1..=copies {
            let name = copy_name(original.name.as_str(), copy);
            manifests.push(Manifest {
                name: name.parse().context("name a copy")?,
                ..original.clone()
            });
        }
    }
    Ok(manifests)
}

/// The same handler, whose answers are kept for longer than anything is measured.
fn cached(read: &Manifest) -> anyhow::Result<Manifest> {
    let name = name(read.effect, Kind::Cached);
    Ok(Manifest {
        name: name.parse().context("name a tool")?,
        cache: Some(CacheSpec {
            ttl: CacheSpec::TTL_MAX,
        }),
        ..read.clone()
    })
}

fn parked(read: &Manifest) -> anyhow::Result<Manifest> {
    Ok(Manifest {
        name: PARKED.parse().context("name a tool")?,
        queue: PARKED.parse().context("name a queue")?,
        deadline: Manifest::DEADLINE_MAX,
        ..read.clone()
    })
}

/// The statement is a bare insert. The faulty version is a statement of its own, which takes longer to plan.
fn transaction(kind: Kind) -> anyhow::Result<Manifest> {
    let name = name(Effect::Transaction, kind);
    let faulty = kind == Kind::Faulty;
    let insert = if faulty {
        "INSERT INTO toolfleet_bench.effects (id) SELECT $1::uuid WHERE CASE $3::text \
         WHEN 'business' THEN 1 / (length($3::text) - 8) = 0 \
         WHEN 'slow' THEN pg_sleep(0.2) IS NOT NULL ELSE true END"
    } else {
        "INSERT INTO toolfleet_bench.effects (id) VALUES ($1)"
    };
    let fault = if faulty { ", \"{fault}\"" } else { "" };
    let text = format!(
        r#"
name: {name}
version: {VERSION}
description: Inserts a row in a table of the bench; `toolfleet bench` measures the fleet with it.
effect: transaction
queue: {QUEUE}
input_schema:
  type: object
  properties:
    id: {{ type: string, minLength: 32, maxLength: 32, description: "Which call of which run it is, 32 hexadecimal digits" }}
    pad: {{ type: string, description: Makes the arguments as large as they are to be }}
    result_bytes: {{ type: integer, minimum: 0, maximum: 1000000, description: How large the result is to be }}
    fault: {{ type: string, enum: [not_started, business, slow], description: How the call is to go wrong }}
  required: [id, pad]
  additionalProperties: false
executor:
  sql:
    database: fleet
    statement: {insert} RETURNING repeat('x', coalesce($2::int, 0)) AS pad
    params: ["{{id}}", "{{result_bytes}}"{fault}]
"#
    );
    match manifest::parse(&text) {
        Ok(manifest) => Ok(manifest),
        Err(problems) => bail!("the manifest of {name}: {problems:?}"),
    }
}

/// Applies them as an operator would, and rings the bell.
pub(crate) async fn apply_all(
    connection: &mut PgConnection,
    bus: &Bus,
    manifests: &[Manifest],
) -> anyhow::Result<()> {
    for manifest in manifests {
        match apply(&mut *connection, manifest, BY).await? {
            Applied::Created | Applied::Unchanged => {}
            Applied::Conflict
            | Applied::ProbeUnfit
            | Applied::PreviewUnfit(_)
            | Applied::LimitNamedTwice
            | Applied::BreakerForced
            | Applied::FallbackUnfit(_) => bail!(
                "tool {} version {} is there with other content, of another version of this program: \
                 use another database, such as that of --dev",
                manifest.name,
                manifest.version
            ),
        }
    }
    bus.client
        .publish(bus.subjects.control_changed(), Bytes::new())
        .await?;
    bus.client.flush().await.map_err(io::Error::other)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_effect_has_a_tool_and_those_that_are_called_have_copies() {
        let names = |copies| -> Vec<String> {
            let manifests = manifests(copies, |name| name == "bench_once").unwrap();
            manifests.iter().map(|one| one.name.to_string()).collect()
        };
        let alone = names(0);
        for effect in Effect::ALL {
            assert!(alone.contains(&name(*effect, Kind::Plain)), "{alone:?}");
        }
        assert!(alone.contains(&name(Effect::Transaction, Kind::Faulty)));
        assert!(alone.contains(&name(Effect::Read, Kind::Cached)));
        let more = names(2);
        assert_eq!(more.len(), alone.len() + 2);
        assert!(more.contains(&copy_name("bench_once", 2)));
    }

    #[test]
    fn a_copy_is_run_by_the_handler_of_its_original() {
        let manifests = manifests(1, |_name| true).unwrap();
        let of = |name: &str| {
            let found = manifests.iter().find(|one| one.name.as_str() == name);
            found.unwrap().executor.clone()
        };
        assert_eq!(of("bench_once_1"), of("bench_once"));
        assert_eq!(of("bench_read_cached"), of("bench_read"));
        assert_eq!(of("bench_read_cached_1"), of("bench_read"));
        assert_eq!(of("bench_once_breaker"), of("bench_once"));
    }

    #[test]
    fn a_tool_with_a_brake_is_made_where_it_is_called_and_is_otherwise_the_plain_one() {
        let braked = name(Effect::Transaction, Kind::Braked(Brake::RateLimit));
        assert_eq!(braked, "bench_transaction_rate_limit");
        let manifests = manifests(0, |_name| true).unwrap();
        let find = |name: &str| manifests.iter().find(|one| one.name.as_str() == name);
        let (plain, braked) = (find("bench_transaction").unwrap(), find(&braked).unwrap());
        assert!(braked.rate_limit.is_some());
        let without = Manifest {
            name: plain.name.clone(),
            rate_limit: None,
            ..braked.clone()
        };
        assert_eq!(&without, plain);
        for manifest in &manifests {
            let text = serde_json::to_string(manifest).unwrap();
            assert!(manifest::parse(&text).is_ok(), "{text}");
        }
        let uncalled = self::manifests(0, |_name| false).unwrap();
        let has_brake = |one: &Manifest| one.name.as_str().ends_with("breaker");
        assert!(manifests.iter().any(has_brake) && !uncalled.iter().any(has_brake));
    }
}
