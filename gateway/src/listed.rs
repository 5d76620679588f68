//! The tools that can be called, as the dispatchers list them.

use bytes::Bytes;
use fleet::{definitions::Format, ids::Label, wire::message::Message};
use fleet_client::{Answer, Question};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    answer::Glimpse,
    ask::Dispatchers,
    refusal::{Refused, Repeatable},
};

/// Asks the dispatchers for all of them; the answer may be a dispatcher's refusal.
///
/// # Errors
///
/// No dispatcher answers.
pub(crate) async fn listing(
    dispatchers: &Dispatchers,
    tenant: &Label,
    format: Format,
    is_strict: bool,
) -> Result<Answer, Refused> {
    let asked = json!({ "format": format, "strict": is_strict });
    let subject = dispatchers.subjects().tools(tenant);
    let question = Question::new(subject, asked.to_string());
    dispatchers.ask(question, Repeatable::Always).await
}

/// The bytes of a listing.
///
/// # Errors
///
/// No dispatcher answers, or the one that does has none to give: with its code.
pub(crate) async fn listed(
    dispatchers: &Dispatchers,
    tenant: &Label,
    format: Format,
) -> Result<Bytes, Refused> {
    let answer = listing(dispatchers, tenant, format, false).await?;
    match Glimpse::of(answer.bytes()).refusal() {
        None => Ok(answer.bytes().clone()),
        Some(code) => {
            let what = Message::fixed(
                "the dispatchers do not say at the moment which tools there are",
                "dispatcher 目前没有给出工具列表",
            );
            Err(Refused::new(code, what))
        }
    }
}

/// The definitions in a listing.
///
/// # Errors
///
/// It is none that this release can read.
pub(crate) fn tools(listing: &[u8]) -> Result<Vec<Box<RawValue>>, Refused> {
    #[derive(Deserialize)]
    struct Listing {
        tools: Vec<Box<RawValue>>,
    }

    let listing: Result<Listing, _> = serde_json::from_slice(listing);
    let listing = listing.map_err(|_other_release| Refused::no_answer(Repeatable::Always))?;
    Ok(listing.tools)
}

/// The name in a definition, whatever its format.
pub(crate) fn name_of(definition: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Definition {
        name: Option<String>,
        function: Option<Function>,
    }
    #[derive(Deserialize)]
    struct Function {
        name: String,
    }

    let read: Definition = serde_json::from_str(definition.get()).ok()?;
    read.name.or(read.function.map(|function| function.name))
}
