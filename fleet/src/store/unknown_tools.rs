//! Tools that a manifest names and that were never applied: what is misspelt does nothing, and nobody says so later.

use sqlx::PgConnection;

use super::StoreError;
use crate::{ids::ToolName, manifest::Manifest};

/// A tool that was never applied, and the field of a manifest that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    /// Such as `context.summary_tool`.
    pub field: &'static str,
    /// What it names.
    pub tool: ToolName,
}

const POLICY: &str = "policy";

impl UnknownTool {
    /// Whether it is one of the policy's, which with it would forbid nothing or everything.
    pub fn is_of_policy(&self) -> bool {
        self.field == POLICY
    }

    /// A sentence for whoever applies the manifest.
    pub fn sentence(&self, manifest: &Manifest) -> String {
        let (name, Self { field, tool }) = (&manifest.name, self);
        format!("{name}: {field} names {tool}, and no such tool was ever applied; is it misspelt?")
    }
}

/// Which tools this manifest names that were never applied, in the order of its fields. One statement, and none where it names
/// none; changes nothing.
///
/// Names in `tool_selection.always` may be those of tools that requests bring, so they are none of them.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn unknown_tools(
    connection: &mut PgConnection,
    manifest: &Manifest,
) -> Result<Vec<UnknownTool>, StoreError> {
    let named = named(manifest);
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let known: Vec<String> = sqlx::query_scalar(
        "SELECT n.tool FROM unnest($1::text[]) AS n (tool) \
         WHERE EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = n.tool)",
    )
    .bind(
        named
            .iter()
            .map(|(_, tool)| tool.as_str())
            .collect::<Vec<_>>(),
    )
    .fetch_all(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("look for tools that were never applied", error))?;
    let unknown = named
        .into_iter()
        .filter(|(_, tool)| !known.iter().any(|known| known == tool.as_str()));
    Ok(unknown
        .map(|(field, tool)| UnknownTool {
            field,
            tool: tool.clone(),
        })
        .collect())
}

fn named(manifest: &Manifest) -> Vec<(&'static str, &ToolName)> {
    let policy = manifest.policy.iter().flat_map(|policy| policy.named());
    let delegates = manifest.delegates.iter().map(|delegate| &delegate.tool);
    let only = manifest.tool_selection.iter().flat_map(|it| &it.only);
    let context = manifest.context.iter();
    let summary_tool = context.filter_map(|context| context.summary_tool.as_ref());
    let policy = policy.map(|tool| (POLICY, tool));
    policy
        .chain(delegates.map(|tool| ("delegates", tool)))
        .chain(only.map(|tool| ("tool_selection.only", tool)))
        .chain(summary_tool.map(|tool| ("context.summary_tool", tool)))
        .collect()
}
