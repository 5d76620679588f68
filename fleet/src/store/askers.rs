//! Tools that ask another one: as their probe, as their preview, or in their place. That the other one stays fit for it nothing guards,
//! so who applies a later version of it is told.

use sqlx::PgConnection;

use super::StoreError;
use crate::manifest::{Manifest, UnfitTool};

/// A tool that names one which it cannot ask any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetDown {
    /// The one that names it.
    pub asker: String,
    /// As what: `probe`, `preview` or `fallback`.
    pub asked_as: &'static str,
    /// Why it is not asked any more.
    pub why: UnfitTool,
}

/// The tools whose newest versions name this one, and cannot ask it as it stands in this manifest. Only reads.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn let_down(
    connection: &mut PgConnection,
    manifest: &Manifest,
) -> Result<Vec<LetDown>, StoreError> {
    let doing = "look for tools that name this one";
    let askers: Vec<String> = sqlx::query_scalar(
        "SELECT manifest::text FROM ( \
             SELECT DISTINCT ON (tool) tool, manifest FROM toolfleet.tool_versions ORDER BY tool, version DESC) newest \
         WHERE $1 IN (manifest->'probe'->>'tool', manifest->'approval'->'preview'->>'tool', manifest->'fallback'->'tool'->>'name') \
         ORDER BY tool",
    )
    .bind(manifest.name.as_str())
    .fetch_all(connection)
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let mut found = Vec::new();
    for asker in askers {
        let asker: Manifest =
            serde_json::from_str(&asker).map_err(|error| StoreError::unreadable(doing, error))?;
        let probe = asker.probe.as_ref().map(|probe| &probe.tool);
        let preview = asker.preview().map(|preview| &preview.tool);
        let other = asker.fallback.as_ref();
        let other = other.and_then(|fallback| fallback.tool.as_ref());
        let named = [
            ("probe", probe, manifest.unfit_to_be_asked()),
            ("preview", preview, manifest.unfit_to_be_asked()),
            (
                "fallback",
                other.map(|other| &other.name),
                manifest.unfit_to_stand_in(&asker.queue),
            ),
        ];
        for (asked_as, named, unfit) in named {
            if named == Some(&manifest.name)
                && let Some(why) = unfit
            {
                found.push(LetDown {
                    asker: asker.name.to_string(),
                    asked_as,
                    why,
                });
            }
        }
    }
    Ok(found)
}

impl LetDown {
    /// A sentence for who applies this manifest.
    pub fn sentence(&self, manifest: &Manifest) -> String {
        let Self {
            asker,
            asked_as,
            why,
        } = self;
        format!(
            "{asker}: the tool of its {asked_as}, {}, {}; until then it is not asked",
            manifest.name,
            why.reason()
        )
    }
}
