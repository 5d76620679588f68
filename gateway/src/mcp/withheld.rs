//! What a caller is not told of a call that waits: the token with which somebody answers, where that is somebody else. Pure.

use bytes::Bytes;
use fleet::tokens::Scope;

use super::members::RawMembers;
use crate::auth::principal::Principal;

/// An answer about a call as this principal is shown it: without the token where it may hand in nothing, or where another one is asked.
pub(crate) fn shown_to(principal: &Principal, answer: &Bytes) -> Bytes {
    let may_hand_in = principal.may(&[Scope::Call]).is_ok();
    match may_hand_in && !is_asked_of_another(principal, answer) {
        true => answer.clone(),
        false => without_token(answer),
    }
}

fn is_asked_of_another(principal: &Principal, answer: &Bytes) -> bool {
    awaiting(answer).is_some_and(|awaiting| {
        let whom = awaiting.text("for").unwrap_or_default();
        is_of_another(principal, &whom, awaiting.text("principal").as_deref())
    })
}

/// Whether what a call waits for is asked of another than this principal. `whom`: for whom it waits, `maker`: who made it. A yes,
/// and what a tool wants to know, is for who made the call to say; what its program runs may be run by any program of the tenant.
pub(crate) fn is_of_another(principal: &Principal, whom: &str, maker: Option<&str>) -> bool {
    let is_for_maker = matches!(whom, "approval" | "input");
    is_for_maker && principal.name().is_some_and(|name| maker != Some(name))
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
    fn a_yes_and_an_input_are_for_who_made_the_call_to_say() {
        let ann = Principal::Named("ann".into());
        for (whom, maker, is_shown) in [
            ("approval", Some("ann"), true),
            ("approval", Some("bob"), false),
            ("approval", None, false),
            ("input", Some("ann"), true),
            ("input", Some("bob"), false),
            ("client", Some("bob"), true),
        ] {
            let answer = serde_json::json!({"awaiting": {"for": whom, "token": "secret", "principal": maker}});
            let shown = shown_to(&ann, &answer.to_string().into());
            let shown = String::from_utf8(shown.to_vec()).unwrap();
            assert_eq!(shown.contains("secret"), is_shown, "{whom} {maker:?}");
            let anybody = shown_to(&Principal::Anyone, &answer.to_string().into());
            assert_eq!(anybody, answer.to_string());
        }
    }

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
