//! Functions that reach beyond a statement: out of the database, out of the transaction, or into text that was not checked.
//!
//! The server's privileges confine a tool; this list tells its author early. `pg_notify` is allowed: it takes part in the
//! transaction and only sends a message. `pg_sleep` is allowed: the timeout bounds it.

const SETTINGS: &str = "it changes the session, which other tools use after it";
const FILES: &str = "it reaches the files of the server";
const PROCESSES: &str = "it acts on other sessions or on the server itself";
const LOCKS: &str = "its lock outlives the transaction; use pg_advisory_xact_lock";
const TEXTS: &str = "it runs a text as SQL, which cannot be checked; write the statement itself";
const ELSEWHERE: &str = "it reaches another database; write a tool for that database";
const LARGE: &str = "large objects belong to no schema; use bytea";

/// Names, or their beginnings before a `*`, and the reason.
const REFUSED: [(&str, &str); 58] = [
    ("set_config", SETTINGS),
    ("pg_read_file*", FILES),
    ("pg_read_binary_file*", FILES),
    ("pg_ls_*", FILES),
    ("pg_stat_file", FILES),
    ("pg_file_*", FILES),
    ("pg_hba_file_rules", FILES),
    ("pg_current_logfile", FILES),
    ("lo_import", FILES),
    ("lo_export", FILES),
    ("lo_creat", LARGE),
    ("lo_create", LARGE),
    ("lo_open", LARGE),
    ("lo_close", LARGE),
    ("lo_unlink", LARGE),
    ("lo_put", LARGE),
    ("lo_get", LARGE),
    ("lo_from_bytea", LARGE),
    ("lo_lseek*", LARGE),
    ("lo_tell*", LARGE),
    ("lo_truncate*", LARGE),
    ("lo_manage", LARGE),
    ("loread", LARGE),
    ("lowrite", LARGE),
    ("dblink*", ELSEWHERE),
    ("pg_terminate_backend", PROCESSES),
    ("pg_cancel_backend", PROCESSES),
    ("pg_reload_conf", PROCESSES),
    ("pg_rotate_logfile*", PROCESSES),
    ("pg_switch_wal", PROCESSES),
    ("pg_create_restore_point", PROCESSES),
    ("pg_backup_*", PROCESSES),
    ("pg_start_backup", PROCESSES),
    ("pg_stop_backup", PROCESSES),
    ("pg_promote", PROCESSES),
    ("pg_wal_replay_*", PROCESSES),
    ("pg_log_*", PROCESSES),
    ("pg_stat_reset*", PROCESSES),
    ("pg_logical_*", PROCESSES),
    ("pg_replication_*", PROCESSES),
    ("pg_create_logical_replication_slot", PROCESSES),
    ("pg_create_physical_replication_slot", PROCESSES),
    ("pg_copy_*", PROCESSES),
    ("pg_drop_replication_slot", PROCESSES),
    ("pg_export_snapshot", PROCESSES),
    ("pg_advisory_*", LOCKS),
    ("pg_try_advisory_*", LOCKS),
    ("query_to_xml*", TEXTS),
    ("cursor_to_xml*", TEXTS),
    ("table_to_xml*", TEXTS),
    ("schema_to_xml*", TEXTS),
    ("database_to_xml*", TEXTS),
    ("ts_stat", TEXTS),
    ("ts_rewrite", TEXTS),
    ("xpath_table", TEXTS),
    ("crosstab*", TEXTS),
    ("connectby", TEXTS),
    ("binary_upgrade_*", PROCESSES),
];
/// Their locks end with the transaction.
const ALLOWED: [&str; 2] = ["pg_advisory_xact_lock", "pg_try_advisory_xact_lock"];

/// Why a tool may not call this function, if it may not.
pub(super) fn refused(name: &str) -> Option<&'static str> {
    if ALLOWED.iter().any(|allowed| name.starts_with(allowed)) {
        return None;
    }
    let is_it = |listed: &str| match listed.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == listed,
    };
    let found = REFUSED.iter().find(|(listed, _)| is_it(listed));
    found.map(|(_, why)| *why)
}
