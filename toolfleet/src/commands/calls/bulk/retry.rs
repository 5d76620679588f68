//! Makes many calls again, as new calls in batches. Each old call is reserved before anything is sent, so that no other retry makes
//! it too; the key of the new call is one of the retry and the old call, so that the same retry makes none twice.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, anyhow, bail};
use async_nats::HeaderMap;
use fleet::{
    ids::{CallId, Label},
    store::{
        bulk_retries::{self, BegunRetry, BulkRetry},
        marks::{self, CallMark, NewMarks},
        reservations::{ReserveVerdict, Reserved, Reserver, release, reserve},
    },
};
use fleet_client::{
    FleetClient, Head,
    batch::BatchLimits,
    rounds::{BatchCall, BatchError},
};
use fleet_history::{
    bulk::{BulkCall, LeftAlone},
    filter::Filter,
    original::{Original, originals},
};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Came, Step};
use crate::commands::{ask::unanswered, usage::UsageError};

/// The retry of a name.
pub(in crate::commands::calls) struct RetryStep<'a> {
    pub(in crate::commands::calls) client: FleetClient,
    pub(in crate::commands::calls) pool: PgPool,
    pub(in crate::commands::calls) ledger: PgConnection,
    pub(in crate::commands::calls) name: &'a Label,
    /// What was given as filter, in one spelling.
    pub(in crate::commands::calls) spelled: String,
    pub(in crate::commands::calls) actor: &'a str,
    /// This process.
    pub(in crate::commands::calls) run: Uuid,
    /// Which retry of the name it is, once it has begun.
    pub(in crate::commands::calls) nonce: Option<Uuid>,
}

/// The retry that has the name already, where it is this one: its moments hold.
///
/// # Errors
///
/// The name was used with another filter, or Postgres does not answer.
pub(in crate::commands::calls) async fn begun_before(
    ledger: &mut PgConnection,
    name: &Label,
    spelled: &str,
) -> anyhow::Result<Option<BegunRetry>> {
    let found = bulk_retries::find(ledger, name.as_str()).await?;
    match found {
        Some(other) if other.retry.filter != spelled => Err(taken(name).into()),
        found => Ok(found),
    }
}

fn taken(name: &Label) -> UsageError {
    UsageError(format!(
        "the name {name} was used for other calls: the same name is the same flags. Give these flags another --name"
    ))
}

impl Step for RetryStep<'_> {
    async fn begin(&mut self, counted: Filter) -> anyhow::Result<Filter> {
        let (Some(since), Some(until), Some(newest)) =
            (counted.since, counted.until, counted.newest)
        else {
            bail!("a retry of many calls has two moments and a newest call");
        };
        let retry = BulkRetry {
            filter: self.spelled.clone(),
            since,
            until,
            newest,
            nonce: Uuid::new_v4(),
        };
        let begun =
            bulk_retries::begin(&mut self.ledger, self.name.as_str(), &retry, self.actor).await?;
        if begun.filter != self.spelled {
            return Err(taken(self.name).into());
        }
        self.nonce = Some(begun.nonce);
        // Another one of the same name may have begun since this one looked for it.
        Ok(counted.of_retry(&begun))
    }

    async fn take(&mut self, calls: &[BulkCall]) -> anyhow::Result<Vec<Came>> {
        let ids: Vec<CallId> = calls.iter().map(BulkCall::id).collect();
        let by = self.reserver()?;
        let (mut came, mut held) = (Vec::new(), Vec::new());
        for one in reserve(&mut self.ledger, by, &ids).await? {
            match instead(&one) {
                Some(other) => came.push(other),
                None => held.push(one.call_id),
            }
        }
        let asked = originals(&self.pool, &held).await?;
        // Dropped with its day since it was reserved.
        let dropped = held.len().saturating_sub(asked.len());
        came.extend(vec![Came::refused("not_found"); dropped]);
        let mut of_tenants: BTreeMap<String, Vec<Original>> = BTreeMap::new();
        for one in asked {
            of_tenants.entry(one.tenant.clone()).or_default().push(one);
        }
        for (tenant, asked) in of_tenants {
            let tenant = tenant.parse().context("read the call's tenant")?;
            came.extend(self.of_tenant(&tenant, &asked).await?);
        }
        Ok(came)
    }
}

/// What becomes of a call that this retry does not have; `None`: it has it.
fn instead(one: &Reserved) -> Option<Came> {
    match one.verdict {
        ReserveVerdict::Held => None,
        ReserveVerdict::EffectHappened => Some(Came::Left(LeftAlone::EffectHappened)),
        ReserveVerdict::EffectUnknown => Some(Came::Left(LeftAlone::EffectUnknown)),
        ReserveVerdict::RetriedBefore => Some(Came::Left(LeftAlone::RetriedBefore)),
        ReserveVerdict::DiscardedBefore => Some(Came::Left(LeftAlone::DiscardedBefore)),
        ReserveVerdict::UnderWay
        | ReserveVerdict::Unsure
        | ReserveVerdict::NotOver
        | ReserveVerdict::NotFound => Some(refused(one)),
    }
}

fn refused(one: &Reserved) -> Came {
    let code = one.verdict.as_str();
    let (name, next) = match &one.holder {
        Some(name) => (format!("the retry {name}"), "give its command again"),
        None => (
            "a retry of this one call".to_owned(),
            "give its command again, with the same --key and --anyway",
        ),
    };
    match one.verdict {
        ReserveVerdict::UnderWay => {
            let what = format!("{name} makes it again, or was killed at it: {next}");
            Came::refused_as(one.call_id, code, &what)
        }
        ReserveVerdict::Unsure => {
            let what = format!(
                "{name} may have made it again 23 hours ago or earlier: see whether there is a new call, then discard it by its id, or retry it with --anyway"
            );
            Came::refused_as(one.call_id, code, &what)
        }
        _word => Came::refused(code),
    }
}

impl<'a> RetryStep<'a> {
    fn nonce(&self) -> anyhow::Result<Uuid> {
        self.nonce.context("a retry begins before its first step")
    }

    fn reserver(&self) -> anyhow::Result<Reserver<'a>> {
        Ok(Reserver {
            name: Some(self.name.as_str()),
            retry: self.nonce()?,
            run: self.run,
        })
    }

    /// In as few batches as they fit in.
    async fn of_tenant(&mut self, tenant: &Label, asked: &[Original]) -> anyhow::Result<Vec<Came>> {
        let limits = BatchLimits::of(self.client.connection().max_payload());
        let mut came = Vec::new();
        let mut batch: Vec<(CallId, String)> = Vec::new();
        let mut bytes = 0;
        let nonce = self.nonce()?;
        for one in asked {
            let text = item(self.name, nonce, one)?;
            if batch.len() >= limits.calls || bytes + text.len() > limits.bytes {
                came.extend(self.batch(tenant, std::mem::take(&mut batch)).await?);
                bytes = 0;
            }
            bytes += text.len() + 1;
            batch.push((CallId(one.call_id), text));
        }
        came.extend(self.batch(tenant, batch).await?);
        Ok(came)
    }

    /// Sends a batch until each call has its answer, and marks those that have a new call.
    async fn batch(
        &mut self,
        tenant: &Label,
        batch: Vec<(CallId, String)>,
    ) -> anyhow::Result<Vec<Came>> {
        let (ids, calls): (Vec<CallId>, Vec<BatchCall>) = batch
            .into_iter()
            .map(|(id, text)| {
                let has_key = true;
                (id, BatchCall { text, has_key })
            })
            .unzip();
        let headers = HeaderMap::new();
        let mut rounds = self.client.rounds(tenant, &headers, calls);
        let mut heads: HashMap<usize, Head> = HashMap::new();
        while let Some(answered) = rounds.next().await.map_err(stopped)? {
            for one in answered {
                let envelope = one.answer.context("a call with a key has an answer")?;
                let head = Head::of(envelope.as_bytes()).context("read the answer")?;
                heads.insert(one.place, head);
            }
        }
        let is_unsure = rounds.is_unsure();
        let (mut came, mut made, mut unmade) = (Vec::new(), Vec::new(), Vec::new());
        for (place, head) in heads {
            match head.call_id {
                Some(new) if !head.is_refused() => {
                    made.push((ids[place], Some(new)));
                    came.push(Came::Done(if head.replayed {
                        "there_already"
                    } else {
                        "made"
                    }));
                }
                found => {
                    if found.is_none() && head.is_refused() && head.nothing_happened() && !is_unsure
                    {
                        unmade.push(ids[place]);
                    }
                    came.push(Came::refused_as(ids[place], head.code(), head.message()));
                }
            }
        }
        if !made.is_empty() {
            let marks = NewMarks {
                what: CallMark::Retried,
                actor: self.actor,
                note: None,
                bulk_name: Some(self.name.as_str()),
                calls: &made,
            };
            marks::mark(&mut self.ledger, &marks).await?;
        }
        if !unmade.is_empty() {
            let by = self.reserver()?;
            release(&mut self.ledger, by, &unmade).await?;
        }
        Ok(came)
    }
}

/// The new call as an element of a batch.
fn item(name: &Label, nonce: Uuid, asked: &Original) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct NewItem<'a> {
        tool: &'a str,
        args: &'a RawValue,
        idempotency_key: String,
        session: Option<&'a str>,
        run: Option<&'a str>,
        priority: &'a str,
        language: &'a str,
        meta: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        files: Option<&'a [Uuid]>,
    }

    let meta: Option<&RawValue> = asked
        .meta
        .as_deref()
        .map(serde_json::from_str)
        .transpose()
        .context("read the call's meta")?;
    let item = NewItem {
        tool: &asked.tool,
        args: serde_json::from_str(&asked.args).context("read the call's arguments")?,
        idempotency_key: format!("retry/{name}/{}/{}", nonce.simple(), asked.call_id),
        session: asked.session.as_deref(),
        run: asked.run.as_deref(),
        priority: &asked.priority,
        language: &asked.language,
        meta,
        files: asked.files.as_deref(),
    };
    Ok(serde_json::to_string(&item)?)
}

fn stopped(problem: BatchError) -> anyhow::Error {
    match problem {
        BatchError::Ask(problem) => unanswered(
            problem,
            "what was accepted is not sent a second time by the same command",
        ),
        BatchError::Refused { head, .. } => anyhow!("a batch was refused: {}", head.message()),
        BatchError::Miscounted { .. } => problem.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_call_has_the_old_ones_request_token_by_token_and_a_key_of_retry_and_call() {
        let asked = Original {
            call_id: Uuid::nil(),
            state: "failed".to_owned(),
            effect_known: Some("none".to_owned()),
            effect: "once".to_owned(),
            tenant: "acme".to_owned(),
            tool: "charge".to_owned(),
            args: r#"{"n":9007199254740993.10,"m": 1E2}"#.to_owned(),
            session: None,
            run: Some("r".to_owned()),
            priority: "low".to_owned(),
            language: "zh".to_owned(),
            meta: Some(r#"{"a":1.0}"#.to_owned()),
            files: Some(vec![Uuid::from_u128(2), Uuid::from_u128(3)]),
            sensitive: false,
            happened_late: false,
        };
        assert_eq!(
            item(&"monday".parse().unwrap(), Uuid::from_u128(1), &asked).unwrap(),
            concat!(
                r#"{"tool":"charge","args":{"n":9007199254740993.10,"m": 1E2},"#,
                r#""idempotency_key":"retry/monday/00000000000000000000000000000001/00000000-0000-0000-0000-000000000000","#,
                r#""session":null,"run":"r","#,
                r#""priority":"low","language":"zh","meta":{"a":1.0},"#,
                r#""files":["00000000-0000-0000-0000-000000000002","00000000-0000-0000-0000-000000000003"]}"#
            )
        );
    }
}
