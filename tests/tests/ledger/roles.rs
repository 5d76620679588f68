//! The roles of `deploy/postgres/roles.sql`, the file that is shipped: every role tries everything.

use std::collections::BTreeSet;

use fleet::{
    breaker::BreakerId,
    ids::CallId,
    store::{
        breakers,
        migrate::migrate,
        read,
        rights::{self, Duty, ROLES},
        session::Postgres,
        starts,
    },
};
use fleet_tests::postgres::{Cluster, Database, MIGRATE};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

const CALL: &str = "INSERT INTO toolfleet.open_calls (call_id, tenant, tool, tool_version, effect, queue, line, priority, \
    key_retention_ms, args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before, done_secret) \
    VALUES ({id}, '{tenant}', 'charge', 1, 'once', 'default', 'default', 1, 0, '{}', '', 'en', gen_random_uuid(), now(), \
    now() + interval '1 hour', now(), gen_random_uuid())";
/// Makes a call of the history of one that runs, as a worker does.
const ENDED: &str = "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, \
    tool, tool_version, effect, queue, priority, key_retention_ms, args, args_hash, language, accepted_at, deadline_at, \
    finished_at, queued_ms, run_ms, attempts, attempt_id, worker_id, attempt_outcome, actor, reason) \
    SELECT call_id, rev + 1, state, 'succeeded', 'success', '{source}', 'applied', tenant, tool, tool_version, effect, queue, \
        priority, 0, args, args_hash, language, accepted_at, deadline_at, now(), 0, 0, attempts, {attempt}, worker_id, \
        'applied', '{actor}' || worker_id, 'applied' FROM ended";

/// What is tried, and whom it succeeds for: m(igrate), d(ispatcher), w(orker), o(perator), r(eader), g(ateway).
/// `{acme}` and `{beta}` are calls in doubt of two tenants, `{queued}`, `{running}` and `{over}` calls of acme.
const MATRIX: &[(&str, &str)] = &[
    // Calls.
    ("md", CALL),
    (
        "md",
        "INSERT INTO toolfleet.idempotency_keys VALUES ('acme', '\\x01', gen_random_uuid(), NULL, 'charge', 1, '', '')",
    ),
    (
        "mdw",
        "UPDATE toolfleet.open_calls SET state = 'running', attempt_id = gen_random_uuid(), worker_id = {worker}, \
             attempt_until = now() WHERE call_id = {queued}",
    ),
    (
        "mdw",
        "DELETE FROM toolfleet.open_calls WHERE call_id = {running}",
    ),
    (
        "mdw",
        "INSERT INTO toolfleet.call_notes VALUES ({queued}, 7, now(), 'queued', 'queued', 'me', 'why')",
    ),
    ("mdwo", "SELECT args FROM toolfleet.open_calls"),
    ("mdw", "SELECT done_secret FROM toolfleet.open_calls"),
    ("mdw", "SELECT result FROM toolfleet.finished_calls"),
    ("md", "SELECT tenant FROM toolfleet.idempotency_keys"),
    (
        "md",
        "SELECT toolfleet.key_lapsed({acme}), toolfleet.accepted_at({acme})",
    ),
    (
        "mdw",
        "SELECT toolfleet.applied_late({acme}), toolfleet.unknown_until({acme})",
    ),
    // Doubts. A worker ends one by the answer of the attempt, and by nothing else.
    (
        "mdo",
        "SELECT toolfleet.settle({acme}, 'applied', 'me', 'seen')",
    ),
    (
        "mdo",
        "SELECT toolfleet.settle({beta}, 'not_applied', 'me', 'seen', NULL, true)",
    ),
    ("mdo", "SELECT toolfleet.cancel({queued}, 'me')"),
    // Who may decide does so by the function, and nothing takes a decision back.
    (
        "mdo",
        "SELECT toolfleet.decide({acme}, 'approve', '00', 'me', 'seen')",
    ),
    ("mo", "SELECT * FROM toolfleet.call_decisions"),
    ("morg", "SELECT * FROM toolfleet.approvals"),
    (
        "m",
        "INSERT INTO toolfleet.call_decisions (call_id, decision, actor, role, note, args_hash) \
             VALUES ({acme}, 'approve', 'me', 'me', 'seen', '')",
    ),
    ("", "TRUNCATE toolfleet.call_decisions"),
    (
        "md",
        "DELETE FROM toolfleet.open_calls WHERE call_id = {acme}",
    ),
    (
        "md",
        "DELETE FROM toolfleet.open_calls WHERE call_id IN ({acme}, {beta})",
    ),
    ("mdw", "{ended: acme live o.attempt_id worker }"),
    ("mdw", "{ended: beta live o.attempt_id worker }"),
    ("md", "{ended: acme settled o.attempt_id worker }"),
    ("md", "{ended: acme live gen_random_uuid() worker }"),
    ("md", "{ended: beta live o.attempt_id me }"),
    (
        "",
        "UPDATE toolfleet.open_calls SET state = 'queued', attempt_id = NULL WHERE call_id = {acme}",
    ),
    (
        "m",
        "SELECT toolfleet.finish(o, 'failed', 'system_error', 'settled', 'not_applied', NULL, NULL, 'me', 'x', NULL) \
           FROM toolfleet.open_calls o WHERE call_id = {acme}",
    ),
    (
        "mdw",
        "SELECT toolfleet.quarantine(-1, 1, 'x', 1, 'x', '{}')",
    ),
    // History.
    (
        "",
        "UPDATE toolfleet.finished_calls SET result = NULL WHERE call_id = {over}",
    ),
    (
        "",
        "DELETE FROM toolfleet.finished_calls WHERE call_id = {over}",
    ),
    ("", "DELETE FROM toolfleet.{day} WHERE call_id = {over}"),
    ("", "TRUNCATE toolfleet.finished_calls"),
    ("", "TRUNCATE toolfleet.{day}"),
    ("", "TRUNCATE toolfleet.ended_attempts"),
    ("", "TRUNCATE toolfleet.call_notes_default"),
    ("m", "TRUNCATE toolfleet.open_calls"),
    ("m", "TRUNCATE toolfleet.tool_versions"),
    ("m", "DROP TABLE toolfleet.{day}"),
    (
        "m",
        "ALTER TABLE toolfleet.finished_calls DISABLE TRIGGER insert_only",
    ),
    (
        "m",
        "ALTER TABLE toolfleet.open_calls DISABLE TRIGGER doubts_are_settled",
    ),
    (
        "m",
        "CREATE TRIGGER mine BEFORE INSERT ON toolfleet.open_calls EXECUTE FUNCTION toolfleet.refuse_truncation()",
    ),
    ("", "SET session_replication_role = replica"),
    ("md", "SELECT toolfleet.drop_history('2000-01-01')"),
    ("md", "SELECT toolfleet.ensure_partitions(40)"),
    (
        "md",
        "SELECT toolfleet.fold_open_counts(1, 1), toolfleet.recount_open(), toolfleet.open_count('acme')",
    ),
    (
        "md",
        "SELECT toolfleet.set_autovacuum_threshold('open_calls', 1000)",
    ),
    ("mdw", "UPDATE toolfleet.open_counts SET n = n"),
    ("m", "DELETE FROM toolfleet.open_counts"),
    // Requests to models: a worker puts them on record and fills them, and changes nothing else of them.
    (
        "mw",
        "INSERT INTO toolfleet.model_requests (call_id, request_id, attempt_id, attempt, tenant, tool, tool_version, route, \
             model_asked, kind) VALUES ({acme}, {acme}, {acme}, 1, 'acme', 'ask', 1, 'main', 'm', 'answer')",
    ),
    (
        "mw",
        "UPDATE toolfleet.model_requests SET run_ms = 1, cost = 1, currency = 'USD' WHERE call_id = {acme}",
    ),
    (
        "mw",
        "SELECT toolfleet.fill_model_request({acme}, {acme}, 'm', 1, 1, 1, 0, 0, 1, 0, false, '1', 'USD', 'stop', NULL, 401::smallint, \
             'r', true)",
    ),
    ("m", "UPDATE toolfleet.model_requests SET tenant = 'beta'"),
    ("m", "DELETE FROM toolfleet.model_requests WHERE false"),
    ("", "TRUNCATE toolfleet.model_requests"),
    ("morg", "SELECT cost FROM toolfleet.model_calls"),
    (
        "mw",
        "INSERT INTO toolfleet.model_spend (tenant, tool, scope, key, currency, backend, day) \
             VALUES ('acme', 'ask', 'run', 'r', '', 1, now()) ON CONFLICT DO NOTHING",
    ),
    ("mw", "UPDATE toolfleet.model_spend SET calls = calls + 1"),
    ("m", "DELETE FROM toolfleet.model_spend"),
    (
        "mw",
        "INSERT INTO toolfleet.summaries (tenant, tool, hash, text) VALUES ('acme', 'ask', sha256('a'), 'a') \
             ON CONFLICT (tenant, tool, hash) DO UPDATE SET used_at = now() RETURNING text",
    ),
    ("m", "UPDATE toolfleet.summaries SET text = 'b'"),
    ("m", "DELETE FROM toolfleet.summaries"),
    ("md", "SELECT toolfleet.drop_summaries(now(), 1)"),
    (
        "md",
        "SELECT toolfleet.fold_model_spend(1, 1), toolfleet.drop_model_spend('2000-01-01', NULL, 1)",
    ),
    // Todo lists: functions write and drop them, and a worker reads the items.
    (
        "mw",
        "SELECT toolfleet.write_todos('acme', 's', {acme}, '{}', '{}', '{a}')",
    ),
    ("md", "SELECT toolfleet.drop_todos('2000-01-01', 1)"),
    ("mw", "SELECT title FROM toolfleet.todo_items"),
    ("morg", "SELECT title FROM toolfleet.todos"),
    ("m", "SELECT calls FROM toolfleet.todo_lists"),
    ("m", "UPDATE toolfleet.todo_items SET tenant = tenant"),
    // Files: functions write them, a worker reads those of its attempt through two others, and nobody else has the bytes.
    (
        "md",
        "SELECT toolfleet.begin_file(gen_random_uuid(), 'acme', 'a', 'a/b', 1, 0, 0)",
    ),
    (
        "md",
        "SELECT toolfleet.write_chunk({acme}, 'acme', 0, 'a'), toolfleet.finish_file({acme}, 'acme', 'a'), \
            toolfleet.delete_file({acme}, 'acme'), toolfleet.drop_files(1)",
    ),
    ("morgd", "SELECT toolfleet.is_named({acme})"),
    ("morg", "SELECT name FROM toolfleet.files"),
    ("md", "SELECT name FROM toolfleet.kept_files FOR KEY SHARE"),
    ("m", "UPDATE toolfleet.kept_files SET tenant = 'beta'"),
    ("m", "DELETE FROM toolfleet.kept_files"),
    ("md", "SELECT data FROM toolfleet.file_chunks"),
    (
        "m",
        "INSERT INTO toolfleet.file_chunks SELECT file_id, 0, 'a' FROM toolfleet.kept_files",
    ),
    (
        "md",
        "INSERT INTO toolfleet.call_files VALUES ({acme}, 1, {acme})",
    ),
    ("m", "DELETE FROM toolfleet.call_files"),
    (
        "mw",
        "SELECT toolfleet.attempt_files({acme}, {acme}), toolfleet.read_attempt_file({acme}, {acme}, {acme}, 0, 1)",
    ),
    (
        "mdw",
        "SELECT toolfleet.keep_answer_files({acme}, {acme}, ARRAY[{acme}::uuid], ARRAY['a'], ARRAY['a/b'], ARRAY['a'::bytea], 0, 0)",
    ),
    // Tools.
    (
        "mo",
        "INSERT INTO toolfleet.tool_versions VALUES ('new', 1, 1, '{}', DEFAULT, DEFAULT, '', '', now(), 'me')",
    ),
    (
        "mo",
        "INSERT INTO toolfleet.tool_retirements VALUES ('charge', 1, 99, now(), 'me', 'why')",
    ),
    ("m", "UPDATE toolfleet.tool_versions SET manifest = '{}'"),
    ("m", "DELETE FROM toolfleet.tool_retirements"),
    (
        "mo",
        "INSERT INTO toolfleet.tool_slots VALUES ('charge', 1)",
    ),
    (
        "mw",
        "UPDATE toolfleet.tool_slots SET call_id = NULL, attempt_id = NULL",
    ),
    (
        "mo",
        "UPDATE toolfleet.fleet SET registry_rev = registry_rev + 1",
    ),
    ("mdwo", "SELECT tool FROM toolfleet.tool_versions"),
    // MCP servers: applied by operators as tools are.
    (
        "mo",
        "INSERT INTO toolfleet.mcp_server_versions VALUES ('tracker', 1, '{}', '', now(), 'me')",
    ),
    ("mo", "UPDATE toolfleet.fleet SET mcp_rev = mcp_rev + 1"),
    ("mdwo", "SELECT manifest FROM toolfleet.mcp_server_versions"),
    (
        "m",
        "UPDATE toolfleet.mcp_server_versions SET manifest = '{}'",
    ),
    ("m", "DELETE FROM toolfleet.mcp_server_versions"),
    ("morg", "SELECT server FROM toolfleet.mcp_servers"),
    // Controls: decided in functions, and the log of them does not change.
    (
        "mdo",
        "SELECT toolfleet.set_control('pause', '\"wait\"', 'me', 'why', tenant => 'acme')",
    ),
    ("mdo", "SELECT toolfleet.unset_control('me', 'why', 7)"),
    ("md", "SELECT toolfleet.expire_controls()"),
    ("mdwo", "SELECT setting FROM toolfleet.live_controls"),
    ("m", "DELETE FROM toolfleet.live_controls"),
    ("m", "UPDATE toolfleet.live_controls SET expires_at = NULL"),
    (
        "m",
        "INSERT INTO toolfleet.live_controls (control_id, kind, setting, actor, note, role, set_at) \
            VALUES (9, 'pause', '\"wait\"', 'me', 'why', 'me', now())",
    ),
    ("mo", "SELECT note FROM toolfleet.control_changes"),
    (
        "m",
        "INSERT INTO toolfleet.control_changes (rev, change, control_id, kind, setting, actor, note, role) \
            VALUES (9, 'set', 9, 'pause', '\"wait\"', 'me', 'why', 'me')",
    ),
    ("", "TRUNCATE toolfleet.control_changes"),
    // Start times: handed out and closed in functions.
    (
        "mdw",
        "SELECT toolfleet.take_starts('tool', 'charge', 'acme', 1000, 1, 1, 500, false)",
    ),
    (
        "mw",
        "SELECT toolfleet.close_bucket('charge', 'acme', 1000)",
    ),
    ("mdworg", "SELECT toolfleet.rate_of('charge')"),
    // Kept answers: a worker looks, functions write.
    ("mw", "SELECT * FROM toolfleet.look('{}', '{}', '{}', '{}')"),
    (
        "mw",
        "SELECT * FROM toolfleet.answer_calls('{}', '{}', '{}', 0, 'w')",
    ),
    (
        "mw",
        "SELECT toolfleet.stale_answer(gen_random_uuid(), 1000)",
    ),
    (
        "mdo",
        "SELECT toolfleet.purge_answers('charge', 'ann', 'why') WHERE false",
    ),
    ("md", "SELECT toolfleet.drop_old_answers()"),
    ("md", "SELECT * FROM toolfleet.fetching('{}')"),
    ("mdorg", "SELECT toolfleet.is_fetching(NULL)"),
    ("mo", "SELECT leader FROM toolfleet.kept_answers"),
    ("m", "DELETE FROM toolfleet.kept_answers"),
    ("m", "SELECT toolfleet.answer_key('a', 'b', 1, 'en', '')"),
    (
        "m",
        "SELECT toolfleet.answer_verdict(NULL, gen_random_uuid(), 1)",
    ),
    // Policies: what happened is noted by triggers and asked through one function.
    (
        "mw",
        "SELECT toolfleet.policy_says('acme', 'charge', 'r', 's', false, true)",
    ),
    ("md", "SELECT toolfleet.note_asked({queued}, 'r', 's')"),
    ("mo", "SELECT tool FROM toolfleet.happenings"),
    ("m", "DELETE FROM toolfleet.happenings"),
    ("mo", "SELECT tool FROM toolfleet.policy_locks"),
    ("m", "UPDATE toolfleet.fleet SET watched_tools = NULL"),
    ("md", "SELECT tat FROM toolfleet.rate_buckets"),
    ("md", "DELETE FROM toolfleet.rate_buckets"),
    ("m", "UPDATE toolfleet.rate_buckets SET tat = now()"),
    (
        "m",
        "INSERT INTO toolfleet.rate_buckets VALUES ('tool/x', 'tool', 'x', NULL, now(), NULL, 0, now())",
    ),
    ("morg", "SELECT * FROM toolfleet.limits"),
    ("m", "UPDATE toolfleet.fleet SET control_rev = 7"),
    ("m", "SELECT toolfleet.next_control_rev()"),
    ("m", "SELECT toolfleet.interceptor_problem('redact')"),
    // Breakers: workers report and ask, functions decide.
    (
        "mw",
        "SELECT toolfleet.breaker_report({worker}, '{charge}', '{http://a}', '{0}', '{1}', '{0}', '{1}', '{1}', '{0}')",
    ),
    (
        "mw",
        "SELECT toolfleet.breaker_permit('charge', 'http://a', 1)",
    ),
    (
        "mw",
        "SELECT toolfleet.breaker_give_back('charge', 'http://a', 1)",
    ),
    ("mdw", "SELECT state FROM toolfleet.breaker_states"),
    ("m", "DELETE FROM toolfleet.breaker_states"),
    ("m", "UPDATE toolfleet.breaker_states SET state = 'closed'"),
    ("mo", "SELECT calls FROM toolfleet.breaker_windows"),
    ("m", "DELETE FROM toolfleet.breaker_windows"),
    ("m", "SELECT toolfleet.next_breaker_rev()"),
    (
        "m",
        "SELECT toolfleet.breaker_report_at(now(), {worker}, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
    ),
    (
        "m",
        "SELECT toolfleet.breaker_permit_at(now(), 'charge', 'http://a', 1)",
    ),
    // Learned timeouts: workers count, dispatchers decide.
    (
        "mw",
        "INSERT INTO toolfleet.run_times VALUES ('charge', 1, now(), 1, 1, false, 1) \
            ON CONFLICT (tool, version, hour, limit_ms, took_ms, cut_off) DO UPDATE SET count = 2",
    ),
    ("mdw", "SELECT count FROM toolfleet.run_times"),
    ("md", "DELETE FROM toolfleet.run_times"),
    ("mdw", "SELECT timeout_ms FROM toolfleet.timeout_looks"),
    (
        "md",
        "INSERT INTO toolfleet.timeout_looks (tool, version, looked_at) VALUES ('charge', 1, now()) \
            ON CONFLICT (tool, version) DO UPDATE SET looked_at = now()",
    ),
    ("m", "DELETE FROM toolfleet.timeout_looks"),
    (
        "md",
        "INSERT INTO toolfleet.timeout_changes (tool, version, timeout_ms, before_ms, why, samples, longer, p95_ms, p99_ms) \
            VALUES ('charge', 1, 1, 1, 'x', 1, 1, 1, 1)",
    ),
    ("m", "UPDATE toolfleet.timeout_changes SET why = 'y'"),
    ("md", "UPDATE toolfleet.fleet SET timeout_rev = 1"),
    ("morg", "SELECT samples FROM toolfleet.current_timeouts"),
    ("morg", "SELECT why FROM toolfleet.learned_timeouts"),
    // Workers.
    (
        "mw",
        "INSERT INTO toolfleet.worker_processes (worker_id, name, host, pid, version, queues, concurrency) \
            VALUES (gen_random_uuid(), 'x', 'x', 1, 'x', '{}', 1)",
    ),
    (
        "mw",
        "UPDATE toolfleet.worker_processes SET beat = beat + 1, beat_at = now()",
    ),
    (
        "mdw",
        "UPDATE toolfleet.worker_processes SET state = 'dead', ended_at = now(), ended_by = 'me'",
    ),
    (
        "m",
        "UPDATE toolfleet.worker_processes SET state = 'fenced', fenced_at = now(), fenced_by = 'me'",
    ),
    (
        "mwo",
        "SELECT toolfleet.fence({worker}, 'me', 'gone', true, 0)",
    ),
    ("mw", "SELECT toolfleet.leave({worker}, true)"),
    ("md", "DELETE FROM toolfleet.worker_processes"),
    (
        "mw",
        "INSERT INTO toolfleet.interceptor_stats VALUES ({worker}, 'x', 1, 1, 0, 0, 0, 0, 1, NULL, NULL) \
            ON CONFLICT (worker_id, name) DO UPDATE SET calls = excluded.calls",
    ),
    ("mw", "SELECT last_error FROM toolfleet.interceptor_stats"),
    ("m", "DELETE FROM toolfleet.interceptor_stats"),
    // The fleet.
    ("mdworg", "SELECT ledger_id FROM toolfleet.fleet"),
    ("mdwo", "UPDATE toolfleet.fleet SET wal_lsn = wal_lsn"),
    ("m", "UPDATE toolfleet.fleet SET oldest_program = 1"),
    (
        "m",
        "UPDATE toolfleet.fleet SET ledger_id = gen_random_uuid()",
    ),
    // It refuses while a worker is there that knows less, which is not what is asked here.
    (
        "m",
        "DELETE FROM toolfleet.worker_processes; SELECT toolfleet.require_program(1)",
    ),
    ("mdworg", "SELECT version FROM toolfleet._migrations"),
    ("m", "DELETE FROM toolfleet._migrations"),
    (
        "mo",
        "INSERT INTO toolfleet.prefix_takeovers (prefix, former_ledger_id, taken_by, note) VALUES ('x', gen_random_uuid(), 'x', 'x')",
    ),
    (
        "mo",
        "UPDATE toolfleet.prefix_takeovers SET taken_at = now()",
    ),
    ("m", "CREATE TABLE toolfleet.mine ()"),
    (
        "m",
        "CREATE FUNCTION toolfleet.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ),
    // The documented views.
    ("morg", "SELECT args, result FROM toolfleet.calls"),
    ("morg", "SELECT * FROM toolfleet.attempts"),
    ("morg", "SELECT * FROM toolfleet.call_events"),
    ("morg", "SELECT * FROM toolfleet.in_doubt"),
    ("mdorg", "SELECT * FROM toolfleet.slots"),
    ("morg", "SELECT * FROM toolfleet.tools"),
    ("morg", "SELECT * FROM toolfleet.workers"),
    ("morg", "SELECT * FROM toolfleet.interceptors"),
    ("mdorg", "SELECT * FROM toolfleet.controls"),
    ("morg", "SELECT * FROM toolfleet.control_log"),
    ("mdorg", "SELECT * FROM toolfleet.breakers"),
    ("mdorg", "SELECT count(*) FROM toolfleet.dead_letters"),
    ("morg", "SELECT * FROM toolfleet.marks"),
    ("morg", "SELECT * FROM toolfleet.abandoned"),
    ("morg", "SELECT * FROM toolfleet.retries_under_way"),
    // Tokens: two functions write them, nothing changes or deletes one, and gateways alone compare hashes.
    (
        "mo",
        "SELECT toolfleet.create_token('0123456789ac', 'ann', decode(repeat('ac', 32), 'hex'), 'acme', '{read}', '{*}', 'me', 'why')",
    ),
    (
        "mo",
        "SELECT toolfleet.revoke_token('0123456789ab', 'me', 'why')",
    ),
    ("morg", "SELECT * FROM toolfleet.tokens"),
    ("mg", "SELECT hash FROM toolfleet.token_hashes"),
    // Whoever signs the URLs of files, or looks whether that is true, sees the keys; a person makes a new one.
    ("mwg", "SELECT current FROM toolfleet.file_keys"),
    ("m", "SELECT current FROM toolfleet.file_url_keys"),
    ("m", "UPDATE toolfleet.file_url_keys SET previous = NULL"),
    ("mo", "SELECT toolfleet.renew_file_key()"),
    ("m", "SELECT hash FROM toolfleet.access_tokens"),
    (
        "m",
        "INSERT INTO toolfleet.access_tokens (token_id, name, hash, tenant, scopes, tools, note, created_by, role, created_at) \
            VALUES ('0123456789ac', 'ann', decode(repeat('ac', 32), 'hex'), '*', '{admin}', '{*}', 'why', 'me', 'me', now())",
    ),
    ("", "UPDATE toolfleet.access_tokens SET tenant = '*'"),
    ("", "DELETE FROM toolfleet.access_tokens"),
    ("", "TRUNCATE toolfleet.access_tokens"),
    ("m", "SELECT toolfleet.token_author_problem('me', 'why')"),
    // Marks of calls that are over: nothing but the function makes one, and nothing takes one back.
    (
        "mo",
        "SELECT toolfleet.mark_calls(ARRAY[{over}]::uuid[], 'retried', 'me', NULL, ARRAY[gen_random_uuid()])",
    ),
    ("mo", "SELECT * FROM toolfleet.call_marks"),
    (
        "m",
        "INSERT INTO toolfleet.call_marks (call_id, what, actor, role) VALUES ({over}, 'discarded', 'me', 'me')",
    ),
    ("", "TRUNCATE toolfleet.call_marks"),
    (
        "mo",
        "INSERT INTO toolfleet.bulk_retries (name, filter, since, until, newest, actor) \
             VALUES ('monday', '{}', now(), now(), {over}, 'me')",
    ),
    ("m", "UPDATE toolfleet.bulk_retries SET filter = ''"),
    // Reservations: two functions alone write them.
    (
        "mo",
        "SELECT toolfleet.reserve_retries(ARRAY[{over}]::uuid[], 'monday', gen_random_uuid(), gen_random_uuid())",
    ),
    (
        "mo",
        "SELECT toolfleet.release_retries(ARRAY[{over}]::uuid[], gen_random_uuid(), gen_random_uuid())",
    ),
    ("mo", "SELECT * FROM toolfleet.retry_reservations"),
    (
        "m",
        "INSERT INTO toolfleet.retry_reservations (call_id, retry, run) VALUES ({over}, gen_random_uuid(), gen_random_uuid())",
    ),
    ("m", "DELETE FROM toolfleet.retry_reservations"),
    // The server.
    ("m", "SET ROLE toolfleet_migrate"),
    ("do", "SET ROLE pg_read_all_stats"),
    ("o", "SET ROLE pg_signal_backend"),
    ("", "CREATE ROLE mine"),
    ("", "CREATE DATABASE mine"),
    ("", "COPY (SELECT 1) TO PROGRAM 'true'"),
    ("", "SELECT pg_read_file('/etc/passwd')"),
];

struct Prepared {
    database: Database,
    names: Vec<(&'static str, String)>,
    acme: CallId,
    beta: CallId,
}

/// A database as `deploy/README.md` makes one: the roles first, then the schema by the role that owns it, then the grants.
async fn prepared() -> Prepared {
    let database = Cluster::shared().await.empty_database().await;
    let mut admin = database.connect().await;
    admin.execute(sqlx::raw_sql(ROLES)).await.unwrap();
    database.let_roles_log_in().await;
    let owner = Postgres::new(&database.url_of(MIGRATE).into(), "toolfleet").unwrap();
    migrate(&owner).await.unwrap();
    let beyond = rights::grant(&owner).await.unwrap();
    assert!(beyond.is_empty(), "{beyond:?}");

    let worker = uuid::Uuid::new_v4();
    let id = |call: &CallId| format!("'{call}'::uuid");
    let calls: [CallId; 5] = std::array::from_fn(|_| CallId::generate());
    let tenants = ["acme", "beta", "acme", "acme", "acme"];
    sqlx::query("INSERT INTO toolfleet.worker_processes (worker_id, name, host, pid, version, queues, concurrency) VALUES ($1, 'x', 'x', 1, 'x', '{}', 1)")
        .bind(worker)
        .execute(&mut admin)
        .await
        .unwrap();
    admin
        .execute(
            "SELECT toolfleet.create_token('0123456789ab', 'ann', decode(repeat('ab', 32), 'hex'), 'acme', '{call}', '{*}', 'me', 'why')",
        )
        .await
        .unwrap();
    for (call, tenant) in calls.iter().zip(tenants) {
        let sql = CALL.replace("{id}", &id(call)).replace("{tenant}", tenant);
        admin.execute(AssertSqlSafe(sql)).await.unwrap();
    }
    let [acme, beta, queued, running, over] = calls;
    for (calls, state) in [
        (&[acme, beta, running, over][..], "running"),
        (&[acme, beta], "in_doubt"),
    ] {
        let list: Vec<String> = calls.iter().map(id).collect();
        let sql = format!(
            "UPDATE toolfleet.open_calls SET state = '{state}', rev = rev + 1, attempts = 1, worker_id = '{worker}', \
             attempt_id = coalesce(attempt_id, gen_random_uuid()), attempt_started_at = now(), attempt_timeout_ms = 1, \
             attempt_until = now(), doubt_since = now(), doubt_reason = 'x' WHERE call_id IN ({})",
            list.join(", ")
        );
        admin.execute(AssertSqlSafe(sql)).await.unwrap();
    }
    let names = vec![
        ("{acme}", id(&acme)),
        ("{beta}", id(&beta)),
        ("{queued}", id(&queued)),
        ("{running}", id(&running)),
        ("{over}", id(&over)),
        ("{worker}", format!("'{worker}'::uuid")),
    ];
    let ending = ended("{over}", "live", "o.attempt_id", "worker ");
    admin
        .execute(AssertSqlSafe(filled(&ending, &names)))
        .await
        .unwrap();
    Prepared {
        database,
        names,
        acme,
        beta,
    }
}

fn ended(call: &str, source: &str, attempt: &str, actor: &str) -> String {
    let attempt = attempt.replace("o.", "");
    let insert = ENDED
        .replace("{source}", source)
        .replace("{attempt}", &attempt)
        .replace("{actor}", actor);
    format!(
        "WITH ended AS (DELETE FROM toolfleet.open_calls WHERE call_id = {call} RETURNING *) {insert}"
    )
}

fn filled(sql: &str, names: &[(&'static str, String)]) -> String {
    let mut sql = sql.to_owned();
    if let Some(what) = sql
        .strip_prefix("{ended: ")
        .and_then(|rest| rest.strip_suffix('}'))
    {
        let words: Vec<&str> = what.splitn(4, ' ').collect();
        sql = ended(&format!("{{{}}}", words[0]), words[1], words[2], words[3]);
    }
    sql = sql
        .replace("{id}", "gen_random_uuid()")
        .replace("{tenant}", "beta");
    for (name, value) in names {
        sql = sql.replace(name, value);
    }
    sql
}

/// What came of it; nothing stays.
async fn tried(connection: &mut PgConnection, sql: &str) -> Result<(), String> {
    connection.execute("BEGIN").await.unwrap();
    let done = connection.execute(AssertSqlSafe(sql.to_owned())).await;
    // Some cannot run in a transaction: refused is refused.
    connection.execute("ROLLBACK; RESET ROLE").await.unwrap();
    match done {
        Ok(_) => Ok(()),
        Err(error) => {
            let error = error.as_database_error().unwrap();
            Err(format!("{} {}", error.code().unwrap(), error.message()))
        }
    }
}

#[tokio::test]
async fn every_role_may_do_what_its_line_says_and_nothing_else() {
    let mut prepared = prepared().await;
    let day = "SELECT tableoid::regclass::text FROM toolfleet.finished_calls LIMIT 1";
    let day: String = sqlx::query_scalar(day)
        .fetch_one(&prepared.database.pool)
        .await
        .unwrap();
    let day = day.rsplit('.').next().unwrap().to_owned();
    prepared.names.push(("{day}", day));
    let roles = Duty::ALL.map(Duty::role).into_iter().chain([MIGRATE]);
    let (mut wrong, mut cells) = (Vec::new(), 0);
    for role in roles {
        let letter = role
            .strip_prefix("toolfleet_")
            .unwrap()
            .chars()
            .next()
            .unwrap();
        let url = prepared.database.url_of(role);
        let mut connection = PgConnection::connect(&url).await.unwrap();
        for (whom, action) in MATRIX {
            cells += 1;
            let came = tried(&mut connection, &filled(action, &prepared.names)).await;
            let expected = whom.contains(letter);
            let is_refusal = came.as_ref().is_err_and(|why| {
                // Not the right, or a trigger; or what only an owner may.
                ["42501", "23514", "25001"]
                    .iter()
                    .any(|code| why.starts_with(code))
            });
            if came.is_ok() != expected || came.is_err() && !is_refusal {
                wrong.push(format!("{role}: {action}: {came:?}"));
            }
        }
    }
    println!("{cells} cells of role and action");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn an_id_of_another_tenant_finds_nothing() {
    let Prepared {
        database,
        acme,
        beta,
        ..
    } = prepared().await;
    let dispatcher = Postgres::new(
        &database.url_of(Duty::Dispatcher.role()).into(),
        "toolfleet",
    )
    .unwrap();
    let pool = dispatcher.pool_for_reading(1);
    let (mine, theirs) = ("acme".parse().unwrap(), "beta".parse().unwrap());
    assert!(read::find_of(&pool, &mine, acme).await.unwrap().is_some());
    assert!(read::find_of(&pool, &theirs, beta).await.unwrap().is_some());
    assert!(read::find_of(&pool, &mine, beta).await.unwrap().is_none());
    assert!(read::find_of(&pool, &theirs, acme).await.unwrap().is_none());
    for function in [
        "SELECT verdict FROM toolfleet.settle($1, 'applied', 'me', 'seen', in_tenant => 'acme')",
        "SELECT verdict FROM toolfleet.cancel($1, 'me', in_tenant => 'acme')",
    ] {
        let asking = sqlx::query_scalar(function).bind(beta.0);
        let verdict: String = asking.fetch_one(&pool).await.unwrap();
        assert_eq!(verdict, "not_found", "{function}");
    }
}

/// It may delete them and not change them, which a lock of theirs would need.
#[tokio::test]
async fn a_dispatcher_drops_the_buckets_that_nobody_uses() {
    let Prepared { database, .. } = prepared().await;
    let url = database.url_of(Duty::Dispatcher.role());
    let mut dispatcher = PgConnection::connect(&url).await.unwrap();
    let dropped = starts::drop_unused(&mut dispatcher).await.unwrap();
    assert_eq!(dropped, 0);
    let dropped = breakers::drop_unused(&mut dispatcher, &[BreakerId(1)]).await;
    assert_eq!(dropped.unwrap(), 0);
}

#[tokio::test]
async fn every_table_view_and_function_has_its_line() {
    let Prepared { database, .. } = prepared().await;
    let sql = "SELECT relname::text FROM pg_class WHERE relnamespace = 'toolfleet'::regnamespace \
                   AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND relname !~ '_[0-9]{8}$' \
               UNION SELECT proname::text FROM pg_proc WHERE pronamespace = 'toolfleet'::regnamespace";
    let there: Vec<String> = sqlx::query_scalar(sql)
        .fetch_all(&database.pool)
        .await
        .unwrap();
    let has_line = |name: &&String| ROLES.contains(&format!("('{name}',"));
    let without: Vec<&String> = there.iter().filter(|name| !has_line(name)).collect();
    assert!(
        without.is_empty(),
        "deploy/postgres/roles.sql has no line for {without:?}"
    );
    let lines = ROLES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("('")?.split('\'').next());
    let unknown: BTreeSet<&str> = lines
        .filter(|name| !there.iter().any(|there| there == name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?} is not in the schema");
}

#[tokio::test]
async fn more_than_a_role_needs_is_told() {
    let Prepared { database, .. } = prepared().await;
    let mut admin = database.connect().await;
    let said = rights::beyond(&mut admin, Duty::Worker).await.unwrap();
    assert_eq!(said.first().map(String::as_str), Some("is a superuser"));
    let mut owner = PgConnection::connect(&database.url_of(MIGRATE))
        .await
        .unwrap();
    let said = rights::beyond(&mut owner, Duty::Dispatcher).await.unwrap();
    assert_eq!(said, ["owns the tables of the ledger"]);
    let mut worker = PgConnection::connect(&database.url_of("toolfleet_worker"))
        .await
        .unwrap();
    assert!(
        rights::beyond(&mut worker, Duty::Worker)
            .await
            .unwrap()
            .is_empty()
    );
    let said = rights::beyond(&mut worker, Duty::Reader).await.unwrap();
    assert!(
        said.iter().any(|what| what == "may DELETE open_calls"),
        "{said:?}"
    );
    // A role that has more than the worker's rights is told so.
    let mine = format!("mine_{}", uuid::Uuid::new_v4().simple());
    let by_hand = |role: &str| {
        format!(
            "GRANT TRUNCATE ON toolfleet.open_counts TO {role}; GRANT EXECUTE ON FUNCTION toolfleet.settle TO {role}"
        )
    };
    let made = format!(
        "CREATE ROLE {mine} IN ROLE toolfleet_worker; {}; SET ROLE {mine}",
        by_hand(&mine)
    );
    admin.execute(AssertSqlSafe(made)).await.unwrap();
    let said = rights::beyond(&mut admin, Duty::Worker).await.unwrap();
    let gone = format!("RESET ROLE; DROP OWNED BY {mine}; DROP ROLE {mine}");
    admin.execute(AssertSqlSafe(gone)).await.unwrap();
    assert_eq!(said, ["may TRUNCATE open_counts", "may call settle"]);
    // What the shipped role was given by hand, the next grant takes away.
    let has = "SELECT has_table_privilege('toolfleet_worker', 'toolfleet.open_counts', 'TRUNCATE') \
               OR has_function_privilege('toolfleet_worker', 'toolfleet.settle'::regproc, 'EXECUTE')";
    admin
        .execute(AssertSqlSafe(by_hand("toolfleet_worker")))
        .await
        .unwrap();
    assert!(
        sqlx::query_scalar::<_, bool>(has)
            .fetch_one(&mut admin)
            .await
            .unwrap()
    );
    let owner = Postgres::new(&database.url_of(MIGRATE).into(), "toolfleet").unwrap();
    assert!(rights::grant(&owner).await.unwrap().is_empty());
    assert!(
        !sqlx::query_scalar::<_, bool>(has)
            .fetch_one(&mut admin)
            .await
            .unwrap()
    );
}
