//! A tool: its schema, what models are told of it, and the playground, where arguments are checked and a call is made.

use axum::{
    Extension,
    body::Body,
    extract::{Path, State},
    response::Response,
};
use fleet::tokens::Scope;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use serde_json::value::RawValue;

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
    make::{make, new_key},
};
use crate::{asked::Asked, refusal::Refused};

/// What is looked at of a tool, as `GET /v1/tools/{tool}` has it.
#[derive(Debug, Deserialize)]
struct TriedTool {
    name: String,
    version: i64,
    #[serde(default)]
    description: String,
    effect: String,
    input_schema: Box<RawValue>,
}

/// What stands in the form, and what came of it.
#[derive(Debug, Default)]
struct Tried {
    arguments: Option<String>,
    key: Option<String>,
    came_of_it: Option<Markup>,
    /// A write is run only when somebody has seen its key.
    asks_once_more: bool,
}

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
    let main = html! {
        p.sentence { span class={ "badge effect-" (found.effect) } { (found.effect) } " " (visitor.say(words::VERSION)) " " (found.version) }
        p { (text::stranger(&found.description)) }
        (playground(visitor, &found, tried))
        section #schema-section {
            h2 { (visitor.say(words::SCHEMA)) }
            (shown::json_block(visitor, "schema-json", found.input_schema.get(), None))
        }
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

fn playground(visitor: &Visitor, tool: &TriedTool, tried: &Tried) -> Markup {
    let arguments = tried.arguments.as_deref().unwrap_or("{}");
    // In a script that is data nothing may look like its end.
    let schema = tool.input_schema.get().replace('<', "\\u003c");
    html! {
        section #playground-section {
            h2 { (visitor.say(words::PLAYGROUND)) }
            @if visitor.may(Scope::Call) { p.hint { (visitor.say(words::PLAYGROUND_HINT)) } } @else { p.hint { (visitor.say(words::MAY_NOT_CALL)) } }
            (tried.came_of_it.clone().unwrap_or_default())
            form #playground method="post" action=(visitor.link(&format!("/console/tools/{}", tool.name))) {
                div #form-from-schema hidden data-add=(visitor.say(words::FORM_ADD)) data-remove=(visitor.say(words::FORM_REMOVE))
                    data-required=(visitor.say(words::FORM_REQUIRED)) data-kind=(visitor.say(words::FORM_KIND))
                    data-edited=(visitor.say(words::FORM_EDITED)) data-reset=(visitor.say(words::FORM_RESET)) {}
                label for="arguments-json" { (visitor.say(words::ARGUMENTS)) " (JSON)" }
                textarea #arguments-json name="arguments" rows="8" spellcheck="false" { (arguments) }
                @if visitor.may(Scope::Call) {
                    label for="key" { (visitor.say(words::KEY)) }
                    input #key name="key" maxlength="200" autocomplete="off" value=(tried.key.as_deref().unwrap_or_default()) aria-describedby="key-hint";
                    p #key-hint.hint { (visitor.say(words::KEY_HINT)) }
                }
                div.actions {
                    button name="do" value="check" { (visitor.say(words::CHECK)) }
                    @if visitor.may(Scope::Call) {
                        @if tried.asks_once_more {
                            p.problem role="alert" { (visitor.say(words::RUN_WRITES)) " " code { (tried.key.as_deref().unwrap_or_default()) } }
                            button.danger name="do" value="run_now" { (visitor.say(words::RUN_NOW)) }
                        } @else {
                            button name="do" value="run" { (visitor.say(words::RUN_IT)) }
                        }
                    }
                }
            }
            script #schema type="application/json" { (PreEscaped(schema)) }
        }
    }
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
    let arguments = form.text("arguments").unwrap_or("{}").to_owned();
    let mut tried = Tried {
        arguments: Some(arguments.clone()),
        key: form.text("key").map(ToOwned::to_owned),
        ..Tried::default()
    };
    match form.text("do") {
        Some("run" | "run_now") => {
            let effect = effect(&console, &visitor, &tool).await?;
            let key = tried.key.get_or_insert_with(new_key);
            if effect != "read" && form.text("do") != Some("run_now") {
                tried.asks_once_more = true;
                tried.came_of_it = Some(check(&console, &visitor, &tool, &arguments).await?);
            } else {
                match make(&console, &visitor, &tool, arguments, key).await? {
                    Ok(call) => return Ok(see(&visitor.link(&format!("/console/calls/{call}")))),
                    Err(told) => tried.came_of_it = Some(told),
                }
            }
        }
        _check => tried.came_of_it = Some(check(&console, &visitor, &tool, &arguments).await?),
    }
    let shown = shown(&console, &visitor, &tool, &tried).await;
    Ok(framed(&console, &visitor, shown).await)
}

async fn effect(console: &Console, visitor: &Visitor, tool: &str) -> Result<String, Refused> {
    let path = format!("/v1/tools/{}", encoded(tool));
    let found: TriedTool = console.api.get(visitor, &path).await?;
    Ok(found.effect)
}

/// What the door would say, stored nowhere.
async fn check(
    console: &Console,
    visitor: &Visitor,
    tool: &str,
    arguments: &str,
) -> Result<Markup, Refused> {
    let path = format!("/v1/tools/{}/check", encoded(tool));
    let answered = console
        .api
        .post(visitor, &path, arguments.to_owned(), &[])
        .await?;
    if let Some(refusal) = Refusal::of(&answered) {
        return Ok(refusal.shown(visitor, words::VERDICT));
    }
    let told = String::from_utf8_lossy(&answered.body);
    Ok(html! {
        div.done role="status" {
            h3 { (visitor.say(words::VERDICT)) }
            (shown::json_block(visitor, "verdict", &told, None))
        }
    })
}
