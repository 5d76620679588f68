//! Whether sessions of the fleet wait for a lock, and for whose.

use std::time::Duration;

use fleet::store::locks::Blocker;

use super::check::{Check, age, count};

/// Transactions of the fleet itself are shorter than this.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// The same where Postgres does not say how long one is open. Statements of the fleet give up after a second and wait again.
const WAITED_MAX: Duration = Duration::from_millis(500);

/// A lock that is passed on at once is no finding.
pub(super) fn judge(blockers: &[Blocker]) -> Check {
    let name = "locks";
    let is_long = |blocker: &&Blocker| match blocker.open_for {
        Some(open_for) => open_for > OPEN_MAX,
        None => blocker.waited > WAITED_MAX,
    };
    let Some(blocker) = blockers.iter().find(is_long) else {
        return Check::ok(name, "no session of the fleet waits for one");
    };
    let waiting = usize::try_from(blocker.waiting).unwrap_or(usize::MAX);
    let who = match blocker.pid {
        Some(pid) => format!("process {pid} of user {}{}", blocker.user, program(blocker)),
        None => "a prepared transaction".to_owned(),
    };
    let open = blocker.open_for.map(|open_for| {
        let open_for = age(open_for.as_secs_f64());
        format!(", whose transaction is open for {open_for}")
    });
    let found = format!(
        "{} of the fleet {} for a lock of {who}{}: what needs it does not move meanwhile",
        count(waiting, "session"),
        if waiting == 1 { "waits" } else { "wait" },
        open.unwrap_or_default(),
    );
    let advice = match blocker.pid {
        Some(pid) => format!(
            "Commit or end that transaction: SELECT pg_terminate_backend({pid}), for which a superuser's session needs a superuser"
        ),
        None => "COMMIT PREPARED or ROLLBACK PREPARED it (pg_prepared_xacts)".to_owned(),
    };
    Check::fail(name, found, advice)
}

fn program(blocker: &Blocker) -> String {
    match blocker.program.as_str() {
        "" => String::new(),
        program => format!(" ({program})"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn blocker(pid: Option<i32>, open_for: Option<u64>, waited: u64) -> Blocker {
        Blocker {
            pid,
            user: "ada".to_owned(),
            program: "psql".to_owned(),
            open_for: open_for.map(Duration::from_secs),
            waiting: 3,
            waited: Duration::from_millis(waited),
        }
    }

    #[test]
    fn a_lock_that_stays_is_named_with_how_to_end_it() {
        assert_eq!(judge(&[]).status, Status::Ok);
        // Rivals of one moment.
        assert_eq!(judge(&[blocker(Some(7), Some(5), 900)]).status, Status::Ok);
        let check = judge(&[blocker(Some(4_711), Some(90), 20)]);
        assert_eq!(check.status, Status::Fail);
        assert!(
            check
                .found
                .contains("process 4711 of user ada (psql), whose transaction is open for 90 s"),
            "{}",
            check.found
        );
        assert!(check.advice.unwrap().contains("pg_terminate_backend(4711)"));
        // A user without the right to see since when.
        assert_eq!(judge(&[blocker(Some(7), None, 1_500)]).status, Status::Fail);
        let check = judge(&[blocker(None, None, 1_500)]);
        assert!(check.advice.unwrap().contains("ROLLBACK PREPARED"));
    }
}
