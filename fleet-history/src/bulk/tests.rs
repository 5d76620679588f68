use super::*;

fn call(state: &str, outcome: Option<&str>) -> BulkCall {
    BulkCall {
        call_id: Uuid::nil(),
        tenant: "default".to_owned(),
        tool: "look".to_owned(),
        state: state.to_owned(),
        outcome: outcome.map(str::to_owned),
        effect_known: outcome.map(|_| "none".to_owned()),
        code: None,
        sensitive: false,
        is_probe: false,
        marked: None,
        happened_late: false,
        takes_calls: true,
        reserved: None,
        reserved_by: None,
    }
}

const fn retry(business: bool, state: Option<State>) -> BulkVerb {
    BulkVerb::Retry { business, state }
}

const RETRY: BulkVerb = retry(false, None);

#[test]
fn each_verb_takes_what_it_is_for_and_names_the_reason_for_the_rest() {
    let (cancel, settle, discard) = (
        BulkVerb::Cancel,
        BulkVerb::Settle(SettledAs::Applied),
        BulkVerb::Discard,
    );
    type Row<'a> = (&'a str, Option<&'a str>, [Option<LeftAlone>; 4]);
    let table: &[Row<'_>] = &[
        (
            "queued",
            None,
            [
                None,
                Some(LeftAlone::NotInDoubt),
                Some(LeftAlone::NotOver),
                Some(LeftAlone::NotOver),
            ],
        ),
        (
            "running",
            None,
            [
                None,
                Some(LeftAlone::NotInDoubt),
                Some(LeftAlone::NotOver),
                Some(LeftAlone::NotOver),
            ],
        ),
        (
            "in_doubt",
            None,
            [
                Some(LeftAlone::InDoubt),
                None,
                Some(LeftAlone::InDoubt),
                Some(LeftAlone::InDoubt),
            ],
        ),
        (
            "succeeded",
            Some("success"),
            [
                Some(LeftAlone::Over),
                Some(LeftAlone::NotInDoubt),
                Some(LeftAlone::Succeeded),
                Some(LeftAlone::Succeeded),
            ],
        ),
        (
            "failed",
            Some("system_error"),
            [
                Some(LeftAlone::Over),
                Some(LeftAlone::NotInDoubt),
                None,
                None,
            ],
        ),
        (
            "failed",
            Some("business_error"),
            [
                Some(LeftAlone::Over),
                Some(LeftAlone::NotInDoubt),
                Some(LeftAlone::BusinessError),
                Some(LeftAlone::NotDead),
            ],
        ),
        (
            "cancelled",
            Some("system_error"),
            [
                Some(LeftAlone::Over),
                Some(LeftAlone::NotInDoubt),
                Some(LeftAlone::Cancelled),
                Some(LeftAlone::NotDead),
            ],
        ),
        (
            "expired",
            Some("system_error"),
            [
                Some(LeftAlone::Over),
                Some(LeftAlone::NotInDoubt),
                Some(LeftAlone::Expired),
                Some(LeftAlone::NotDead),
            ],
        ),
    ];
    for (state, outcome, expected) in table {
        let call = call(state, *outcome);
        let found = [cancel, settle, RETRY, discard].map(|verb| left_alone(verb, &call));
        assert_eq!(found, *expected, "{state} {outcome:?}");
    }
}

#[test]
fn what_was_taken_back_or_expired_is_made_again_only_where_that_was_said() {
    let ended = |state: &str| call(state, Some("system_error"));
    for (state, why) in [
        (State::Cancelled, LeftAlone::Cancelled),
        (State::Expired, LeftAlone::Expired),
    ] {
        let asked = |state| retry(true, state);
        let call = ended(state.as_str());
        assert_eq!(left_alone(asked(None), &call), Some(why));
        assert_eq!(left_alone(asked(Some(State::Failed)), &call), Some(why));
        assert_eq!(left_alone(asked(Some(state)), &call), None);
    }
}

#[test]
fn what_may_have_had_its_effect_is_never_made_again() {
    let failed = |known: &str| BulkCall {
        effect_known: Some(known.to_owned()),
        ..call("failed", Some("system_error"))
    };
    let business = retry(true, None);
    let late = BulkCall {
        happened_late: true,
        ..failed("not_applied")
    };
    for verb in [RETRY, business, BulkVerb::Discard] {
        let why = Some(LeftAlone::EffectHappened);
        assert_eq!(left_alone(verb, &late), why);
    }
    for verb in [RETRY, business] {
        assert_eq!(
            left_alone(verb, &failed("unknown")),
            Some(LeftAlone::EffectUnknown)
        );
        assert_eq!(
            left_alone(verb, &failed("applied")),
            Some(LeftAlone::EffectHappened)
        );
        assert_eq!(left_alone(verb, &failed("not_applied")), None);
        assert_eq!(
            left_alone(verb, &call("in_doubt", None)),
            Some(LeftAlone::InDoubt)
        );
    }
    assert_eq!(
        left_alone(business, &call("failed", Some("business_error"))),
        None
    );
}

#[test]
fn what_cannot_be_made_again_says_why() {
    let failed = call("failed", Some("system_error"));
    let cases = [
        (
            BulkCall {
                sensitive: true,
                ..failed.clone()
            },
            LeftAlone::Sensitive,
        ),
        (
            BulkCall {
                takes_calls: false,
                ..failed.clone()
            },
            LeftAlone::VersionRetired,
        ),
        (
            BulkCall {
                is_probe: true,
                ..failed.clone()
            },
            LeftAlone::Probe,
        ),
        (
            BulkCall {
                tool: "mcp_discover_eu".to_owned(),
                ..failed.clone()
            },
            LeftAlone::Look,
        ),
        (
            BulkCall {
                marked: Some("retried".to_owned()),
                ..failed.clone()
            },
            LeftAlone::RetriedBefore,
        ),
        (
            BulkCall {
                marked: Some("discarded".to_owned()),
                ..failed
            },
            LeftAlone::DiscardedBefore,
        ),
    ];
    for (call, why) in cases {
        assert_eq!(left_alone(RETRY, &call), Some(why), "{call:?}");
    }
}

#[test]
fn what_another_retry_makes_again_is_told_before_the_ledger_refuses_it() {
    let reserved = |state: &str, by: Option<&str>| BulkCall {
        reserved: Some(state.to_owned()),
        reserved_by: by.map(str::to_owned),
        ..call("failed", Some("system_error"))
    };
    let (under_way, unsure) = (Some(LeftAlone::UnderWay), Some(LeftAlone::Unsure));
    let cases = [
        (
            RETRY,
            None,
            reserved("under_way", Some("monday")),
            under_way,
        ),
        (
            RETRY,
            Some("monday"),
            reserved("under_way", Some("monday")),
            None,
        ),
        (
            RETRY,
            Some("tuesday"),
            reserved("under_way", Some("monday")),
            under_way,
        ),
        (
            RETRY,
            Some("tuesday"),
            reserved("under_way", None),
            under_way,
        ),
        (
            RETRY,
            Some("monday"),
            reserved("unsure", Some("monday")),
            unsure,
        ),
        (
            BulkVerb::Discard,
            None,
            reserved("under_way", None),
            under_way,
        ),
        (BulkVerb::Discard, None, reserved("unsure", None), None),
        (BulkVerb::Cancel, None, reserved("under_way", None), None),
        (RETRY, None, call("failed", Some("system_error")), None),
    ];
    for (verb, own, call, why) in cases {
        assert_eq!(refused(verb, own, &call), why, "{verb:?} {own:?} {call:?}");
        assert_eq!(left_alone(verb, &call).is_some(), verb == BulkVerb::Cancel);
    }
}
