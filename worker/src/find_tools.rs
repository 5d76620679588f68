//! The fleet's own tool that finds other tools by what they do: `find_tools`.
//!
//! It is applied together with the first model that is told of the fleet's tools, which is told of a few of them; every worker has its
//! handler.

use fleet::{
    call::Effect,
    definitions::{described, for_models},
    ids::Label,
    manifest::FIND_TOOLS,
    registry::Registry,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    relevance::{RankedTools, SaidWords, ToolWords},
    tool::{Settings, Tool, ToolContext, ToolError},
};

/// How many tools an answer has at most.
pub(crate) const FOUND_MAX: usize = 10;

/// Finds tools among those that this process knows.
#[derive(Default)]
pub(crate) struct FindTools(Registry);

impl FindTools {
    /// Among these.
    pub(crate) const fn of(registry: Registry) -> Self {
        Self(registry)
    }
}

/// What it is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedTools {
    /// What the tool should do, in a few words: what is done, and to what, such as "send an invoice".
    #[schemars(length(min = 1, max = 1024))]
    query: String,
}

/// The tools that fit.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FittingTools {
    /// Those that fit best come first; empty: none fits.
    tools: Vec<FittingTool>,
}

/// One of them.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FittingTool {
    name: String,
    description: String,
}

impl Tool for FindTools {
    type Args = WantedTools;
    type Output = FittingTools;
    const NAME: &'static str = FIND_TOOLS;
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Finds more tools. You are shown only some of the tools that there are: when none of yours can do what is asked, call this \
         before you say that it cannot be done. Pass in query what the tool should do, in the words and the language of the user. Gives \
         the names and descriptions of at most 10 tools, which you can call from your next turn on. When nothing is found, try other \
         words once.";

    fn settings(&self) -> Settings {
        Settings::default().queue("default").without_output_schema()
    }

    async fn call(
        &self,
        asked: WantedTools,
        context: ToolContext,
    ) -> Result<FittingTools, ToolError> {
        let tenant = context.tenant().parse();
        let tenant: Label = tenant.map_err(|_no_tenant| ToolError::business("no tenant"))?;
        Ok(found(&self.0, &tenant, &asked.query))
    }
}

/// The tools that fit what is asked, of those that models of the tenant are told of.
fn found(registry: &Registry, tenant: &Label, query: &str) -> FittingTools {
    let offered = registry.all_offered();
    let tools = for_models(offered.iter().map(|tool| &tool.manifest), tenant);
    let others = tools
        .into_iter()
        .filter(|tool| tool.name.as_str() != FIND_TOOLS);
    let others: Vec<_> = others.map(|tool| (tool, described(tool))).collect();
    let words = others
        .iter()
        .map(|(tool, description)| ToolWords::of(tool.name.as_str(), description));
    let words: Vec<ToolWords> = words.collect();
    let best = RankedTools::of(&SaidWords::of(&[query]), &words);
    let tools = best.places.into_iter().take(FOUND_MAX).map(|n| {
        let (tool, description) = &others[n];
        FittingTool {
            name: tool.name.to_string(),
            description: description.to_string(),
        }
    });
    FittingTools {
        tools: tools.collect(),
    }
}
