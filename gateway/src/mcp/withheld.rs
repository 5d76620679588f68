//! What a caller is not told of a call that waits: the token with which somebody answers, where that is somebody else. Pure.

use bytes::Bytes;
use fleet::tokens::Scope;

use super::members::RawMembers;
use crate::auth::principal::Principal;

/// An answer about a call, for who only looks at it: without the token where it may hand in nothing, and without that of an approval where
/// another principal made the call.
pub(crate) fn shown_to(principal: &Principal, answer: &Bytes) -> Bytes {
    let may_hand_in = principal.may(&[Scope::Call]).is_ok();
    match may_hand_in && !is_decided_by_another(principal, answer) {
        true => answer.clone(),
        false => without_token(answer),
    }
}

fn is_decided_by_another(principal: &Principal, answer: &Bytes) -> bool {
    let (Some(name), Some(awaiting)) = (principal.name(), awaiting(answer)) else {
        return false;
    };
    let is_approval = awaiting.text("for").as_deref() == Some("approval");
    is_approval && awaiting.text("principal").as_deref() != Some(name)
}

/// An answer about a call without the token with which its caller answers.
pub(super) fn without_token(answer: &Bytes) -> Bytes {
    match awaiting(answer) {
        None => answer.clone(),
        Some(awaiting) => {
            let members = RawMembers::of(answer).unwrap_or_default();
            let awaiting = awaiting.without("token");
            members.with("awaiting", awaiting).to_object()
        }
    }
}

fn awaiting(answer: &Bytes) -> Option<RawMembers> {
    let members = RawMembers::of(answer).ok()?;
    RawMembers::of(members.get("awaiting")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_call_is_shown_to_no_model_and_the_rest_stays_as_it_is() {
        let awaiting = Bytes::from_static(
            br#"{"call_id":"x","n":1.10,"awaiting":{"for":"input","token":"secret","until":"t"}}"#,
        );
        assert_eq!(
            &without_token(&awaiting)[..],
            br#"{"call_id":"x","n":1.10,"awaiting":{"for":"input","until":"t"}}"#
        );
        let other = Bytes::from_static(br#"{"call_id" : "x"}"#);
        assert_eq!(without_token(&other), other);
    }
}
