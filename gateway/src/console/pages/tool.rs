//! A tool: the playground, its schema, what models are told of it, and its versions.

use axum::{
    Extension,
    body::Body,
    extract::{Path, State},
    response::Response,
};
use maud::html;

use super::{
    super::{
        form::SentForm,
        frame::{Page, Place, Shown, framed},
        shown::{self, Refusal},
        state::{Console, Looking, Pages, see},
        text,
        visitor::{Visitor, encoded},
        words,
    },
    playground::{self, Tried, TriedTool},
    versions,
};
use crate::{asked::Asked, refusal::Refused};

/// The page.
pub(in super::super) async fn page(
    State(console): Pages,
    Path(tool): Path<String>,
    Extension(visitor): Looking,
) -> Response {
    let shown = shown(&console, &visitor, &tool, &Tried::default()).await;
    framed(&console, &visitor, shown).await
}

async fn shown(console: &Console, visitor: &Visitor, tool: &str, tried: &Tried) -> Shown {
    visitor.query(&[])?;
    let path = format!("/v1/tools/{}", encoded(tool));
    let answered = console.api.get_bytes(visitor, &path).await?;
    if let Some(refusal) = Refusal::of(&answered) {
        return Ok(Page {
            place: Place::Tool,
            title: visitor.say(words::PROBLEM).to_owned(),
            is_live: false,
            main: refusal.shown(visitor, words::NOT_DONE),
        });
    }
    let found: TriedTool = answered.read()?;
    let mut definitions = Vec::new();
    for format in ["openai", "anthropic", "mcp"] {
        let of_model = console
            .api
            .get_bytes(visitor, &format!("{path}?format={format}"))
            .await?;
        if Refusal::of(&of_model).is_none() {
            let told = String::from_utf8_lossy(&of_model.body).into_owned();
            definitions.push((format, told));
        }
    }
    let versions = match visitor.principal().is_of_all_tenants() {
        true => Some(versions::section(console, visitor, &found.name).await),
        false => None,
    };
    let main = html! {
        p.sentence { span class={ "badge effect-" (found.effect) } { (found.effect) } " " (visitor.say(words::VERSION)) " " (found.version) }
        p { (text::stranger(&found.description)) }
        p {
            a href=(visitor.link(&format!("/console?tool={}", found.name))) { (visitor.say(words::CALLS)) } " · "
            a href=(visitor.link(&format!("/console?state=failed&tool={}", found.name))) { (visitor.say(words::FAILED_ONLY)) } " · "
            a href=(visitor.link(&format!("/console/protection?tool={}", found.name))) { (visitor.say(words::PROTECTION)) }
        }
        (playground::form(visitor, &found, tried))
        section #schema-section {
            h2 { (visitor.say(words::SCHEMA)) }
            (shown::json_block(visitor, "schema-json", found.input_schema.get(), None))
        }
        (versions.unwrap_or_default())
        section #definitions {
            h2 { (visitor.say(words::DEFINITION)) }
            @for (format, told) in &definitions {
                details { summary { (format) }
                    (shown::json_block(visitor, &format!("definition-{format}"), told, None)) }
            }
        }
    };
    Ok(Page {
        place: Place::Tool,
        title: found.name,
        is_live: false,
        main,
    })
}

/// Checks arguments, or makes a call with them.
pub(in super::super) async fn run(
    State(console): Pages,
    Path(tool): Path<String>,
    Extension(visitor): Looking,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let form = SentForm::read(&console.gateway, &asked, body).await?;
    match playground::tried(&console, &visitor, &tool, &form).await? {
        Ok(tried) => {
            let shown = shown(&console, &visitor, &tool, &tried).await;
            Ok(framed(&console, &visitor, shown).await)
        }
        Err(call) => Ok(see(&visitor.link(&format!("/console/calls/{call}")))),
    }
}
