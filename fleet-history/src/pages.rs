//! What changes what may run, page by page: controls, interceptors, breakers and limits, as who may see all tenants has them or as the
//! callers of one tenant do.
//!
//! Of a breaker, a limit or an interceptor that all tenants share, one tenant sees what it does and not what the others made of it: no
//! counts, no addresses of targets, no names of workers. Of controls it sees those of its own, as its operators do over NATS, without the
//! notes: the views do not say which of them the operators of the fleet wrote.

use fleet::{
    ids::{Label, ToolName},
    store::StoreError,
};
use serde::Deserialize;
use sqlx::{PgPool, Postgres, QueryBuilder};

use crate::row::Row;

/// Which rows, and who looks.
#[derive(Debug, Clone, Copy)]
pub struct PageOf<'a> {
    /// The tenant whose callers look; `None`: who may see all of them.
    pub tenant: Option<&'a Label>,
    /// What concerns this tool; `None`: every tool.
    pub tool: Option<&'a ToolName>,
    /// The most rows.
    pub limit: i64,
}

/// What tells one control from others.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct ControlPlace {
    /// Its id.
    pub control_id: i64,
}

/// What tells one breaker from others.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct BreakerPlace {
    /// Its id.
    pub breaker_id: i64,
}

/// What tells one interceptor from others.
#[derive(Debug, Clone, Deserialize)]
pub struct InterceptorPlace {
    /// Its name.
    pub name: String,
}

/// What tells one bucket of start times from others.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BucketPlace {
    /// Who shares it.
    pub shared_by: String,
    /// The limit's name.
    pub name: String,
    /// The tenant, where it has one of its own.
    pub tenant: Option<String>,
    /// The mark of the value, where it has one of its own.
    pub key: Option<String>,
}

impl BucketPlace {
    /// As one word, which leads back to it.
    pub fn to_word(&self) -> String {
        let or_none = |part: &Option<String>| part.clone().unwrap_or_default();
        let (tenant, key) = (or_none(&self.tenant), or_none(&self.key));
        [self.shared_by.as_str(), &self.name, &tenant, &key].join("/")
    }

    /// The place that a word leads to.
    pub fn of_word(word: &str) -> Option<Self> {
        let parts: Vec<&str> = word.split('/').collect();
        let [shared_by, name, tenant, key] = parts.as_slice() else {
            return None;
        };
        let if_any = |part: &&str| (!part.is_empty()).then(|| (*part).to_owned());
        Some(Self {
            shared_by: (*shared_by).to_owned(),
            name: (*name).to_owned(),
            tenant: if_any(tenant),
            key: if_any(key),
        })
    }
}

/// The controls that hold, the newest first; those older than `before`. With a tool those of it, and those of every tool.
///
/// # Errors
///
/// The view cannot be read.
pub async fn controls(
    pool: &PgPool,
    page: PageOf<'_>,
    before: Option<i64>,
) -> Result<Vec<Row<ControlPlace>>, StoreError> {
    let mut statement = QueryBuilder::new(
        "SELECT row_to_json(listed)::text FROM (
             SELECT control_id, kind, tool, queue, tenant, pointer, value, subject, setting, told, actor, ",
    );
    if page.tenant.is_none() {
        statement.push("note, role, ");
    }
    statement.push("set_at, expires_at, waiting FROM toolfleet.controls WHERE true");
    if let Some(tenant) = page.tenant {
        statement
            .push(" AND tenant = ")
            .push_bind(tenant.to_string());
    }
    if let Some(tool) = page.tool {
        statement
            .push(" AND (tool IS NULL OR tool = ")
            .push_bind(tool.to_string())
            .push(")");
    }
    if let Some(before) = before {
        statement.push(" AND control_id < ").push_bind(before);
    }
    statement.push(" ORDER BY control_id DESC");
    read("list controls", statement, pool, page).await
}

/// The interceptors that there are, by name; those after `after`. What operators have said of them is told as far as it is about the tool
/// and the tenant.
///
/// # Errors
///
/// The view cannot be read.
pub async fn interceptors(
    pool: &PgPool,
    page: PageOf<'_>,
    after: Option<&str>,
) -> Result<Vec<Row<InterceptorPlace>>, StoreError> {
    let mut statement = QueryBuilder::new(
        "SELECT row_to_json(listed)::text FROM (
             SELECT name, \"order\", mandatory, fails, budget_ms, workers, differ, ",
    );
    if page.tenant.is_none() {
        statement.push(
            "lacking, calls, continued, refused, waited, changed, errors, mean_ms, last_error, last_error_at, answered, ",
        );
    }
    statement
        .push("(SELECT coalesce(json_agg(m), '[]') FROM json_array_elements(modes) m WHERE true");
    let about = [
        ("tenant", page.tenant.map(ToString::to_string)),
        ("tool", page.tool.map(ToString::to_string)),
    ];
    for (field, named) in about {
        if let Some(named) = named {
            statement
                .push(format_args!(
                    " AND (m->>'{field}' IS NULL OR m->>'{field}' = "
                ))
                .push_bind(named)
                .push(")");
        }
    }
    statement.push(") AS modes FROM toolfleet.interceptors WHERE true");
    if let Some(after) = after {
        statement.push(" AND name > ").push_bind(after.to_owned());
    }
    statement.push(" ORDER BY name");
    read("list interceptors", statement, pool, page).await
}

/// The breakers, the newest first; those older than `before`.
///
/// # Errors
///
/// The view cannot be read.
pub async fn breakers(
    pool: &PgPool,
    page: PageOf<'_>,
    before: Option<i64>,
) -> Result<Vec<Row<BreakerPlace>>, StoreError> {
    let mut statement = QueryBuilder::new("SELECT row_to_json(listed)::text FROM (SELECT ");
    statement.push(match page.tenant {
        Some(_) => "breaker_id, tool, state, forced, opened_at, open_until",
        None => {
            "breaker_id, tool, target, state, forced, generation, opened_at, open_until, open_ms, probes_out, probes_ok, round_until, why, waiting"
        }
    });
    statement.push(" FROM toolfleet.breakers WHERE true");
    if let Some(tool) = page.tool {
        statement.push(" AND tool = ").push_bind(tool.to_string());
    }
    if let Some(before) = before {
        statement.push(" AND breaker_id < ").push_bind(before);
    }
    statement.push(" ORDER BY breaker_id DESC");
    read("list breakers", statement, pool, page).await
}

/// The buckets of start times, in the order of their places; those after `after`. With a tool those of it, and of their tools that one.
///
/// # Errors
///
/// The view cannot be read.
pub async fn limits(
    pool: &PgPool,
    page: PageOf<'_>,
    after: Option<&BucketPlace>,
) -> Result<Vec<Row<BucketPlace>>, StoreError> {
    const PLACE: &str = "(shared_by, name, coalesce(tenant, ''), coalesce(key, ''))";

    let mut statement =
        QueryBuilder::new("SELECT row_to_json(listed)::text FROM (SELECT name, shared_by, ");
    match page.tool {
        Some(tool) => statement
            .push("ARRAY[")
            .push_bind(tool.to_string())
            .push("::text] AS tools"),
        None => statement.push("tools"),
    };
    statement.push(", tenant, calls, per_ms, burst, control_id, next_start_at, closed_until, ");
    statement.push(match page.tenant {
        // What all tenants took together is not for one.
        Some(_) => {
            "CASE WHEN tenant IS NOT NULL THEN starts END AS starts, CASE WHEN tenant IS NOT NULL THEN used_at END AS used_at, key"
        }
        None => "starts, used_at, key",
    });
    statement.push(" FROM toolfleet.limits WHERE true");
    if let Some(tenant) = page.tenant {
        statement
            .push(" AND (tenant IS NULL OR tenant = ")
            .push_bind(tenant.to_string())
            .push(")");
    }
    if let Some(tool) = page.tool {
        statement
            .push(" AND ")
            .push_bind(tool.to_string())
            .push(" = ANY (tools)");
    }
    if let Some(after) = after {
        let or_none = |part: &Option<String>| part.clone().unwrap_or_default();
        statement.push(format_args!(" AND {PLACE} > ("));
        let mut place = statement.separated(", ");
        place.push_bind(after.shared_by.clone());
        place.push_bind(after.name.clone());
        place.push_bind(or_none(&after.tenant));
        place.push_bind(or_none(&after.key));
        statement.push(")");
    }
    statement.push(format_args!(" ORDER BY {PLACE}"));
    read("list limits", statement, pool, page).await
}

async fn read<T: Send + Unpin + 'static>(
    doing: &'static str,
    mut statement: QueryBuilder<Postgres>,
    pool: &PgPool,
    page: PageOf<'_>,
) -> Result<Vec<Row<T>>, StoreError> {
    statement
        .push(" LIMIT ")
        .push_bind(page.limit)
        .push(") listed");
    statement
        .build_query_scalar()
        .fetch_all(pool)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_and_its_word_lead_to_each_other() {
        for word in ["tool/charge//", "tenant/charge/acme/", "argument/a/b/0f"] {
            let place = BucketPlace::of_word(word).unwrap();
            assert_eq!(place.to_word(), word);
        }
        for other in ["", "tool", "tool/charge", "tool/charge/a/b/c"] {
            assert_eq!(BucketPlace::of_word(other), None, "{other}");
        }
    }
}
