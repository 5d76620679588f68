//! Cancels a call in a person's name.

use fleet::{ids::Label, wire::code::Code};
use fleet_client::{Answer, AskError, FleetClient, calls::Cancelling};

/// The answer, and whether the name of the person is in no history.
pub(super) struct TakenBack {
    pub(super) answer: Answer,
    pub(super) is_nameless: bool,
}

/// Cancels it. A dispatcher of the release before refuses a request with an actor and does nothing: it is asked again without one.
///
/// # Errors
///
/// [`FleetClient::cancel`].
pub(super) async fn take_back(
    client: &FleetClient,
    tenant: &Label,
    cancelling: Cancelling<'_>,
) -> Result<TakenBack, AskError> {
    let answer = client.cancel(tenant, &cancelling).await?;
    if !is_of_release_before(&answer) {
        return Ok(TakenBack {
            answer,
            is_nameless: false,
        });
    }
    let nameless = Cancelling {
        actor: None,
        ..cancelling
    };
    Ok(TakenBack {
        answer: client.cancel(tenant, &nameless).await?,
        is_nameless: true,
    })
}

/// Whether it is the refusal of a dispatcher that knows no `actor`: one that does names it in every refusal that may be about it.
fn is_of_release_before(answer: &Answer) -> bool {
    answer.head().is_ok_and(|head| {
        head.code() == Code::InvalidArguments.as_str() && !head.message().contains("actor")
    })
}
