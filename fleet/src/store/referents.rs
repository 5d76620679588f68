//! What arguments refer to: the answers of other calls, put in place of the references.

use serde_json::{Value, value::RawValue};
use sqlx::PgPool;
use tokio::sync::Semaphore;

use super::{StoreError, results};
use crate::{
    arguments::{self, Limits},
    ids::CallId,
    large_result::{is_remainder, part_at},
    references::{NoReferent, NoReferentWhy, REFERRED_MAX, Reference},
};

/// How many calls of a process have their references looked up at a time; others wait for their turn. Each holds one answer of
/// megabytes, several times over.
const AT_A_TIME: usize = 4;

/// Why references were not looked up.
#[derive(Debug, thiserror::Error)]
pub enum ReferentError {
    /// One of them stands for nothing.
    #[error("a reference in the arguments stands for nothing")]
    None(NoReferent),
    /// Postgres does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Puts in the place of each reference what it stands for among the answers of this tenant. Reads each call's answer once.
///
/// # Errors
///
/// See [`ReferentError`]; some of the references may have been replaced then.
pub async fn put_in(
    pool: &PgPool,
    tenant: &str,
    args: &mut Value,
    references: &[Reference],
) -> Result<(), ReferentError> {
    static TURNS: Semaphore = Semaphore::const_new(AT_A_TIME);
    // Never closed.
    let _turn = TURNS.acquire().await.ok();
    let none = |reference: &Reference, why| ReferentError::None(reference.none(why));
    let mut left = REFERRED_MAX;
    let mut waiting: Vec<&Reference> = references.iter().collect();
    while let Some(first) = waiting.first().copied() {
        let (these, others): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|other| other.call == first.call);
        waiting = others;
        let call = first.call;
        let call = call.ok_or_else(|| none(first, NoReferentWhy::NotFound))?;
        let result = results::result(pool, tenant, call).await?;
        let result = result.ok_or_else(|| none(first, NoReferentWhy::NotFound))?;
        let wanted: Vec<Reference> = these.into_iter().cloned().collect();
        // Megabytes: not on a thread that serves other calls.
        let cutting = tokio::task::spawn_blocking(move || parts(call, result, &wanted, left));
        let doing = "read an answer that arguments refer to";
        let broken_off = |_stopping| Err(StoreError::NotSent { doing }.into());
        let cut = cutting.await.unwrap_or_else(broken_off)?;
        left = cut.left;
        for (place, part) in cut.parts {
            let value = args.pointer_mut(&place);
            *value.expect("the place was found in these arguments") = part;
        }
    }
    Ok(())
}

/// The parts of an answer that are referred to, by their places.
struct Cut {
    parts: Vec<(String, Value)>,
    /// How many bytes there may be beside them.
    left: usize,
}

fn parts(
    call: CallId,
    result: String,
    wanted: &[Reference],
    mut left: usize,
) -> Result<Cut, ReferentError> {
    let first = &wanted[0];
    let raw = RawValue::from_string(result);
    let raw = raw.ok().filter(|raw| !is_remainder(call, raw));
    let raw = raw.ok_or_else(|| ReferentError::None(first.none(NoReferentWhy::NotFound)))?;
    let mut parts = Vec::with_capacity(wanted.len());
    for reference in wanted {
        let none = |why| ReferentError::None(reference.none(why));
        let part = part_at(&raw, &reference.path);
        let part = part.ok_or_else(|| none(NoReferentWhy::NoSuchPath))?.get();
        left = left
            .checked_sub(part.len())
            .ok_or_else(|| none(NoReferentWhy::TooLarge))?;
        // As deep as arguments may be, with what is around it.
        let limits = Limits {
            depth: Limits::DEFAULT.depth.saturating_sub(reference.depth()),
            ..Limits::ANSWER
        };
        let value = arguments::parse_any(part.as_bytes(), &limits);
        let value = value.map_err(|error| none(NoReferentWhy::Unfit(error)))?;
        parts.push((reference.place.clone(), value));
    }
    Ok(Cut { parts, left })
}
