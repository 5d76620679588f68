//! How many attempts a call has at most, by the version of its tool that it is made of.

use fleet::manifest::RetryPolicy;
use sqlx::{Postgres, QueryBuilder};

/// Appends the number for a row with `tool` and `tool_version`, as [`RetryPolicy::attempts_max`] has it; null where no version is known.
pub(crate) fn write(statement: &mut QueryBuilder<Postgres>, row: &str) {
    statement
        .push(
            "(SELECT CASE t.manifest->'retry'->>'strategy' WHEN 'none' THEN 1
                     ELSE coalesce((t.manifest->'retry'->>'max_attempts')::integer, ",
        )
        .push(RetryPolicy::default().max_attempts)
        .push(format_args!(
            ") END FROM toolfleet.tools t WHERE t.tool = {row}.tool AND t.version = {row}.tool_version)"
        ));
}
