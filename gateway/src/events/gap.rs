//! Says what is missing, with what the rows of the history know: events are news, and the rows are right.

use fleet::{
    store::{PgPool, StoreError},
    telemetry::report,
};
use fleet_history::{
    calls::{calls, now},
    filter::Filter,
    tools::hidden,
};
use time::{Duration, OffsetDateTime};

use super::{
    begin::{Beginning, Missing},
    keeper::SessionOf,
    told::{CallOver, CallsSince, EventGap},
};
use crate::views::in_time;

/// How far the rows are looked at.
const BACK: Duration = Duration::hours(24);
/// The most calls that are looked at, the newest of them.
const CALLS_MAX: i64 = 256;

/// What is missing for a follower that begins there; `None`: nothing. Asks Postgres once or twice; where that does not answer, the gap is
/// told without rows.
pub(super) async fn look(
    views: &PgPool,
    of: &SessionOf,
    Beginning { behind, missing }: Beginning,
) -> Option<EventGap> {
    let gap = |calls| EventGap {
        behind: None,
        why: None,
        up_to: behind,
        calls,
    };
    match missing {
        Missing::Nothing => None,
        Missing::Older(before) => match in_time(rows(views, of, before)).await {
            Ok(rows) if rows.all.is_empty() => None,
            Ok(rows) => Some(gap(Some(rows.since()))),
            Err(error) => {
                tracing::debug!(
                    error = report(&error),
                    "the calls of a session cannot be read"
                );
                // A stream that has everything since it was made lacks something only where the rows say so.
                (behind.sequence > 0).then(|| gap(None))
            }
        },
        Missing::Behind(known, why) => {
            let read = in_time(rows(views, of, None)).await;
            let calls = read.inspect_err(|error| {
                tracing::debug!(
                    error = report(error),
                    "the calls of a session cannot be read"
                );
            });
            Some(EventGap {
                behind: Some(known),
                why: Some(why),
                ..gap(calls.ok().map(CallRows::since))
            })
        }
    }
}

/// The newest calls of a session, the newest first.
struct CallRows {
    all: Vec<CallOver>,
    more: bool,
}

impl CallRows {
    fn since(self) -> CallsSince {
        let decided = |call: &CallOver| {
            !matches!(
                call.state.as_str(),
                "queued" | "running" | "awaiting_client"
            )
        };
        let mut over: Vec<CallOver> = self.all.into_iter().filter(decided).collect();
        over.reverse();
        CallsSince {
            over,
            more: self.more,
        }
    }
}

async fn rows(
    views: &PgPool,
    of: &SessionOf,
    before: Option<OffsetDateTime>,
) -> Result<CallRows, StoreError> {
    let filter = Filter {
        tenant: Some(of.tenant.clone()),
        session: Some(of.session.clone()),
        since: Some(now(views).await?.saturating_sub(BACK)),
        until: before,
        limit: CALLS_MAX,
        ..Filter::default()
    };
    let found = calls(views, &filter).await?;
    let more = i64::try_from(found.len()) == Ok(CALLS_MAX);
    let read = found.iter().map(|row| serde_json::from_str(row.json()));
    // A row that this release cannot read is left out: nothing is better than a wrong word.
    let mut all: Vec<CallOver> = read.filter_map(Result::ok).collect();
    leave_out_hidden(views, &mut all).await?;
    Ok(CallRows { all, more })
}

/// Leaves out the calls of hidden tools, which have told the session nothing.
async fn leave_out_hidden(views: &PgPool, calls: &mut Vec<CallOver>) -> Result<(), StoreError> {
    let mut names: Vec<&str> = calls.iter().map(CallOver::tool).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(());
    }
    let hidden = hidden(views, &names).await?;
    calls.retain(|call| {
        !hidden
            .iter()
            .any(|(tool, version)| call.is_of(tool, *version))
    });
    Ok(())
}
