//! The same control once more: it is recognised, and one with an end is there for its whole time again where it replaces.

use fleet::store::controls::{self, ControlSet, NewControl};
use sqlx::PgPool;

use super::{TENANT, TOOL, count, pause, with_a_tool};

/// How much is left of the one control, in milliseconds.
async fn left(pool: &PgPool) -> i64 {
    let left = "SELECT (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint FROM toolfleet.live_controls";
    sqlx::query_scalar(left).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn the_same_control_with_an_end_begins_anew_where_it_replaces_and_only_there() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let short = NewControl {
        for_ms: Some(60_000),
        ..pause(TENANT)
    };
    controls::set(pool, &short).await.unwrap();
    let passes = "UPDATE toolfleet.live_controls SET expires_at = expires_at - interval '30 s'";
    sqlx::query(passes).execute(pool).await.unwrap();
    let again = controls::set(pool, &short).await.unwrap();
    assert!(matches!(again, ControlSet::Already(_)), "{again:?}");
    assert!(left(pool).await < 31_000);
    let longer = controls::replace(pool, &short).await.unwrap();
    assert!(matches!(longer, ControlSet::Changed(_)), "{longer:?}");
    assert!(left(pool).await > 50_000);
    // The log has it.
    assert_eq!(count(pool).await, (1, 2, 2));
}

#[tokio::test]
async fn the_same_control_without_an_end_is_recognised_even_where_it_replaces() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    controls::set(pool, &pause(TOOL)).await.unwrap();
    let again = controls::replace(pool, &pause(TOOL)).await.unwrap();
    assert!(matches!(again, ControlSet::Already(_)), "{again:?}");
    assert_eq!(count(pool).await, (1, 1, 1));
}
