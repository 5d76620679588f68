//! The role that sql tools with `database: fleet` log in as: what it must and must not be, and its grants.
//!
//! Read by one query, judged by a pure function, as the ground is. A tool's statement is not ours, so all that keeps it from
//! the ledger is what its role may do.

use std::time::Duration;

use secrecy::SecretString;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool};

use super::{
    StoreError,
    server_check::Finding,
    session::{Postgres, within},
};

/// Something about the role that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flaw {
    kind: String,
    /// The role that it may become and that has it, or what it concerns.
    of: String,
}

/// What is known of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRole {
    /// Its name.
    pub name: String,
    flaws: Vec<Flaw>,
}

const DOING: &str = "look at the role of the tools";
const LOOK_MAX: Duration = Duration::from_secs(6);
/// What a role for tools is called in advice.
const FRESH: &str = "toolfleet_tool";
/// Things of the ledger that are named in one sentence.
const SHOWN_MAX: usize = 3;

impl ToolRole {
    /// Whatever is wrong with the role of this name, one row of two texts each; none: it does not exist is a row too. Tables come
    /// last, for there may be more of them than are shown.
    pub const LOOK: &str = "\
        WITH me AS (SELECT * FROM pg_catalog.pg_roles WHERE rolname = $1), \
        reach AS (SELECT r.* FROM pg_catalog.pg_roles r, me WHERE r.oid = me.oid \
              OR NOT me.rolsuper AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER')), \
        ours AS (SELECT oid, nspname, nspowner FROM pg_catalog.pg_namespace WHERE nspname IN ('toolfleet', 'toolfleet_tool')) \
        SELECT 'missing' AS kind, $1 AS of WHERE NOT EXISTS (SELECT FROM me) \
        UNION ALL SELECT 'ungranted', me.rolname::text FROM me WHERE NOT EXISTS ( \
              SELECT FROM ours o JOIN pg_catalog.pg_proc p ON p.pronamespace = o.oid AND p.proname = 'succeed' \
              WHERE o.nspname = 'toolfleet_tool' AND pg_catalog.has_schema_privilege(me.oid, o.oid, 'USAGE') \
                AND pg_catalog.has_function_privilege(me.oid, p.oid, 'EXECUTE')) \
        UNION ALL SELECT 'no_login', rolname::text FROM me WHERE NOT rolcanlogin \
        UNION ALL SELECT power, r.rolname::text FROM reach r \
              CROSS JOIN LATERAL (VALUES ('SUPERUSER', r.rolsuper), ('CREATEROLE', r.rolcreaterole), \
                                         ('CREATEDB', r.rolcreatedb), ('REPLICATION', r.rolreplication), \
                                         ('BYPASSRLS', r.rolbypassrls)) AS powers (power, has) WHERE has \
        UNION ALL SELECT 'member', r.rolname::text FROM reach r WHERE r.rolname IN ('pg_read_all_data', 'pg_write_all_data', \
                     'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files', 'pg_signal_backend', \
                     'pg_create_subscription', 'pg_maintain') \
        UNION ALL SELECT 'owns_database', r.rolname::text FROM pg_catalog.pg_database d JOIN reach r ON r.oid = d.datdba \
              WHERE d.datname = pg_catalog.current_database() \
        UNION ALL SELECT 'owns', o.nspname::text FROM ours o JOIN reach r ON r.oid = o.nspowner \
        UNION ALL SELECT DISTINCT 'reaches', 'schema ' || o.nspname FROM ours o, reach r \
              WHERE o.nspname = 'toolfleet' AND (pg_catalog.has_schema_privilege(r.oid, o.oid, 'USAGE') \
                                                 OR pg_catalog.has_schema_privilege(r.oid, o.oid, 'CREATE')) \
                 OR o.nspname = 'toolfleet_tool' AND pg_catalog.has_schema_privilege(r.oid, o.oid, 'CREATE') \
        UNION ALL SELECT DISTINCT 'reaches', 'table ' || c.relname FROM ours o \
              JOIN pg_catalog.pg_class c ON c.relnamespace = o.oid AND c.relkind IN ('r', 'p', 'v', 'm'), reach r \
              WHERE pg_catalog.has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') \
        LIMIT 50";

    /// Looks at a role of this name. One statement, which takes no lock; anybody may.
    ///
    /// # Errors
    ///
    /// Postgres does not answer.
    pub async fn look(connection: &mut PgConnection, name: &str) -> Result<Self, StoreError> {
        let looking = async {
            let rows = sqlx::query_as(Self::LOOK)
                .bind(name)
                .fetch_all(connection)
                .await;
            rows.map_err(|error| StoreError::from_sqlx(DOING, error))
        };
        let rows: Vec<(String, String)> = within(DOING, LOOK_MAX, looking).await?;
        Ok(Self {
            name: name.to_owned(),
            flaws: rows
                .into_iter()
                .map(|(kind, of)| Flaw { kind, of })
                .collect(),
        })
    }

    /// What the rows of [`Self::LOOK`] say of a role.
    pub fn of(name: String, rows: Vec<Vec<String>>) -> Self {
        let flaw = |row: Vec<String>| {
            let mut row = row.into_iter();
            Some(Flaw {
                kind: row.next()?,
                of: row.next()?,
            })
        };
        let flaws = rows.into_iter().filter_map(flaw).collect();
        Self { name, flaws }
    }

    /// What makes it unfit, whatever it is granted. Empty: it may be granted what it needs.
    pub fn findings(&self) -> Vec<Finding> {
        let flaws = self.flaws.iter().filter(|flaw| flaw.kind != "ungranted");
        let name = quoted(&self.name);
        let another = |what: String| Finding {
            what,
            advice: format!("name another role: CREATE ROLE {FRESH} LOGIN PASSWORD '…' makes one"),
        };
        // What reaches everything, nothing can be taken from: one sentence says it.
        if flaws
            .clone()
            .any(|flaw| flaw.kind == "SUPERUSER" && flaw.of == self.name)
        {
            let what = format!("role {name} is a superuser, from whom nothing can be kept");
            return vec![another(what)];
        }
        if let Some(owned) = flaws.clone().find(|flaw| flaw.kind == "owns") {
            let what = format!(
                "role {name} is, or may become, the owner of schema {}",
                owned.of
            );
            return vec![another(what)];
        }
        if let Some(missing) = flaws.clone().find(|flaw| flaw.kind == "missing") {
            return vec![self.finding(missing)];
        }
        let (reaches, others): (Vec<&Flaw>, Vec<&Flaw>) =
            flaws.partition(|flaw| flaw.kind == "reaches");
        let mut found: Vec<Finding> = others.into_iter().map(|flaw| self.finding(flaw)).collect();
        found.extend(self.reaching(&reaches));
        found
    }

    /// All of the ledger that it reaches, in one sentence.
    fn reaching(&self, flaws: &[&Flaw]) -> Option<Finding> {
        let name = quoted(&self.name);
        let shown: Vec<&str> = flaws
            .iter()
            .take(SHOWN_MAX)
            .map(|flaw| flaw.of.as_str())
            .collect();
        let more = match flaws.len().saturating_sub(SHOWN_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = format!(
            "role {name} reaches {}{more} of the ledger",
            shown.join(", ")
        );
        let advice = format!(
            "REVOKE what it was granted there, directly or by a membership, FROM {name}, or name another role"
        );
        (!flaws.is_empty()).then_some(Finding { what, advice })
    }

    /// Whether it has been granted what it needs.
    pub fn is_granted(&self) -> bool {
        !self.flaws.iter().any(|flaw| flaw.kind == "ungranted") && !self.is_missing()
    }

    /// Whether there is no such role.
    pub fn is_missing(&self) -> bool {
        self.flaws.iter().any(|flaw| flaw.kind == "missing")
    }

    fn finding(&self, flaw: &Flaw) -> Finding {
        let (name, Flaw { kind, of }) = (quoted(&self.name), flaw);
        let through = if *of == self.name {
            String::new()
        } else {
            format!(" by its membership in {}", quoted(of))
        };
        let member = || {
            if *of == self.name {
                format!("ALTER ROLE {name} NO{kind}")
            } else {
                format!("REVOKE {} FROM {name}", quoted(of))
            }
        };
        let (what, advice) = match kind.as_str() {
            "missing" => (
                format!("there is no role {name}"),
                format!("CREATE ROLE {name} LOGIN PASSWORD '…'"),
            ),
            "no_login" => (
                format!("role {name} cannot log in"),
                format!("ALTER ROLE {name} LOGIN"),
            ),
            "member" => (
                format!("role {name} is a member of {of}, which reaches past its own tables"),
                format!("REVOKE {} FROM {name}", quoted(of)),
            ),
            "owns_database" => (
                format!("role {name} owns the database{through}"),
                "let another role own it".to_owned(),
            ),
            power => (format!("role {name} has {power}{through}"), member()),
        };
        Finding { what, advice }
    }
}

/// Who may call the function, beside its owner; `PUBLIC` is everybody.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn granted(pool: &PgPool) -> Result<Vec<String>, StoreError> {
    let looking = async {
        let names = sqlx::query_scalar(
            "SELECT DISTINCT coalesce(r.rolname::text, 'PUBLIC') FROM pg_catalog.pg_proc p \
             JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'toolfleet_tool' \
             CROSS JOIN LATERAL pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a \
             LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee \
             WHERE p.proname = 'succeed' AND a.grantee <> p.proowner ORDER BY 1 LIMIT 50",
        )
        .fetch_all(pool)
        .await;
        names.map_err(|error| StoreError::from_sqlx(DOING, error))
    };
    within(DOING, LOOK_MAX, looking).await
}

/// Grants the role what the connections of tools need, and nothing else. Safe to repeat.
///
/// # Errors
///
/// Postgres does not answer, or our own role may not.
pub async fn grant(postgres: &Postgres, name: &str) -> Result<(), StoreError> {
    let doing = "grant the role of the tools its function";
    let granting = async {
        let mut connection = PgConnection::connect_with(&postgres.options_for_migration()).await?;
        let role = quoted(name);
        // A name of the server's own, quoted.
        let sql = format!(
            "GRANT USAGE ON SCHEMA toolfleet_tool TO {role}; \
             GRANT EXECUTE ON FUNCTION toolfleet_tool.succeed(uuid, uuid, json) TO {role}"
        );
        connection.execute(AssertSqlSafe(sql)).await
    };
    granting
        .await
        .map(drop)
        .map_err(|error| StoreError::from_sqlx(doing, error))
}

/// What keeps a worker from running tools on this URL. Empty: it is the ledger's own database, by a role that is fit for it.
///
/// # Errors
///
/// One of the two does not answer.
pub async fn unfit(ledger: &Postgres, tools: &SecretString) -> Result<Vec<Finding>, StoreError> {
    let Ok(tools) = Postgres::new(tools, "toolfleet tools") else {
        return Ok(vec![Finding {
            what: "it is not a postgres:// URL".to_owned(),
            advice: "write postgres://role:password@host:port/database".to_owned(),
        }]);
    };
    let (ours, theirs) = (
        place(&mut ledger.connect_to_look().await?).await?,
        place(&mut tools.connect_to_look().await?).await?,
    );
    let mut found = Vec::new();
    if (&ours.server, &ours.database) != (&theirs.server, &theirs.database) {
        found.push(Finding {
            what: "it leads to another database than DATABASE_URL".to_owned(),
            advice: "name the same server and database; only the role differs".to_owned(),
        });
    }
    if ours.role == theirs.role {
        found.push(Finding {
            what: format!(
                "it logs in as {}, the role of DATABASE_URL",
                quoted(&theirs.role)
            ),
            advice: "use a role of its own: `toolfleet migrate --tool-role NAME` says how"
                .to_owned(),
        });
        return Ok(found);
    }
    let role = ToolRole::look(&mut ledger.connect_to_look().await?, &theirs.role).await?;
    found.extend(role.findings());
    if found.is_empty() && !role.is_granted() {
        found.push(Finding {
            what: format!(
                "role {} may not use schema toolfleet_tool",
                quoted(&role.name)
            ),
            advice: format!("run `toolfleet migrate --tool-role {}`", role.name),
        });
    }
    Ok(found)
}

/// Where a connection leads, and as whom.
struct Place {
    server: String,
    database: String,
    role: String,
}

async fn place(connection: &mut PgConnection) -> Result<Place, StoreError> {
    let looking = async {
        let row = sqlx::query_as(
            "SELECT (SELECT system_identifier::text FROM pg_catalog.pg_control_system()), \
                    (SELECT oid::text FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()), \
                    session_user::text",
        )
        .fetch_one(connection)
        .await;
        row.map_err(|error| StoreError::from_sqlx(DOING, error))
    };
    let (server, database, role) = within(DOING, LOOK_MAX, looking).await?;
    Ok(Place {
        server,
        database,
        role,
    })
}

/// As SQL spells a name.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(flaws: &[(&str, &str)]) -> ToolRole {
        let flaw = |(kind, of): &(&str, &str)| Flaw {
            kind: (*kind).to_owned(),
            of: (*of).to_owned(),
        };
        ToolRole {
            name: "tools".to_owned(),
            flaws: flaws.iter().map(flaw).collect(),
        }
    }

    #[test]
    fn every_flaw_says_what_to_do() {
        for (kind, of, what, advice) in [
            ("missing", "tools", "no role", "CREATE ROLE \"tools\" LOGIN"),
            (
                "no_login",
                "tools",
                "cannot log in",
                "ALTER ROLE \"tools\" LOGIN",
            ),
            (
                "CREATEROLE",
                "tools",
                "has CREATEROLE",
                "ALTER ROLE \"tools\" NOCREATEROLE",
            ),
            (
                "BYPASSRLS",
                "boss",
                "membership in \"boss\"",
                "REVOKE \"boss\" FROM \"tools\"",
            ),
            (
                "member",
                "pg_read_all_data",
                "pg_read_all_data",
                "REVOKE \"pg_read_all_data\"",
            ),
            (
                "owns_database",
                "tools",
                "owns the database",
                "another role",
            ),
            (
                "owns",
                "toolfleet",
                "the owner of schema toolfleet",
                "name another role",
            ),
            (
                "reaches",
                "schema toolfleet",
                "reaches schema toolfleet",
                "REVOKE",
            ),
        ] {
            let found = role(&[(kind, of)]).findings();
            assert_eq!(found.len(), 1, "{kind}");
            assert!(found[0].what.contains(what), "{}", found[0]);
            assert!(found[0].advice.contains(advice), "{}", found[0]);
        }
    }

    #[test]
    fn a_role_that_lacks_only_its_grants_is_fit_for_them() {
        let fresh = role(&[("ungranted", "tools")]);
        assert_eq!(fresh.findings(), []);
        assert!(!fresh.is_granted());
        assert!(role(&[]).is_granted());
        assert!(!role(&[("missing", "tools"), ("ungranted", "tools")]).is_granted());
    }

    #[test]
    fn of_a_superuser_one_thing_is_said() {
        let found = role(&[("SUPERUSER", "tools"), ("reaches", "schema toolfleet")]).findings();
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("is a superuser"), "{}", found[0]);
        assert!(
            found[0].advice.starts_with("name another role"),
            "{}",
            found[0]
        );
    }

    #[test]
    fn everything_that_it_reaches_is_one_sentence() {
        let tables: Vec<String> = (0..40).map(|n| format!("table t{n}")).collect();
        let flaws: Vec<(&str, &str)> = tables.iter().map(|of| ("reaches", of.as_str())).collect();
        let found = role(&flaws).findings();
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].what,
            "role \"tools\" reaches table t0, table t1, table t2 and 37 more of the ledger"
        );
    }
}
