//! `toolfleet calls approve` and `calls deny`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    ids::{CallId, Label},
    references,
    store::{PgPool, approvals::Ruling},
};
use fleet_client::calls::Approving;
use fleet_history::{
    approvals::{Decided, Decision, decided},
    instant,
    waiting::{Undecided, referent, undecided},
};

use serde_json::Value;

use super::preview::{self, Previewed};
use crate::commands::{
    actor::user_at_host,
    ask::unanswered,
    connect, given, json, output,
    plain::{folded, plain},
    usage::UsageError,
    words,
};

/// The fewest digits of the hash that name arguments.
const HASH_DIGITS_MIN: usize = 8;

/// What `calls approve` and `calls deny` are told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --hash it shows what is to be decided, and changes nothing: docs/approvals.md. The hash says which arguments were \
                  looked at; eight digits of it are enough.\n\
                  Exit code 1 when the decision does not count: `conflict`, `not_found` (docs/errors)"
)]
pub struct Decide {
    /// The call's id, as every envelope has it
    call_id: CallId,
    /// The hash that was shown with the arguments, or at least its first 8 digits
    #[arg(long, value_name = "HEX", requires = "note")]
    hash: Option<String>,
    /// Why, for the history; at most 2000 characters
    #[arg(long, value_name = "TEXT", requires = "hash")]
    note: Option<String>,
    /// Who decides, for the history; user@host without it
    #[arg(long = "as", value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    actor: String,
    /// Decide as the caller's program, with its `awaiting.token`: the token itself, @FILE, or @- for standard input
    #[arg(long, value_name = "TOKEN|@FILE|@-")]
    token: Option<String>,
    /// Whose call it is; default: as the ledger says
    #[arg(long)]
    tenant: Option<Label>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: the envelope on one line; of a call that is only shown, its row of the view `waiting`
    #[arg(long)]
    json: bool,
}

impl Decide {
    pub(super) async fn run(self, ruling: Ruling) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let Some(found) = undecided(&pool, self.call_id).await? else {
            bail!(too_late(&pool, self.call_id).await?);
        };
        let waiting = found.read()?;
        let (Some(hash), Some(note)) = (&self.hash, &self.note) else {
            let preview = preview::asked(&self.bus, &waiting).await;
            let text = match self.json {
                true => preview::beside(&json::compact(found.json()), preview.as_ref()),
                false => {
                    let mut beside = referents(&pool, &waiting).await?;
                    beside.extend(preview.as_ref().map(Previewed::line));
                    shown(&waiting, &beside, ruling)
                }
            };
            output::print(&text)?;
            return Ok(ExitCode::SUCCESS);
        };
        let is_of =
            hash.len() >= HASH_DIGITS_MIN && waiting.args_hash.starts_with(&hash.to_lowercase());
        if !is_of {
            return Err(UsageError(format!(
                "--hash {hash} is not the hash of its arguments; look at them again: toolfleet calls {ruling} {}",
                self.call_id
            ))
            .into());
        }
        let token = self.token.as_ref();
        let token = token
            .map(|token| given::bytes("--token", token))
            .transpose()?;
        let token = token.map(String::from_utf8).transpose();
        let token = token.map_err(|_not_text| UsageError("--token is not text".to_owned()))?;
        let approving = Approving {
            call_id: self.call_id,
            token: token.as_deref().map(str::trim),
            decision: ruling,
            args_hash: &waiting.args_hash,
            actor: &self.actor,
            note,
        };
        let tenant = match self.tenant {
            Some(tenant) => tenant,
            None => waiting.tenant.parse()?,
        };
        let client = connect::client(&self.bus).await?;
        let advice =
            "look at the call: toolfleet calls explain says whether the decision was recorded";
        let answer = client
            .approve(&tenant, &approving)
            .await
            .map_err(|problem| unanswered(problem, advice))?;
        output::print_text(answer.text()?, self.json)?;
        let is_refused = answer.head()?.is_refused();
        if !is_refused && let Some(missing) = missing(&pool, self.call_id).await {
            output::warn(&missing);
        }
        Ok(ExitCode::from(u8::from(is_refused)))
    }
}

/// Who was first, where a call does not wait any more, and where it stands.
async fn too_late(pool: &PgPool, call: CallId) -> anyhow::Result<String> {
    let Some(decided) = decided(pool, call).await? else {
        return Ok(format!(
            "there is no call {call}; its history may have been dropped"
        ));
    };
    let Decided { state, decisions } = decided.read()?;
    let said = decisions.iter().map(|decision| {
        let Decision {
            decision,
            at,
            actor,
            note,
        } = decision;
        let word = match decision.as_str() {
            "approve" => "yes",
            "deny" => "no",
            other => other,
        };
        let at = instant(*at);
        format!("; {} said {word} at {at}: {}", plain(actor), plain(note))
    });
    let said: String = said.collect();
    Ok(format!(
        "call {call} does not wait for a decision: it is {state}{said}; toolfleet calls explain {call} says where it stands"
    ))
}

/// That others still have to say yes. `None` as well where the ledger cannot be asked: the decision is recorded, and that is what was asked
/// for.
async fn missing(pool: &PgPool, call: CallId) -> Option<String> {
    let waiting = undecided(pool, call).await.ok()??.read().ok()?;
    let Undecided {
        approvals,
        approvals_needed,
        approved_by,
        ..
    } = waiting;
    let (names, more) = (names(&approved_by), approvals_needed - approvals);
    let others = match more {
        1 => "another person has".to_owned(),
        more => format!("{more} other people have"),
    };
    Some(format!(
        "{approvals} of {approvals_needed} have said yes{names}; {others} to before it runs"
    ))
}

/// How many characters of an answer that arguments refer to a person gets to see.
const REFERENT_MAX: usize = 8_000;

/// What the arguments refer to, a line for each: the tool gets the answer. Answers do not change, so the hash of the reference is one of
/// its answer.
async fn referents(pool: &PgPool, waiting: &Undecided) -> anyhow::Result<Vec<String>> {
    let args: Value = serde_json::from_str(waiting.args.get())?;
    // What is masked is none.
    let found = references::references(&args).unwrap_or_default();
    let mut lines = Vec::with_capacity(found.len());
    for reference in found {
        let Some(call) = reference.call else { continue };
        let steps: Vec<String> = reference.path.split('/').skip(1).map(unescaped).collect();
        let answer = referent(pool, &waiting.tenant, call, &steps).await?;
        let answer = answer.map_or_else(
            || "not in the history any more".to_owned(),
            |answer| {
                let text = json::exact_compact(&answer);
                match text.char_indices().nth(REFERENT_MAX) {
                    Some((end, _)) => format!("{} ... (toolfleet calls show {call})", &text[..end]),
                    None => text,
                }
            },
        );
        let place = plain(&reference.place);
        lines.push(format!("refers to     {place} is {answer}, by call {call}"));
    }
    Ok(lines)
}

/// A step of a JSON pointer as the member's name.
fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// What is to be decided, for a person: exactly what will run, with every character made visible, and what stands beside it.
fn shown(waiting: &Undecided, beside: &[String], ruling: Ruling) -> String {
    let (call, hash) = (waiting.call_id, &waiting.args_hash);
    let mut lines = vec![
        format!("call          {call}"),
        format!(
            "tool          {} version {}, effect {}",
            waiting.tool, waiting.tool_version, waiting.effect
        ),
        format!("tenant        {}", waiting.tenant),
    ];
    let also = [
        ("session", &waiting.session),
        ("run", &waiting.run),
        ("needs a yes", &waiting.approval_reason),
    ];
    for (label, value) in also {
        if let Some(value) = value {
            lines.push(format!("{label:<14}{}", plain(value)));
        }
    }
    lines.push(format!(
        "decides       {}, {} of {} have said yes{}",
        waiting.approval_by,
        waiting.approvals,
        waiting.approvals_needed,
        names(&waiting.approved_by)
    ));
    lines.push(format!("since         {}", instant(waiting.since)));
    lines.push(format!(
        "expires       {}, and nothing of it is done then",
        instant(waiting.until)
    ));
    lines.push(format!(
        "arguments     {}",
        json::exact_indented(waiting.args.get(), 14)
    ));
    lines.extend_from_slice(beside);
    if waiting.coercions.get() != "[]" {
        let changes = json::exact_indented(waiting.coercions.get(), 14);
        lines.push(format!("corrections   {changes}"));
    }
    let short = &hash[..HASH_DIGITS_MIN.min(hash.len())];
    lines.push(format!("hash          {hash}"));
    let decides = format!("toolfleet calls {ruling} {call} --hash {short} --note WHY");
    format!("{}\n\n{decides}", folded(&lines.join("\n")))
}

fn names(approved_by: &[String]) -> String {
    match approved_by {
        [] => String::new(),
        names => format!(": {}", plain(&names.join(", "))),
    }
}
