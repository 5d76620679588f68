//! **Whose answers may stand in arguments?** `{"$result": id}` stands for the answer of another call, so a token that is for some tools
//! only could read with it what tools answered that it is not for. Which call it is for is known from the call's own row. The same holds
//! for the messages of another call, for which `{"$call": id}` stands in a request to a model.

use std::collections::BTreeSet;

use fleet::{
    ids::{CallId, Label},
    references::{self, NoReferent, NoReferentWhy},
    said,
    wire::code::Code,
};

use crate::{ask::Dispatchers, asked::meant, auth::principal::Principal, refusal::Refused, value};

/// The most different answers that a request may refer to with a token of some tools only: each is asked for.
const REFERENTS_MAX: usize = 64;

/// Refuses arguments, each of these JSON texts by itself, that refer to the answer or the messages of a call that such a token may
/// not see; a call that does not exist is refused alike. What is wrong with them otherwise the door says.
///
/// # Errors
///
/// As said; or no dispatcher answers.
pub(crate) async fn may_stand(
    dispatchers: &Dispatchers,
    principal: &Principal,
    tenant: &Label,
    args: impl IntoIterator<Item = &[u8]> + Send,
) -> Result<(), Refused> {
    if principal.has_all_tools() {
        return Ok(());
    }
    let referents: BTreeSet<CallId> = args.into_iter().flat_map(referents).collect();
    if referents.len() > REFERENTS_MAX {
        let what = said!(
            "a request with a token of some tools refers to at most {REFERENTS_MAX} answers",
            "使用仅限部分工具的 token 时，一个请求最多引用 {REFERENTS_MAX} 个结果"
        );
        return Err(Refused::new(Code::PayloadTooLarge, what));
    }
    for call in referents {
        if meant(dispatchers, principal, tenant, call).await? != call {
            let none = NoReferent {
                place: String::new(),
                why: NoReferentWhy::NotFound,
            };
            return Err(Refused::new(none.code(), none.message()));
        }
    }
    Ok(())
}

/// The calls whose answers or messages these arguments refer to; none where they are wrong in another way.
fn referents(args: &[u8]) -> Vec<CallId> {
    let text = str::from_utf8(args).ok();
    let args = text.filter(|text| references::may_name_calls(text));
    let Some(args) = args.and_then(|args| value::read(args.as_bytes())) else {
        return Vec::new();
    };
    let found = references::references(&args).unwrap_or_default();
    let answers = found.into_iter().filter_map(|reference| reference.call);
    answers.chain(references::goes_on_from(&args)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_however_its_reference_is_written() {
        let id = CallId::generate();
        for args in [
            format!(r#"{{"a": {{"$result": "{id}"}}}}"#),
            format!(r#"{{"a": [{{"path": "/x", "\u0024result": "{id}"}}]}}"#),
            format!(r#"{{"messages": [{{"$call": "{id}"}}, {{"role": "user"}}]}}"#),
            format!(r#"{{"input": [{{"\u0024call": "{id}"}}]}}"#),
        ] {
            assert_eq!(referents(args.as_bytes()), [id], "{args}");
        }
        for args in [
            format!(r#"{{"a": "{id}"}}"#),
            format!(r#"{{"$result": "{id}"}}"#),
            "{".to_owned(),
        ] {
            assert!(referents(args.as_bytes()).is_empty(), "{args}");
        }
    }
}
