//! Rights in Postgres: the roles of a fleet, and what the role of a process may do beyond its needs.
//!
//! `deploy/postgres/roles.sql` says which role may do what, and is what [`grant`] sends. What a role has beyond it is read by
//! one query over the server's own functions, so memberships and the rights of PUBLIC count.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::{
    StoreError,
    session::{Postgres, within},
};

/// The roles and everything that is granted to them, as they are shipped.
pub const ROLES: &str = include_str!("../../../deploy/postgres/roles.sql");

/// What a process, or a person at the command line, does with the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Accepts calls, publishes and sweeps.
    Dispatcher,
    /// Runs calls.
    Worker,
    /// Applies tools, fences workers, settles doubts.
    Operator,
    /// Reads the views.
    Reader,
    /// Reads the views, and the hashes of tokens.
    Gateway,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Dispatcher,
        Self::Worker,
        Self::Operator,
        Self::Reader,
        Self::Gateway,
    ];

    /// The role that has what it needs.
    pub const fn role(self) -> &'static str {
        match self {
            Self::Dispatcher => "toolfleet_dispatcher",
            Self::Worker => "toolfleet_worker",
            Self::Operator => "toolfleet_operator",
            Self::Reader => "toolfleet_reader",
            Self::Gateway => "toolfleet_gateway",
        }
    }
}

const DOING: &str = "look at the rights of a role";
const LOOK_MAX: Duration = Duration::from_secs(6);
/// Things that are named in one sentence.
const SHOWN_MAX: usize = 5;
/// What the passwords of the examples have in common.
const EXAMPLE: &str = "change-me";

/// What `$1`, or the role of this session, has that a process does not need, as clauses; what the role `$2` has counts as
/// needed. What reaches everything comes first.
const BEYOND: &str = "\
    WITH me AS (SELECT r.* FROM pg_catalog.pg_roles r WHERE r.rolname = coalesce($1, current_user)), \
    reach AS (SELECT r.* FROM pg_catalog.pg_roles r, me WHERE r.oid = me.oid \
              OR NOT me.rolsuper AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER')), \
    ours AS (SELECT c.* FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'p', 'v') \
             AND c.relnamespace = pg_catalog.to_regnamespace('toolfleet')), \
    needed AS (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $2) \
    SELECT 0 AS place, 'is a superuser' AS what FROM me WHERE rolsuper \
    UNION ALL SELECT DISTINCT 1, 'owns the tables of the ledger' FROM ours JOIN reach r ON r.oid = ours.relowner \
    UNION ALL SELECT DISTINCT 2, 'owns the database' FROM pg_catalog.pg_database d JOIN reach r ON r.oid = d.datdba \
          WHERE d.datname = pg_catalog.current_database() \
    UNION ALL SELECT DISTINCT 3, 'has ' || power FROM reach \
          CROSS JOIN LATERAL (VALUES ('BYPASSRLS', rolbypassrls), ('CREATEROLE', rolcreaterole), ('CREATEDB', rolcreatedb), \
                                     ('REPLICATION', rolreplication)) AS powers (power, has) WHERE has AND NOT rolsuper \
    UNION ALL SELECT DISTINCT 4, 'is a member of ' || r.rolname FROM reach r WHERE r.rolname IN ('pg_read_all_data', \
          'pg_write_all_data', 'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files', \
          'pg_signal_backend', 'pg_maintain') \
          AND NOT (r.rolname = 'pg_signal_backend' AND $2 = 'toolfleet_operator') \
    UNION ALL SELECT 5, 'may ' || p || ' ' || ours.relname FROM me CROSS JOIN ours \
          CROSS JOIN unnest(ARRAY['TRUNCATE', 'TRIGGER', 'INSERT', 'UPDATE', 'DELETE', 'SELECT']) AS p \
          WHERE pg_catalog.has_table_privilege(me.oid, ours.oid, p) \
            AND NOT coalesce((SELECT pg_catalog.has_table_privilege(n.oid, ours.oid, p) FROM needed n), \
                             p NOT IN ('TRUNCATE', 'TRIGGER')) \
    UNION ALL SELECT 6, 'may call ' || f.proname FROM me CROSS JOIN needed n \
          JOIN pg_catalog.pg_proc f ON f.pronamespace = pg_catalog.to_regnamespace('toolfleet') \
          WHERE pg_catalog.has_schema_privilege(me.oid, f.pronamespace, 'USAGE') \
            AND pg_catalog.has_function_privilege(me.oid, f.oid, 'EXECUTE') \
            AND NOT pg_catalog.has_function_privilege(n.oid, f.oid, 'EXECUTE') \
    ORDER BY 1, 2 LIMIT 200";

/// What the role `$1` may read and the role of this session may not; a row without a name where it is nothing, and no row where there is
/// no such role.
const UNREADABLE: &str = "\
    SELECT c.relname::text FROM pg_catalog.pg_roles n \
    LEFT JOIN pg_catalog.pg_class c \
        ON c.relkind IN ('r', 'p', 'v') AND c.relnamespace = pg_catalog.to_regnamespace('toolfleet') \
        AND pg_catalog.has_table_privilege(n.oid, c.oid, 'SELECT') \
        AND NOT pg_catalog.has_table_privilege(c.oid, 'SELECT') \
    WHERE n.rolname = $1 ORDER BY 1 LIMIT 200";

/// What the role of this connection may do beyond what the duty needs, in at most a few clauses; empty: nothing. One statement,
/// which takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn beyond(connection: &mut PgConnection, duty: Duty) -> Result<Vec<String>, StoreError> {
    beyond_of(connection, None, duty).await
}

async fn beyond_of(
    connection: &mut PgConnection,
    role: Option<&str>,
    duty: Duty,
) -> Result<Vec<String>, StoreError> {
    let looking = async {
        let rows = sqlx::query_as(BEYOND)
            .bind(role)
            .bind(duty.role())
            .fetch_all(connection)
            .await;
        rows.map_err(|error| StoreError::from_sqlx(DOING, error))
    };
    Ok(told(within(DOING, LOOK_MAX, looking).await?))
}

/// What of the ledger the role of this connection may not read although the duty needs it; `None`: the duty's role does not exist, so
/// nobody knows. One statement, which takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn unreadable(
    connection: &mut PgConnection,
    duty: Duty,
) -> Result<Option<Vec<String>>, StoreError> {
    let looking = async {
        let rows = sqlx::query_scalar(UNREADABLE)
            .bind(duty.role())
            .fetch_all(connection)
            .await;
        rows.map_err(|error| StoreError::from_sqlx(DOING, error))
    };
    let rows: Vec<Option<String>> = within(DOING, LOOK_MAX, looking).await?;
    let is_known = !rows.is_empty();
    Ok(is_known.then(|| rows.into_iter().flatten().collect()))
}

/// A superuser and an owner have everything: one clause says it.
fn told(rows: Vec<(i32, String)>) -> Vec<String> {
    let reaches_all = rows.first().is_some_and(|(place, _)| *place <= 1);
    let told = rows
        .into_iter()
        .filter(|(place, _)| !reaches_all || *place <= 4);
    let mut told: Vec<String> = told.map(|(_, what)| what).collect();
    if told.len() > SHOWN_MAX {
        let more = told.len() - SHOWN_MAX;
        told.truncate(SHOWN_MAX);
        told.push(format!("and {more} more"));
    }
    told
}

/// Whether a URL has the password of the examples.
pub fn has_example_password(url: &SecretString) -> bool {
    url.expose_secret().contains(EXAMPLE)
}

/// Logs what a process may do beyond its needs. It never fails: a process that may do too much still works.
pub async fn tell_beyond(postgres: &Postgres, url: &SecretString, duty: Duty) {
    let found = async {
        let mut connection = postgres.connect_to_look().await?;
        beyond(&mut connection, duty).await
    };
    match found.await {
        Ok(found) if found.is_empty() => {}
        Ok(found) => tracing::warn!(
            role = duty.role(),
            "this process may do more in Postgres than it needs: its role {}; deploy/postgres/roles.sql makes a role for it",
            found.join(", ")
        ),
        Err(error) => {
            let error = crate::telemetry::report(&error);
            tracing::debug!(error, "the rights of this process were not looked at");
        }
    }
    if has_example_password(url) {
        tracing::warn!("DATABASE_URL has the password of the example; choose one of your own");
    }
}

/// Grants each role of `deploy/postgres/roles.sql` what it needs and nothing else.
///
/// In one transaction; then it looks at what came of
/// it, and returns what a role may do beyond that, a clause each with the role's name; safe to repeat.
///
/// # Errors
///
/// Postgres does not answer; a role is missing and the role of this connection may not make it; it does not own the tables.
pub async fn grant(postgres: &Postgres) -> Result<Vec<String>, StoreError> {
    let doing = "grant the roles what they need";
    let failed = |error| StoreError::from_sqlx(doing, error);
    let options = postgres.options_for_migration();
    let mut connection = PgConnection::connect_with(&options).await.map_err(failed)?;
    connection
        .execute(sqlx::raw_sql(ROLES))
        .await
        .map_err(failed)?;
    let mut wrong = Vec::new();
    for duty in Duty::ALL {
        let role = duty.role();
        let granted = "SELECT pg_catalog.has_schema_privilege($1, 'toolfleet', 'USAGE')";
        let granted = sqlx::query_scalar(granted).bind(role);
        if !granted.fetch_one(&mut connection).await.map_err(failed)? {
            wrong.push(format!(
                "role {role} was granted nothing: run as the owner of the tables"
            ));
        }
        let beyond = beyond_of(&mut connection, Some(role), duty).await?;
        wrong.extend(beyond.into_iter().map(|what| format!("role {role} {what}")));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_everything_is_said_in_one_clause() {
        let row = |place, what: &str| (place, what.to_owned());
        let tables = (0..9).map(|n| row(5, &format!("may TRUNCATE t{n}")));
        let all = vec![row(0, "is a superuser"), row(2, "owns the database")];
        let said = told(all.into_iter().chain(tables.clone()).collect());
        assert_eq!(said, ["is a superuser", "owns the database"]);
        let said = told(tables.collect());
        assert_eq!(said.len(), SHOWN_MAX + 1);
        assert_eq!(said.last().map(String::as_str), Some("and 4 more"));
        assert!(told(Vec::new()).is_empty());
    }

    #[test]
    fn the_password_of_the_example_is_known() {
        let url = |text: &str| SecretString::from(text);
        assert!(has_example_password(&url(
            "postgres://toolfleet:change-me@h/d"
        )));
        assert!(!has_example_password(&url("postgres://toolfleet:x@h/d")));
    }
}
