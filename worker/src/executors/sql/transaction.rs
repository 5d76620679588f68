//! How a `transaction` ends: its answer is held against everything that could refuse it, then its call is ended in the very
//! transaction that had its effect. After COMMIT nothing is left to go wrong.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use fleet::{
    arguments::Schema,
    manifest::Manifest,
    outcome::Outcome,
    store::{
        complete,
        transaction::{BAD_RESULT, NOT_OURS, succeed},
    },
};
use serde_json::Value;

use super::{
    session::{Ended, Session},
    verdict::Cut,
};
use crate::executors::{AttemptContext, output};

/// Schemas of answers that are kept compiled.
const SCHEMAS_MAX: usize = 256;

/// What answers are held against, by tool and version.
#[derive(Debug, Default)]
pub(super) struct Schemas(Mutex<HashMap<(String, i32), Arc<Schema>>>);

impl Schemas {
    /// How a transaction of this tool ends.
    pub(super) fn ending(&self, manifest: &Manifest) -> Ending {
        let Some(source) = &manifest.output_schema else {
            return Ending { schema: None };
        };
        let version = (manifest.name.to_string(), manifest.version);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = known.get(&version) {
            return Ending {
                schema: Some(Arc::clone(schema)),
            };
        }
        // It was compiled when the manifest was applied.
        let schema = Schema::compile(source).ok().map(Arc::new);
        if known.len() >= SCHEMAS_MAX {
            known.clear();
        }
        known.extend(schema.clone().map(|schema| (version, schema)));
        Ending { schema }
    }
}

/// What is still to be done before COMMIT.
pub(super) struct Ending {
    schema: Option<Arc<Schema>>,
}

impl Ending {
    /// Ends the call, once the transaction commits. Returns the answer as it is kept.
    pub(super) async fn end(
        &self,
        session: &mut Session,
        answer: &str,
        context: &AttemptContext,
    ) -> Result<(String, complete::Ended), Ended> {
        let (answer, _mended) = output::json(answer.as_bytes())
            .map_err(|problem| Ended::Unusable(format!("the answer cannot be used: {problem}")))?;
        if let Some(schema) = &self.schema {
            let value: Value = serde_json::from_str(answer.get())
                .map_err(|_no_json| Ended::Unusable("the answer cannot be read".to_owned()))?;
            let wrong = schema.validate(&value);
            if let Some(first) = wrong.items().first() {
                return Err(Ended::Unusable(format!(
                    "the answer is not what output_schema says: {}",
                    first.sentence()
                )));
            }
        }
        session.step()?;
        let (call, attempt) = (context.call_id, context.attempt_id);
        let ended = succeed(session.connection(), call, attempt, answer.get())
            .await
            .map_err(refused)?;
        Ok((answer.get().to_owned(), ended))
    }
}

fn refused(error: sqlx::Error) -> Ended {
    match Ended::from(error) {
        Ended::Refused(refusal) if refusal.sqlstate == NOT_OURS => Ended::Taken,
        Ended::Refused(refusal) if refusal.sqlstate == BAD_RESULT => {
            Ended::Unusable(refusal.message)
        }
        other => other,
    }
}

/// What an attempt came to that was told to stop, for one that can be rolled back.
///
/// The tool has not said no: it was taken back. Whether that came in time is for the row to say.
pub(super) fn stopped(outcome: Outcome, cut: Cut) -> Outcome {
    match (outcome, cut) {
        (Outcome::DefiniteFailure(failure), Cut::Stop(reason)) if failure.code == reason.code() => {
            Outcome::Unknown(failure)
        }
        (outcome, _) => outcome,
    }
}
