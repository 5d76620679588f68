//! Looks at the documented views, and says what a caller is told where they cannot be read.

use std::time::Duration;

use fleet::{
    store::{StoreError, session::within},
    telemetry::report,
    wire::{code::Code, message::Message},
};

use crate::refusal::Refused;

/// How long one statement may take, as Postgres writes it.
pub(crate) const STATEMENT_MAX: &str = "2s";

/// How long a look may take that is several statements: whoever looks is told so, also where Postgres says nothing at all.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// What a look at the views finds, as whoever asked for it is told. Dropping it is safe.
///
/// # Errors
///
/// They cannot be read, or it takes too long.
pub(crate) async fn looked<T>(
    look: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Refused> {
    in_time(look).await.map_err(|error| unreadable(&error))
}

/// The same of a look that bounds itself, and takes longer than others.
///
/// # Errors
///
/// As for [`looked`].
pub(crate) async fn looked_long<T>(
    look: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Refused> {
    let found = within("look through texts", 2 * LOOK_MAX, look).await;
    found.map_err(|error| unreadable(&error))
}

/// What a look at the views finds. Dropping it is safe.
///
/// # Errors
///
/// Those of the look; it takes too long.
pub(crate) async fn in_time<T>(
    look: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    within("look at the views", LOOK_MAX, look).await
}

/// Why there is no answer from the views.
fn unreadable(error: &StoreError) -> Refused {
    if error.took_too_long() {
        let what = Message::fixed(
            "the history holds too much to look through for this within 2 s",
            "历史记录太多，无法在 2 秒内完成这次查询",
        );
        return Refused::new(Code::NarrowIt, what);
    }
    tracing::debug!(error = report(error), "the views cannot be read");
    let what = Message::fixed(
        "the history cannot be read at the moment",
        "目前无法读取历史记录",
    );
    Refused::later(Code::StoreUnavailable, what)
}
