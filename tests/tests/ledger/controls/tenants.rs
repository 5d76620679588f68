//! A tenant's operators and the fleet's on one control: whose it is, and what the others see of it.

use fleet::{
    controls::ControlId,
    store::controls::{self, ControlKind, ControlSet, NewControl, Unset, WhichControl},
};
use serde_json::json;

use super::{TENANT, pause, read, unset, with_a_tool};

const HIDDEN: &str = "set by the fleet's operators";

#[tokio::test]
async fn what_the_fleets_operators_have_changed_is_theirs_and_no_tenants_operator_undoes_it() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let acme = "acme".parse().unwrap();
    let of_acme = NewControl {
        in_tenant: Some(&acme),
        actor: "tina",
        ..pause(TENANT)
    };
    let ControlSet::Set(first) = controls::set(pool, &of_acme).await.unwrap() else {
        panic!("nothing was there")
    };
    let legal = NewControl {
        setting: "\"refuse\"",
        note: "LEGAL",
        ..pause(TENANT)
    };
    let ControlSet::Changed(changed) = controls::replace(pool, &legal).await.unwrap() else {
        panic!("it was another one")
    };
    let (first, changed) = (read(&first), read(&changed));
    assert_eq!(changed["control_id"], first["control_id"]);

    let short = NewControl {
        for_ms: Some(1),
        ..of_acme
    };
    for undoing in [short, of_acme] {
        let refused = controls::replace(pool, &undoing).await.unwrap();
        let ControlSet::Conflict(there) = refused else {
            panic!("{refused:?}")
        };
        let there = read(&there);
        assert_eq!(
            (&there["setting"], &there["note"]),
            (&json!("refuse"), &json!(HIDDEN))
        );
    }
    let id = ControlId(first["control_id"].as_i64().unwrap());
    for which in [
        WhichControl::Id(id),
        WhichControl::IdOf(ControlKind::Pause, id),
        WhichControl::Scope(ControlKind::Pause, TENANT),
    ] {
        let undoing = Unset {
            in_tenant: Some(&acme),
            ..unset(which)
        };
        assert_eq!(controls::unset(pool, &undoing).await.unwrap(), None);
    }
    let notes = async |tenant| -> Vec<_> {
        let listed = controls::listed(pool, tenant).await.unwrap();
        listed.iter().map(|one| read(one)["note"].clone()).collect()
    };
    assert_eq!(notes(Some(&acme)).await, [json!(HIDDEN)]);
    assert_eq!(notes(None).await, [json!("LEGAL")]);
}

#[tokio::test]
async fn the_same_words_of_the_fleets_operator_are_another_control_than_a_tenants() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let acme = "acme".parse().unwrap();
    let of_acme = NewControl {
        in_tenant: Some(&acme),
        ..pause(TENANT)
    };
    controls::set(pool, &of_acme).await.unwrap();
    let own = controls::listed(pool, Some(&acme)).await.unwrap();
    assert_eq!(read(&own[0])["note"], "why");
    let of_the_fleet = pause(TENANT);
    let conflict = controls::set(pool, &of_the_fleet).await.unwrap();
    assert!(matches!(conflict, ControlSet::Conflict(_)), "{conflict:?}");
    let changed = controls::replace(pool, &of_the_fleet).await.unwrap();
    assert!(matches!(changed, ControlSet::Changed(_)), "{changed:?}");
    let theirs = controls::set(pool, &of_acme).await.unwrap();
    assert!(matches!(theirs, ControlSet::Conflict(_)), "{theirs:?}");
    let undoing = Unset {
        in_tenant: Some(&acme),
        ..unset(WhichControl::Scope(ControlKind::Pause, TENANT))
    };
    assert_eq!(controls::unset(pool, &undoing).await.unwrap(), None);
}
