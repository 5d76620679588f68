//! The ground the other files stand on.

use fleet::store::session::Postgres;
use fleet_tests::postgres::Database;

#[tokio::test]
async fn each_test_has_a_migrated_database_of_its_own_on_safe_ground() {
    let (one, other) = tokio::join!(Database::fresh(), Database::fresh());
    assert_ne!(one.url, other.url);
    for database in [&one, &other] {
        fleet::store::migrate::check_schema(&database.postgres)
            .await
            .unwrap();
        let _checked: sqlx::PgConnection = Postgres::connect(&database.postgres).await.unwrap();
    }
}
