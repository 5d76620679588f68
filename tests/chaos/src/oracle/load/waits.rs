//! What calls wait for that need a yes, and who has said what.

use anyhow::{Context as _, Result};
use fleet::manifest::ApprovalSpec;
use serde_json::Value;
use sqlx::PgPool;

use super::{Row, rows};
use crate::oracle::{
    clock::Clock,
    facts::{Approval, Decision},
};

/// Which calls of a tool need a yes, as its manifest says.
pub(super) fn approval(written: &Value) -> Result<Option<Approval>> {
    if written.is_null() {
        return Ok(None);
    }
    let spec: ApprovalSpec =
        serde_json::from_value(written.clone()).context("a tool's approval")?;
    let above = spec.when.first().and_then(|when| when.value.as_u64());
    Ok(Some(Approval {
        count: spec.count.into(),
        above,
    }))
}

pub(super) async fn decisions(pool: &PgPool, clock: &Clock) -> Result<Vec<Decision>> {
    let decisions = "SELECT json_build_object('call_id', call_id, 'decision', decision, 'at', (extract(epoch FROM at) * 1000)::bigint, \
                     'actor', actor, 'args_hash', args_hash) FROM toolfleet.approvals";
    let rows = rows(pool, "view approvals", decisions).await?;
    let read = rows.into_iter().map(|row| {
        let row = Row { row, clock };
        Ok(Decision {
            call_id: row.needed("call_id")?,
            is_yes: row.needed("decision")? == "approve",
            at: row.moment("at").context("at")?,
            actor: row.needed("actor")?,
            args_hash: row.needed("args_hash")?,
        })
    });
    read.collect()
}
