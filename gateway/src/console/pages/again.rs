//! How the same call is sent again: to copy, and as a form.

use fleet::tokens::Scope;
use maud::{Markup, html};

use super::{
    super::{json, text, visitor::Visitor, words},
    make::new_key,
    sent::{Act, Sent},
    story::StoryCall,
};

/// How the same is sent again: to copy, and as a form. `subject`: on which it is sent over NATS.
pub(super) fn again(
    visitor: &Visitor,
    call: &StoryCall,
    subject: &str,
    sent: Option<&Sent>,
) -> Markup {
    // With another key it would be done twice, and what it is to be done with now is not known either.
    if call.finished_at.is_none() {
        return html! {
            section #again data-live {
                h2 { (visitor.say(words::AGAIN)) }
                p.hint { (visitor.say(words::RETRY_NOT)) }
            }
        };
    }
    let sent = Sent::of(sent, Act::Retry);
    // What is not seen is written as JSON writes it, so that a copy means the same.
    let args = call.args.as_ref().map_or("{}", |args| args.get());
    let args = &json::visible(args);
    let quoted = format!("'{}'", args.replace('\'', "'\\''"));
    let tenant = &call.tenant;
    let curl = format!(
        "curl -s \"$TOOLFLEET_GATEWAY_URL/v1/call/{}\" -H \"Authorization: Bearer $TOOLFLEET_TOKEN\" -H 'Toolfleet-Tenant: {tenant}' \\\n  -H 'Content-Type: application/json' -H \"Idempotency-Key: $(uuidgen)\" -d {quoted}",
        call.tool
    );
    let command = format!(
        "toolfleet call {} --tenant {tenant} --key \"$(uuidgen)\" --args {quoted}",
        call.tool
    );
    let python = format!(
        "import asyncio, os, uuid\nimport nats\n\n\nasync def main():\n    client = await nats.connect(os.environ[\"NATS_URL\"])\n    \
         headers = {{\"Idempotency-Key\": str(uuid.uuid4())}}\n    \
         answer = await client.request(\"{subject}\", {}.encode(), timeout=40, headers=headers)\n    \
         print(answer.data.decode())\n\n\nasyncio.run(main())",
        serde_json::Value::from(args.as_str())
    );
    let copies = [
        ("again-curl", words::COPY_CURL, curl),
        ("again-cli", words::COPY_CLI, command),
        ("again-python", words::COPY_PYTHON, python),
    ];
    let (key, arguments) = match sent {
        Some(_refused) => (
            Sent::text(sent, "key").to_owned(),
            Sent::text(sent, "arguments"),
        ),
        None => (new_key(), args.as_str()),
    };
    html! {
        section #again data-live {
            h2 { (visitor.say(words::AGAIN)) }
            @if !call.sensitive && args.len() <= text::SHOWN_MAX {
                @for (id, word, copied) in &copies {
                    details {
                        summary { (visitor.say(*word)) }
                        div.block {
                            button.copy type="button" data-copy=(id) { (visitor.say(words::COPY)) }
                            pre.text id=(id) { (text::stranger(copied)) }
                        }
                    }
                }
            }
            @if visitor.may(Scope::Call) && !call.sensitive {
                @if let Some(sent) = sent { (sent.told) }
                form method="post" action=(visitor.link(&format!("/console/calls/{}/retry#again", call.call_id))) {
                    p.hint { (visitor.say(words::RETRY_HINT)) @if call.effect != "read" { " " strong { (visitor.say(words::RETRY_WRITES)) } } }
                    // A form that is sent twice makes one call.
                    input type="hidden" name="key" value=(key);
                    label for="retry-arguments" { (visitor.say(words::ARGUMENTS)) }
                    textarea #retry-arguments name="arguments" rows="6" spellcheck="false" { (arguments) }
                    button { (visitor.say(words::RETRY)) }
                }
            }
        }
    }
}
