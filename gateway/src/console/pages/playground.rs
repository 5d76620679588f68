//! The playground of a tool: a form from its schema, in which arguments are checked and a call is made.

use fleet::tokens::Scope;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{
    super::{
        form::SentForm,
        shown::{self, Refusal},
        state::Console,
        visitor::{Visitor, encoded},
        words,
    },
    make::{make, new_key},
};
use crate::refusal::Refused;

/// What is looked at of a tool, as `GET /v1/tools/{tool}` has it.
#[derive(Debug, Deserialize)]
pub(super) struct TriedTool {
    pub(super) name: String,
    pub(super) version: i64,
    #[serde(default)]
    pub(super) description: String,
    pub(super) effect: String,
    pub(super) input_schema: Box<RawValue>,
}

/// What stands in the form, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Tried {
    arguments: Option<String>,
    key: Option<String>,
    came_of_it: Option<Markup>,
    /// A write is run only when somebody has seen its key.
    asks_once_more: bool,
}

/// The form, and what came of it.
pub(super) fn form(visitor: &Visitor, tool: &TriedTool, tried: &Tried) -> Markup {
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
                            input type="hidden" name="seen" value=(mark(tool, arguments));
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

/// Checks arguments, or makes a call with them. `Err`: the call.
pub(super) async fn tried(
    console: &Console,
    visitor: &Visitor,
    tool: &str,
    form: &SentForm,
) -> Result<Result<Tried, String>, Refused> {
    let arguments = form.text("arguments").unwrap_or("{}").to_owned();
    let mut tried = Tried {
        arguments: Some(arguments.clone()),
        key: form.text("key").map(ToOwned::to_owned),
        ..Tried::default()
    };
    match form.text("do") {
        Some("run" | "run_now") => {
            let tool_now = tool_now(console, visitor, tool).await?;
            let key = tried.key.get_or_insert_with(new_key);
            // A write is run with the tool and the arguments that somebody has looked at, and no others.
            let is_seen = form.text("seen") == Some(mark(&tool_now, &arguments).as_str());
            let is_sure = form.text("do") == Some("run_now");
            if tool_now.effect != "read" && !(is_sure && is_seen) {
                let (is_taken, told) = check(console, visitor, tool, &arguments).await?;
                tried.asks_once_more = is_taken;
                tried.came_of_it = Some(html! {
                    @if is_sure { p.problem role="alert" { (visitor.say(words::NOT_CHECKED)) } }
                    (told)
                });
            } else {
                match make(console, visitor, tool, arguments, key).await? {
                    Ok(call) => return Ok(Err(call)),
                    Err(told) => tried.came_of_it = Some(told),
                }
            }
        }
        _check => {
            let (_, told) = check(console, visitor, tool, &arguments).await?;
            tried.came_of_it = Some(told);
        }
    }
    Ok(Ok(tried))
}

async fn tool_now(console: &Console, visitor: &Visitor, tool: &str) -> Result<TriedTool, Refused> {
    let path = format!("/v1/tools/{}", encoded(tool));
    console.api.get(visitor, &path).await
}

/// By what arguments for this version of a tool are known again.
fn mark(tool: &TriedTool, arguments: &str) -> String {
    let (name, version) = (&tool.name, tool.version);
    hex::encode(Sha256::digest(format!("{name} {version}\n{arguments}")))
}

/// What the door would say, stored nowhere, and whether it would take the call.
async fn check(
    console: &Console,
    visitor: &Visitor,
    tool: &str,
    arguments: &str,
) -> Result<(bool, Markup), Refused> {
    let path = format!("/v1/tools/{}/check", encoded(tool));
    let answered = console
        .api
        .post(visitor, &path, arguments.to_owned(), &[])
        .await?;
    if let Some(refusal) = Refusal::of(&answered) {
        return Ok((false, refusal.shown(visitor, words::VERDICT)));
    }
    let told = String::from_utf8_lossy(&answered.body);
    let told = shown::json_block(visitor, "verdict", &told, None);
    let refusal: Option<Refusal> = answered.read().ok();
    let markup = match &refusal {
        // With everything that is wrong, each at its place.
        Some(refusal) => html! {
            (refusal.shown(visitor, words::VERDICT))
            details { summary { (visitor.say(words::DETAILS)) } (told) }
        },
        None => html! {
            div.done role="status" { h3 { (visitor.say(words::VERDICT)) } (told) }
        },
    };
    Ok((refusal.is_none(), markup))
}
