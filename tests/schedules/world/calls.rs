//! The rows of calls, for the callers that wait for them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use fleet::{ids::CallId, wire::envelope::Envelope};

#[derive(Debug, Clone, Default)]
pub(crate) struct PgPool(Arc<Mutex<BTreeMap<CallId, Envelope>>>);

impl PgPool {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<CallId, Envelope>> {
        self.0.lock().expect("nobody yields while holding it")
    }

    /// The call is decided.
    pub(crate) fn decide(&self, call: CallId, envelope: Envelope) {
        let before = self.rows().insert(call, envelope);
        assert!(before.is_none(), "a call is decided once");
    }
}

pub(crate) mod read {
    //! What is asked about them.

    use std::io;

    use fleet::{ids::CallId, store::StoreError, wire::envelope::Envelope};

    use super::PgPool;
    use crate::world::once_in;

    pub(crate) struct Row {
        pub(crate) call_id: CallId,
        pub(crate) rev: i32,
        envelope: Envelope,
    }

    impl Row {
        pub(crate) fn envelope(&self, _replayed: bool) -> Result<Option<Envelope>, StoreError> {
            Ok(Some(self.envelope.clone()))
        }
    }

    /// Those of these calls that are decided.
    pub(crate) async fn decided(pool: &PgPool, calls: &[CallId]) -> Result<Vec<Row>, StoreError> {
        shuttle::future::yield_now().await;
        if once_in(8) {
            let doing = "read calls";
            let source = io::Error::from(io::ErrorKind::ConnectionReset).into();
            return Err(StoreError::Unavailable { doing, source });
        }
        let found = find(pool, calls);
        shuttle::future::yield_now().await;
        Ok(found)
    }

    fn find(pool: &PgPool, calls: &[CallId]) -> Vec<Row> {
        let rows = pool.rows();
        let decided = calls.iter().filter_map(|call| {
            let envelope = rows.get(call)?.clone();
            Some(Row {
                call_id: *call,
                rev: 1,
                envelope,
            })
        });
        decided.collect()
    }

    /// What one call came to.
    pub(crate) async fn one(pool: &PgPool, call: CallId) -> Option<Envelope> {
        shuttle::future::yield_now().await;
        let found = find(pool, &[call]).pop();
        shuttle::future::yield_now().await;
        found.map(|row| row.envelope)
    }
}
