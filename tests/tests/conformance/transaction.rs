//! Transactions: SQL tools whose calls are ended with their effect.

use fleet::call::Effect;

use super::sql::Sql;

#[tokio::test(flavor = "multi_thread")]
async fn transactions_keep_every_promise() {
    let rig = Sql::new("transaction", &[Effect::Transaction]).await;
    super::kept(&conformance::exercise(&rig).await, 18);
}
