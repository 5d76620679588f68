//! The name of each statement, and the changes to its text.

use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use super::{Rewrite, Statement};

/// How the statements of the lanes begin.
const LANES: [(Statement, &str); 4] = [
    (
        Statement::Accept,
        include_str!("../../../../../fleet/src/store/sql/accept.sql"),
    ),
    (
        Statement::Claim,
        include_str!("../../../../../fleet/src/store/sql/claiming_worker.sql"),
    ),
    (
        Statement::Complete,
        include_str!("../../../../../fleet/src/store/sql/complete.sql"),
    ),
    (
        Statement::Complete,
        include_str!("../../../../../fleet/src/store/sql/end_running.sql"),
    ),
];
/// So much of them tells them from all others, and is the same in all their variants.
const HEAD: usize = 150;
const BEAT: &[u8] = b"SET beat = beat + 1";

/// Which statement this is.
pub(super) fn statement(sql: &[u8]) -> Statement {
    let begins = |text: &str| sql.starts_with(&text.as_bytes()[..HEAD]);
    if let Some((statement, _)) = LANES.iter().find(|(_, text)| begins(text)) {
        *statement
    } else if sql.windows(BEAT.len()).any(|words| words == BEAT) {
        Statement::Beat
    } else {
        Statement::Other
    }
}

/// Which statement this is when it is not prepared. Transactions are ended so, those of tools between something else.
pub(super) fn simple_statement(sql: &[u8]) -> Statement {
    if sql.trim_ascii_end() == b"COMMIT" || sql.starts_with(b"SELECT; COMMIT") {
        Statement::Commit
    } else {
        statement(sql)
    }
}

/// Changes made to the text of statements.
#[derive(Debug, Default)]
pub(super) struct Rewrites(RwLock<Vec<(Rewrite, AtomicU64)>>);

impl Rewrites {
    /// These and no others, counted from now on.
    pub(super) fn set(&self, rewrites: Vec<Rewrite>) {
        let rewrites = rewrites.into_iter();
        let counted = rewrites.filter(|one| !one.find.is_empty());
        let counted = counted.map(|one| (one, AtomicU64::new(0))).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = counted;
    }

    /// How many statements each has changed.
    pub(super) fn counts(&self) -> Vec<u64> {
        let rewrites = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let counts = rewrites
            .iter()
            .map(|(_, count)| count.load(Ordering::SeqCst));
        counts.collect()
    }

    /// The statement with all changes. `None`: there is nothing to change.
    pub(super) fn apply(&self, sql: &[u8]) -> Option<String> {
        let rewrites = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if rewrites.is_empty() {
            return None;
        }
        let mut changed: Option<String> = None;
        for (rewrite, count) in rewrites.iter() {
            let text = match &changed {
                Some(changed) => changed,
                None => str::from_utf8(sql).ok()?,
            };
            if text.contains(&rewrite.find) {
                changed = Some(text.replace(&rewrite.find, &rewrite.replace));
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_statement_is_itself_and_no_other() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fleet/src/store/sql");
        for file in fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let expected = match path.file_stem().unwrap().to_str().unwrap() {
                "accept" => Statement::Accept,
                // They begin alike.
                "claim" | "claim_limited" | "claiming_worker" => Statement::Claim,
                "complete" | "end_running" => Statement::Complete,
                _others => Statement::Other,
            };
            let sql = fs::read_to_string(&path).unwrap();
            let worker = fs::read_to_string(format!("{folder}/claiming_worker.sql")).unwrap();
            let sql = sql.replace("/* claiming worker */", &worker);
            for locks in ["", "SKIP LOCKED"] {
                let sql = sql.replace("/* locks */", locks);
                assert_eq!(statement(sql.as_bytes()), expected, "{}", path.display());
            }
        }
        let workers = include_str!("../../../../../fleet/src/store/workers.rs");
        assert_eq!(statement(workers.as_bytes()), Statement::Beat);
    }

    #[test]
    fn a_commit_is_known_behind_others() {
        for commit in ["COMMIT", "SELECT; COMMIT; RESET ALL", "COMMIT "] {
            assert_eq!(simple_statement(commit.as_bytes()), Statement::Commit);
        }
        for other in ["SELECT 'COMMIT'", "ROLLBACK", "COMMIT; BEGIN"] {
            assert_eq!(simple_statement(other.as_bytes()), Statement::Other);
        }
    }

    #[test]
    fn changes_follow_one_another_and_are_counted() {
        let rewrites = Rewrites::default();
        let rewrite = |find: &str, replace: &str| Rewrite {
            find: find.to_owned(),
            replace: replace.to_owned(),
        };
        assert_eq!(rewrites.apply(b"SELECT 1"), None);
        rewrites.set(vec![
            rewrite("1", "2"),
            rewrite("2", "3"),
            rewrite("x", "y"),
        ]);
        assert_eq!(rewrites.apply(b"SELECT 1").as_deref(), Some("SELECT 3"));
        assert_eq!(rewrites.apply(b"SELECT now()"), None);
        assert_eq!(rewrites.counts(), [1, 1, 0]);
    }
}
