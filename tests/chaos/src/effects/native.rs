//! Tools of the worker's own program.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer, ser::Error};
use worker::{Builder, Effect, Tool, ToolContext, ToolError, tool::Settings};

use super::{
    Did, File, HUGE, LATE, Mode, SLOW,
    manifests::{LOSSES, retry},
    script::{Applies, Says, Script, script},
    service::FOR_EVER,
    told::Told,
};

/// The variable that names the file of effects to a worker.
pub const FILE: &str = "CHAOS_EFFECTS_FILE";

/// With the native tools, which append to this file.
pub fn with_tools(builder: Builder, file: File) -> Builder {
    let file = Arc::new(file);
    builder.tool(Charge(Arc::clone(&file))).tool(Look(file))
}

struct Charge(Arc<File>);
struct Look(Arc<File>);

/// What both are asked.
#[derive(Deserialize, JsonSchema)]
struct Asked {
    /// Which of the clients' calls.
    n: u64,
    /// How to behave.
    mode: Mode,
    /// Whatever else there is to say.
    #[expect(dead_code, reason = "nobody reads it")]
    memo: Option<String>,
}

/// What both answer.
#[derive(JsonSchema)]
enum Said {
    Done(u64),
    Garbage,
    Huge,
}

impl Serialize for Said {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Done(n) => serializer.serialize_u64(*n),
            Self::Garbage => Err(S::Error::custom("this is no answer")),
            Self::Huge => serializer.serialize_str(&"x".repeat(HUGE)),
        }
    }
}

impl Tool for Charge {
    type Args = Asked;
    type Output = Said;
    const NAME: &'static str = "native_charge";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Once;
    const DESCRIPTION: &'static str = "Leaves a mark in the file of effects.";

    fn settings(&self) -> Settings {
        settings()
    }

    async fn call(&self, asked: Asked, context: ToolContext) -> Result<Said, ToolError> {
        behave(&self.0, Self::NAME, Self::EFFECT, &asked, &context).await
    }
}

impl Tool for Look {
    type Args = Asked;
    type Output = Said;
    const NAME: &'static str = "native_look";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Looks, and leaves a mark in the file of effects.";

    fn settings(&self) -> Settings {
        settings()
    }

    async fn call(&self, asked: Asked, context: ToolContext) -> Result<Said, ToolError> {
        behave(&self.0, Self::NAME, Self::EFFECT, &asked, &context).await
    }
}

/// On the queue of all other tools: every worker of a run has these.
fn settings() -> Settings {
    Settings::default()
        .queue("default")
        .timeout(Duration::from_secs(2))
        .deadline(Duration::from_mins(10))
        .output_limit(64 * 1024)
        .field("retry", retry())
        .losses(LOSSES)
        .without_output_schema()
}

async fn behave(
    file: &Arc<File>,
    tool: &str,
    effect: Effect,
    asked: &Asked,
    context: &ToolContext,
) -> Result<Said, ToolError> {
    let told = Arc::new(Told {
        tool: tool.to_owned(),
        call: context.call_id().to_string(),
        attempt: context.attempt(),
        key: context.idempotency_key().to_owned(),
        n: asked.n,
        mode: asked.mode,
        remaining: context.remaining(),
    });
    let Script { applies, says } = script(told.mode, told.attempt);
    if says == Says::NotNow {
        return Err(ToolError::not_started("not now: nothing was done"));
    }
    let note = async |did| {
        let (file, told) = (Arc::clone(file), Arc::clone(&told));
        let noted = context.blocking(move || file.note(&told, did)).await?;
        Ok::<(), ToolError>(noted?)
    };
    let writes = effect != Effect::Read;
    note(Did::Started).await?;
    match applies {
        Applies::Now if writes => note(Did::Applied).await?,
        Applies::Never | Applies::Now => {}
        Applies::Late => {
            // It does not listen, and is dropped here or comes through just before.
            tokio::time::sleep(told.remaining + LATE).await;
            note(Did::Applied).await?;
            note(Did::Replied).await?;
            return Ok(Said::Done(told.n));
        }
    }
    match says {
        Says::Nothing => {
            tokio::time::sleep(FOR_EVER).await;
            return Err(ToolError::unknown("nobody ended it"));
        }
        Says::End => panic!("a tool of the chaos run panics on purpose"),
        Says::DoneSlowly => tokio::time::sleep(SLOW).await,
        Says::Done | Says::NotNow | Says::No | Says::Broken | Says::Garbage | Says::Huge => {}
    }
    note(Did::Replied).await?;
    match says {
        Says::Done | Says::DoneSlowly | Says::Nothing | Says::End | Says::NotNow => {
            Ok(Said::Done(told.n))
        }
        Says::No => Err(ToolError::business("not on a Saturday; choose another day")),
        Says::Broken => Err(ToolError::unknown("something broke")),
        Says::Garbage => Ok(Said::Garbage),
        Says::Huge => Ok(Said::Huge),
    }
}
