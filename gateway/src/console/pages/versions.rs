//! The versions of a tool, for operators: what each has changed, the manifest, what the lint says of it, and of which MCP server it is.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::super::{
    difference::{Difference, differences},
    moment::{self, TimeForm},
    own_api::Answered,
    shown,
    state::Console,
    text,
    visitor::{Visitor, encoded},
    words,
};
use crate::{body::aside, refusal::Refused};

/// How many versions are shown: the newest.
const SHOWN: usize = 10;
/// How much of a value is shown where it has changed.
const VALUE_SHOWN: usize = 400;

#[derive(Debug, Deserialize)]
struct Versions {
    versions: Vec<ShownVersion>,
    warnings: Vec<LintWarning>,
}

/// A version, as `GET /v1/tools/{tool}/versions` has it.
#[derive(Debug, Deserialize)]
struct ShownVersion {
    version: i64,
    applied_by: String,
    #[serde(with = "time::serde::rfc3339")]
    applied_at: OffsetDateTime,
    retired_by: Option<String>,
    retired_note: Option<String>,
    manifest: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
struct LintWarning {
    path: String,
    message: String,
}

/// What a manifest says of an MCP server.
#[derive(Debug, Deserialize)]
struct OverMcp {
    executor: McpExecutor,
}

#[derive(Debug, Deserialize)]
struct McpExecutor {
    mcp: PinnedTool,
}

#[derive(Debug, Deserialize)]
struct PinnedTool {
    server: String,
    tool: String,
    pin: Option<String>,
}

/// The versions, and what each one has changed of the one before it.
struct Compared {
    found: Versions,
    changes: Vec<Vec<Difference>>,
}

impl Compared {
    fn read(answered: &Answered) -> Result<Self, Refused> {
        let found: Versions = answered.read()?;
        let changes = found
            .versions
            .windows(2)
            .map(|pair| differences(&pair[1].manifest, &pair[0].manifest));
        let changes = changes.collect();
        Ok(Self { found, changes })
    }
}

/// The versions; a problem in their place where they cannot be shown.
pub(super) async fn section(console: &Console, visitor: &Visitor, tool: &str) -> Markup {
    // One more: what the last one has changed is seen beside the one before it.
    let path = format!("/v1/tools/{}/versions?limit={}", encoded(tool), SHOWN + 1);
    let found = match console.api.get_bytes(visitor, &path).await {
        // Manifests may be long, and are compared member by member.
        Ok(answered) => aside(answered.body.len(), move || Compared::read(&answered)).await,
        Err(refused) => Err(refused),
    };
    let Compared { found, changes } = match found.and_then(|found| found) {
        Ok(found) => found,
        Err(refused) => return shown::refused(visitor, words::PROBLEM, &refused),
    };
    let Some(newest) = found.versions.first() else {
        return Markup::default();
    };
    let of_server: Option<OverMcp> = serde_json::from_str(newest.manifest.get()).ok();
    html! {
        @if let Some(OverMcp { executor: McpExecutor { mcp } }) = &of_server {
            section #mcp {
                h2 { (visitor.say(words::SERVER)) }
                p { code { (text::stranger(&mcp.server)) } ": " code { (text::beginning(&mcp.tool, 120)) } }
                @if let Some(pin) = &mcp.pin { p.hint { (visitor.say(words::PIN)) " " code { (text::beginning(pin, 80)) } } }
            }
        }
        section #lint {
            h2 { (visitor.say(words::LINT)) }
            @if found.warnings.is_empty() { p { (visitor.say(words::NONE)) } }
            ul { @for LintWarning { path, message } in &found.warnings {
                li { @if !path.is_empty() { code { (text::stranger(path)) } ": " } (text::stranger(message)) }
            } }
        }
        section #versions {
            h2 { (visitor.say(words::VERSIONS)) }
            @for (place, version) in found.versions.iter().enumerate().take(SHOWN) {
                @let before = found.versions.get(place + 1).zip(changes.get(place));
                (one(visitor, version, before, place == 0))
            }
            @if found.versions.len() > SHOWN { p.hint { (visitor.say(words::MORE)) } }
        }
    }
}

fn one(
    visitor: &Visitor,
    version: &ShownVersion,
    before: Option<(&ShownVersion, &Vec<Difference>)>,
    is_newest: bool,
) -> Markup {
    let id = format!("manifest-{}", version.version);
    html! {
        details open[is_newest] {
            summary {
                (visitor.say(words::VERSION)) " " (version.version) ", " (moment::at(version.applied_at, TimeForm::Date)) ", "
                (text::beginning(&version.applied_by, 60))
                @if let Some(by) = &version.retired_by {
                    " (" (visitor.say(words::RETIRED)) ": " (text::beginning(by, 60))
                    @if let Some(note) = &version.retired_note { ", " (text::beginning(note, 200)) }
                    ")"
                }
            }
            @if let Some((before, changed)) = before {
                p { (visitor.say(words::SINCE_VERSION)) " " (before.version) ":" }
                (table(visitor, changed))
            }
            details { summary { (visitor.say(words::MANIFEST)) }
                (shown::json_block(visitor, &id, version.manifest.get(), None)) }
        }
    }
}

fn table(visitor: &Visitor, changed: &[Difference]) -> Markup {
    let value = |text: &Option<String>| html! { td { @if let Some(text) = text { code { (text::beginning(text, VALUE_SHOWN)) } } } };
    let table = html! {
        table.differences {
            thead { tr { @for head in [words::PLACE, words::BEFORE, words::NOW] { th scope="col" { (visitor.say(head)) } } } }
            tbody { @for one in changed {
                tr { td { code { (text::stranger(&one.pointer)) } } (value(&one.before)) (value(&one.now)) }
            } }
        }
    };
    shown::wide(visitor.say(words::SINCE_VERSION), &table)
}
