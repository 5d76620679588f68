//! What many calls are, page by page; and **which of them does a bulk operation leave alone?**
//!
//! Every rule of a single call holds for each of many, and where it is enforced is where it is enforced for one: this file only
//! spares calls for which the answer is known before, so that they are counted with their reason instead of being refused.

use std::fmt;

use fleet::{
    call::State,
    ids::CallId,
    mcp,
    store::{StoreError, settle::SettledAs},
};
use sqlx::{PgPool, QueryBuilder};
use uuid::Uuid;

use crate::filter::{Filter, conditions_of_calls};

/// The most calls of a page.
const PAGE_MAX: i64 = 1_000;

/// What is done to many calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkVerb {
    /// Take them back.
    Cancel,
    /// Make each again, as a new call.
    Retry {
        /// Also those whose tool said no for a reason of its own.
        business: bool,
        /// The state that was asked for: what was taken back or expired is made again only where that was said.
        state: Option<State>,
    },
    /// Say that they turned out to be this.
    Settle(SettledAs),
    /// Give them up.
    Discard,
}

/// Why a call is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftAlone {
    /// It may have been carried out, and may still be.
    InDoubt,
    /// Nobody will ever know whether it was carried out.
    EffectUnknown,
    /// It failed, and was carried out all the same: its answer could not be used, or came late.
    EffectHappened,
    /// It is open.
    NotOver,
    /// It is over.
    Over,
    /// It is not in doubt.
    NotInDoubt,
    /// It succeeded.
    Succeeded,
    /// It was taken back.
    Cancelled,
    /// It was not run in its time.
    Expired,
    /// Its tool said no, which another call would be told too.
    BusinessError,
    /// It did not fail by the system, so it is no dead letter.
    NotDead,
    /// The fleet made it, to ask about a call in doubt.
    Probe,
    /// It looked at an MCP server, for an operator who has been told what came of it.
    Look,
    /// Another call was made instead of it already.
    RetriedBefore,
    /// It was given up.
    DiscardedBefore,
    /// Its tool has sensitive fields, which the history does not show.
    Sensitive,
    /// Its tool takes no calls any more.
    VersionRetired,
    /// Another retry makes it again, or was killed at it.
    UnderWay,
    /// The same, so long ago that the key of its new call may have lapsed.
    Unsure,
}

impl LeftAlone {
    /// As a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InDoubt => "in_doubt",
            Self::EffectUnknown => "effect_unknown",
            Self::EffectHappened => "effect_happened",
            Self::NotOver => "not_over",
            Self::Over => "over",
            Self::NotInDoubt => "not_in_doubt",
            Self::Succeeded => "succeeded",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::BusinessError => "business_error",
            Self::NotDead => "not_dead",
            Self::Probe => "probe",
            Self::Look => "look",
            Self::RetriedBefore => "retried_before",
            Self::DiscardedBefore => "discarded_before",
            Self::Sensitive => "sensitive",
            Self::VersionRetired => "version_retired",
            Self::UnderWay => "under_way",
            Self::Unsure => "unsure",
        }
    }
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What must be known of a call before it is one of many.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BulkCall {
    call_id: Uuid,
    /// Its tenant.
    pub tenant: String,
    /// Its tool.
    pub tool: String,
    /// Its state.
    pub state: String,
    outcome: Option<String>,
    effect_known: Option<String>,
    /// The code of its error.
    pub code: Option<String>,
    sensitive: bool,
    is_probe: bool,
    marked: Option<String>,
    happened_late: bool,
    takes_calls: bool,
    reserved: Option<String>,
    /// The name of the retry of many that makes it again, where one does.
    pub reserved_by: Option<String>,
}

impl BulkCall {
    /// Its id.
    pub const fn id(&self) -> CallId {
        CallId(self.call_id)
    }
}

/// Why this call is left alone; `None`: it is not.
pub fn left_alone(verb: BulkVerb, call: &BulkCall) -> Option<LeftAlone> {
    let is_in_doubt = call.state == State::InDoubt.as_str();
    let is_open = call.outcome.is_none();
    match verb {
        BulkVerb::Settle(_) => (!is_in_doubt).then_some(LeftAlone::NotInDoubt),
        _any if is_in_doubt => Some(LeftAlone::InDoubt),
        BulkVerb::Cancel => (!is_open).then_some(LeftAlone::Over),
        _over if is_open => Some(LeftAlone::NotOver),
        BulkVerb::Retry { business, state } => not_retried(call, business, state),
        BulkVerb::Discard => not_discarded(call),
    }
}

fn not_retried(call: &BulkCall, business: bool, asked: Option<State>) -> Option<LeftAlone> {
    let ended_unasked = |state: State| call.state == state.as_str() && asked != Some(state);
    let is = |found: &Option<String>, word: &str| found.as_deref() == Some(word);
    let reasons = [
        (
            call.state == State::Succeeded.as_str(),
            LeftAlone::Succeeded,
        ),
        (call.is_probe, LeftAlone::Probe),
        (is_look(call), LeftAlone::Look),
        (is(&call.effect_known, "unknown"), LeftAlone::EffectUnknown),
        (has_happened(call), LeftAlone::EffectHappened),
        (is(&call.marked, "retried"), LeftAlone::RetriedBefore),
        (is(&call.marked, "discarded"), LeftAlone::DiscardedBefore),
        (ended_unasked(State::Cancelled), LeftAlone::Cancelled),
        (ended_unasked(State::Expired), LeftAlone::Expired),
        (
            is(&call.outcome, "business_error") && !business,
            LeftAlone::BusinessError,
        ),
        (call.sensitive, LeftAlone::Sensitive),
        (!call.takes_calls, LeftAlone::VersionRetired),
    ];
    first(&reasons)
}

/// Why the ledger will refuse a call that is not left alone: somebody makes it again, who is not the retry of this name. `None`: as
/// far as is known it will not.
pub fn refused(verb: BulkVerb, own: Option<&str>, call: &BulkCall) -> Option<LeftAlone> {
    let reserved = call.reserved.as_deref();
    match verb {
        BulkVerb::Cancel | BulkVerb::Settle(_) => None,
        // Nobody knows of these whether there is a new call, the retry itself neither; a person who discards them has looked.
        BulkVerb::Retry { .. } if reserved == Some("unsure") => Some(LeftAlone::Unsure),
        BulkVerb::Retry { .. } | BulkVerb::Discard if reserved == Some("under_way") => {
            let is_own = own.is_some() && own == call.reserved_by.as_deref();
            (!is_own).then_some(LeftAlone::UnderWay)
        }
        BulkVerb::Retry { .. } | BulkVerb::Discard => None,
    }
}

fn not_discarded(call: &BulkCall) -> Option<LeftAlone> {
    let is = |found: &Option<String>, word: &str| found.as_deref() == Some(word);
    let has_failed = call.state == State::Failed.as_str() && is(&call.outcome, "system_error");
    let reasons = [
        (
            call.state == State::Succeeded.as_str(),
            LeftAlone::Succeeded,
        ),
        (call.is_probe, LeftAlone::Probe),
        (is_look(call), LeftAlone::Look),
        (is(&call.effect_known, "unknown"), LeftAlone::EffectUnknown),
        (has_happened(call), LeftAlone::EffectHappened),
        (is(&call.marked, "retried"), LeftAlone::RetriedBefore),
        (is(&call.marked, "discarded"), LeftAlone::DiscardedBefore),
        (!has_failed, LeftAlone::NotDead),
    ];
    first(&reasons)
}

/// Whether one of the fleet's own tools ran it that look at MCP servers: looking anew is asking anew.
fn is_look(call: &BulkCall) -> bool {
    mcp::is_for_operators(&call.tool)
}

/// A late answer of an attempt is a proof, whatever the call was settled as.
fn has_happened(call: &BulkCall) -> bool {
    call.effect_known.as_deref() == Some("applied") || call.happened_late
}

fn first(reasons: &[(bool, LeftAlone)]) -> Option<LeftAlone> {
    reasons
        .iter()
        .find(|(holds, _)| *holds)
        .map(|(_, why)| *why)
}

/// The newest calls of a filter, at most 1,000, the newest first. The last one is where the next page begins (`before`).
///
/// # Errors
///
/// The views cannot be read, or not in time.
pub async fn page(pool: &PgPool, filter: &Filter) -> Result<Vec<BulkCall>, StoreError> {
    let mut statement = QueryBuilder::new(
        // A new call goes to the newest version of its tool, whichever the old one had.
        "SELECT c.*, u.state AS reserved, u.name AS reserved_by, EXISTS (SELECT FROM toolfleet.tools t WHERE t.tool = c.tool AND t.current AND t.retired_at IS NULL) AS takes_calls,
                effect <> 'read' AND EXISTS (
                    SELECT FROM toolfleet.attempts a WHERE a.call_id = c.call_id AND a.late AND a.outcome = 'applied') AS happened_late
         FROM (
             SELECT call_id, tenant, tool, effect, state, outcome, effect_known, error->>'code' AS code, sensitive,
                    probe_of IS NOT NULL AS is_probe, marked
             FROM toolfleet.calls
             WHERE true",
    );
    conditions_of_calls(&mut statement, filter);
    statement
        .push(" ORDER BY call_id DESC LIMIT ")
        .push_bind(PAGE_MAX)
        .push(
            ") c
         LEFT JOIN LATERAL (SELECT state, name FROM toolfleet.retries_under_way r WHERE r.call_id = c.call_id LIMIT 1) u ON true
         ORDER BY c.call_id DESC",
        );
    statement
        .build_query_as()
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx("read a page of calls", error))
}

#[cfg(test)]
mod tests;
