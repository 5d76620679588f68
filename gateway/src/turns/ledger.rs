//! Turns as the ledger has them: their calls, which are those of a session, from the views.

use fleet::ids::Label;
use fleet_history::{
    calls::{calls, now},
    filter::Filter,
};
use serde_json::Value;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

use super::name::TurnName;
use crate::{refusal::Refused, speaker::CALLS_MAX, state::Gateway, views::looked};

/// How long a turn is found by its rows.
const BACK: Duration = Duration::hours(24);

/// The rows of a turn's calls.
#[derive(Debug)]
pub(crate) struct TurnRows {
    /// The oldest first.
    pub(crate) rows: Vec<Value>,
    /// When they were read, by the clock of Postgres.
    pub(crate) at: OffsetDateTime,
}

impl TurnRows {
    /// When the first of the calls was accepted; `None`: there is none.
    pub(crate) fn accepted_at(&self) -> Option<OffsetDateTime> {
        let times = self.rows.iter().filter_map(|row| {
            let at = row["accepted_at"].as_str()?;
            OffsetDateTime::parse(at, &Rfc3339).ok()
        });
        times.min()
    }
}

/// The rows of a turn's calls: two short questions to Postgres.
///
/// # Errors
///
/// The view cannot be read.
pub(crate) async fn rows(
    gateway: &Gateway,
    tenant: &Label,
    name: &TurnName,
) -> Result<TurnRows, Refused> {
    let views = &gateway.views;
    let at = looked(now(views)).await?;
    let filter = Filter {
        tenant: Some(tenant.clone()),
        session: Some(name.session()),
        since: Some(at.saturating_sub(BACK)),
        limit: i64::try_from(CALLS_MAX).unwrap_or(i64::MAX),
        ..Filter::default()
    };
    let found = looked(calls(views, &filter)).await?;
    let rows = found.iter().rev();
    let rows = rows.filter_map(|row| serde_json::from_str(row.json()).ok());
    Ok(TurnRows {
        rows: rows.collect(),
        at,
    })
}
