//! What arguments refer to: the answers of other calls, put in place of the references.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use serde_json::{Value, value::RawValue};
use sqlx::PgPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    StoreError,
    results::{self, KeptResult, Which},
};
use crate::{
    arguments::{self, Limits},
    ids::CallId,
    large_result::{is_remainder, part_at},
    references::{NoReferent, NoReferentWhy, READ_MAX, REFERRED_MAX, Reference, VALUES_MAX},
};

/// How many calls of a process have their references looked up at a time: each holds answers of megabytes, several times over, and
/// a connection of the pool that others need, too.
const AT_A_TIME: usize = 2;

static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(AT_A_TIME)));

/// A turn to look up references. Held as long as the answers are worked on; a clone holds it, too.
#[derive(Debug, Clone)]
pub struct Turn {
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

/// Waits for a turn, in the order in which calls came. Cancel-safe.
pub async fn turn() -> Turn {
    // Never closed.
    let permit = Arc::clone(&TURNS).acquire_owned().await.ok();
    Turn {
        _permit: permit.map(Arc::new),
    }
}

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

/// Puts in the place of each reference what it stands for among the answers of this tenant. Reads each call's answer once. Returns
/// how long threads were kept by it.
///
/// # Errors
///
/// See [`ReferentError`]; some of the references may have been replaced then.
pub async fn put_in(
    turn: &Turn,
    pool: &PgPool,
    tenant: &str,
    args: &mut Value,
    references: &[Reference],
) -> Result<Duration, ReferentError> {
    let none = |reference: &Reference, why| ReferentError::None(reference.none(why));
    let mut left = Left {
        read: READ_MAX,
        bytes: REFERRED_MAX,
        values: VALUES_MAX,
    };
    let mut took = Duration::ZERO;
    let mut waiting: Vec<&Reference> = references.iter().collect();
    while let Some(first) = waiting.first().copied() {
        let (these, others): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|other| other.call == first.call);
        waiting = others;
        let call = first.call;
        let call = call.ok_or_else(|| none(first, NoReferentWhy::NotFound))?;
        let result = match results::result(pool, tenant, call, Which::Good, left.read).await? {
            Some(KeptResult::Text(result)) => result,
            Some(KeptResult::TooLarge) => return Err(none(first, NoReferentWhy::TooLarge)),
            None => return Err(none(first, NoReferentWhy::NotFound)),
        };
        left.read -= result.len();
        let wanted: Vec<Reference> = these.into_iter().cloned().collect();
        let turn = turn.clone();
        // Megabytes: not on a thread that serves other calls.
        let cutting = tokio::task::spawn_blocking(move || {
            // As long as the thread works, whatever has become of its call.
            let _turn = turn;
            let began = Instant::now();
            parts(call, result, &wanted, left).map(|cut| (cut, began.elapsed()))
        });
        let doing = "read an answer that arguments refer to";
        let broken_off = |_stopping| Err(StoreError::NotSent { doing }.into());
        let (cut, kept) = cutting.await.unwrap_or_else(broken_off)?;
        took += kept;
        left = cut.left;
        for (place, part) in cut.parts {
            let value = args.pointer_mut(&place);
            *value.expect("the place was found in these arguments") = part;
        }
    }
    Ok(took)
}

/// What there may be beside what is there already.
#[derive(Clone, Copy)]
struct Left {
    /// Bytes of answers that are read.
    read: usize,
    /// Bytes of what is referred to.
    bytes: usize,
    /// Values of it.
    values: usize,
}

/// The parts of an answer that are referred to, by their places.
struct Cut {
    parts: Vec<(String, Value)>,
    left: Left,
}

fn parts(
    call: CallId,
    result: String,
    wanted: &[Reference],
    mut left: Left,
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
        let bytes = left.bytes.checked_sub(part.len());
        left.bytes = bytes.ok_or_else(|| none(NoReferentWhy::TooLarge))?;
        // As deep as arguments may be, with what is around it.
        let limits = Limits {
            depth: Limits::DEFAULT.depth.saturating_sub(reference.depth()),
            nodes: left.values,
            ..Limits::ANSWER
        };
        let value = arguments::parse_any(part.as_bytes(), &limits);
        let value = value.map_err(|error| none(NoReferentWhy::Unfit(error)))?;
        let values = usize::try_from(arguments::count(&value)).unwrap_or(usize::MAX);
        left.values = left.values.saturating_sub(values);
        parts.push((reference.place.clone(), value));
    }
    Ok(Cut { parts, left })
}
