-- The roles of a fleet in Postgres, and everything that each may do.
--
-- Run it twice: with psql as a role that may create roles, which makes the roles and names the owner of the database; and, after
-- each `toolfleet migrate`, by `toolfleet migrate --grant`, which sends this very file as the owner of the tables and checks
-- what came of it. Each run begins with nothing granted, in one transaction.
--
--   psql -v ON_ERROR_STOP=1 -f roles.sql toolfleet
--   \password toolfleet_migrate   and so on, for each
--
-- Each table, view and function of the schema has a line here: a test fails over one that has none.

BEGIN;

DO $roles$
DECLARE
    role text;
    member text;
BEGIN
    FOREACH role IN ARRAY ARRAY['toolfleet_migrate', 'toolfleet_dispatcher', 'toolfleet_worker', 'toolfleet_operator',
                                'toolfleet_reader', 'toolfleet_gateway'] LOOP
        IF to_regrole(role) IS NULL THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I LOGIN', role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- Another session was quicker.
            END;
        END IF;
    END LOOP;
    -- Without the first, Postgres hides since when a session of another role holds a snapshot or a lock; with the second an
    -- operator ends it. A role may be given them by a superuser, and by one that may pass them on.
    FOR role, member IN VALUES ('pg_read_all_stats', 'toolfleet_dispatcher'), ('pg_read_all_stats', 'toolfleet_operator'), ('pg_signal_backend', 'toolfleet_operator') LOOP
        IF NOT pg_has_role(member, role, 'MEMBER') THEN
            BEGIN
                EXECUTE format('GRANT %I TO %I', role, member);
            EXCEPTION
                WHEN insufficient_privilege THEN
                    RAISE NOTICE '% is not granted to %: run this file with psql as a superuser', role, member;
                WHEN unique_violation THEN
                    NULL; -- Another session was quicker.
            END;
        END IF;
    END LOOP;
    -- The schema is made by the role that migrates, and is its own.
    IF to_regnamespace('toolfleet') IS NULL AND has_database_privilege(current_database(), 'CREATE WITH GRANT OPTION') THEN
        EXECUTE format('GRANT CREATE ON DATABASE %I TO toolfleet_migrate', current_database());
    END IF;
END $roles$;

DO $grants$
DECLARE
    all_roles text := 'toolfleet_dispatcher, toolfleet_worker, toolfleet_operator, toolfleet_reader, toolfleet_gateway';
    one record;
BEGIN
    IF to_regclass('toolfleet._migrations') IS NULL OR NOT pg_has_role(
        (SELECT relowner FROM pg_class WHERE oid = to_regclass('toolfleet._migrations')), 'MEMBER') THEN
        RETURN; -- Not migrated yet, or not ours to grant.
    END IF;
    EXECUTE 'REVOKE ALL ON SCHEMA toolfleet FROM PUBLIC, ' || all_roles;
    EXECUTE 'REVOKE ALL ON ALL TABLES IN SCHEMA toolfleet FROM PUBLIC, ' || all_roles;
    EXECUTE 'REVOKE ALL ON ALL FUNCTIONS IN SCHEMA toolfleet FROM PUBLIC, ' || all_roles;
    EXECUTE 'GRANT USAGE ON SCHEMA toolfleet TO ' || all_roles;

    -- kind, what, columns or arguments, privilege, to whom: d(ispatcher), w(orker), o(perator), r(eader), g(ateway).
    -- `-`: only functions and the owner.
    FOR one IN
        SELECT * FROM (VALUES
        -- Every process looks whether it knows the schema, and whether writes were lost.
        ('_migrations',      NULL, 'SELECT', 'dworg'),
        ('fleet',            NULL, 'SELECT', 'dworg'),
        ('fleet',            'system_identifier, timeline, wal_lsn, quarantines', 'UPDATE', 'dwo'),
        ('fleet',            'registry_rev, mcp_rev', 'UPDATE', 'o'),
        ('fleet',            'timeout_rev', 'UPDATE', 'd'),
        -- Open calls: only a dispatcher makes one. What proves an answer is for dispatchers and workers.
        ('open_calls',       NULL, 'SELECT, UPDATE, DELETE', 'dw'),
        ('open_calls',       NULL, 'INSERT', 'd'),
        ('open_calls',       'all but done_secret', 'SELECT', 'o'),
        ('open_counts',      NULL, 'SELECT, INSERT, UPDATE', 'dw'),
        ('idempotency_keys', NULL, 'SELECT, INSERT, UPDATE', 'd'),
        -- History: triggers refuse changes, and days are dropped by `drop_history`.
        ('finished_calls',   NULL, 'SELECT, INSERT', 'dw'),
        ('ended_attempts',   NULL, 'SELECT, INSERT', 'dw'),
        ('call_notes',       NULL, 'SELECT, INSERT', 'dw'),
        -- Requests to models: a worker puts each on record and fills its row once, which a trigger sees to.
        ('model_requests',   NULL, 'SELECT, INSERT', 'w'),
        ('model_requests',   'model_answered, first_token_ms, run_ms, input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, estimated, cost, currency, finish, code, misconfigured_status', 'UPDATE', 'w'),
        -- What is spent of budgets: workers add to their sessions' rows, and two functions fold and delete.
        ('model_spend',      NULL, 'SELECT, INSERT, UPDATE', 'w'),
        -- Summaries of conversations: workers write and find them, and a function deletes.
        ('summaries',        NULL, 'SELECT, INSERT', 'w'),
        ('summaries',        'used_at', 'UPDATE', 'w'),
        -- Todo lists: one function writes them, another one drops them.
        ('todo_lists',       NULL, 'SELECT', '-'),
        ('todo_items',       NULL, 'SELECT', 'w'),
        ('finished_calls_default', NULL, 'SELECT', 'o'),
        ('ended_attempts_default', NULL, 'SELECT', 'o'),
        ('call_notes_default',     NULL, 'SELECT', 'o'),
        ('model_requests_default', NULL, 'SELECT', 'o'),
        -- Tools are applied and retired by operators.
        ('tool_versions',    NULL, 'SELECT', 'dwo'),
        ('tool_versions',    NULL, 'INSERT', 'o'),
        ('tool_retirements', NULL, 'SELECT', 'dwo'),
        ('tool_retirements', NULL, 'INSERT', 'o'),
        ('mcp_server_versions', NULL, 'SELECT', 'dwo'),
        ('mcp_server_versions', NULL, 'INSERT', 'o'),
        ('tool_slots',       NULL, 'SELECT', 'dwo'),
        ('tool_slots',       NULL, 'INSERT', 'o'),
        ('tool_slots',       'call_id, attempt_id', 'UPDATE', 'w'),
        -- A worker has its row and keeps its lease; who declares it dead is a dispatcher or a neighbour.
        ('worker_processes', NULL, 'SELECT', 'dwo'),
        ('worker_processes', NULL, 'INSERT', 'w'),
        ('worker_processes', 'beat, beat_at, cannot_run, state, leaving_since, ended_at, ended_by', 'UPDATE', 'w'),
        ('worker_processes', 'state, ended_at, ended_by', 'UPDATE', 'd'),
        ('worker_processes', NULL, 'DELETE', 'd'),
        ('interceptor_stats', NULL, 'SELECT, INSERT, UPDATE', 'w'),
        ('prefix_takeovers', NULL, 'SELECT, INSERT', 'o'),
        ('prefix_takeovers', 'taken_at', 'UPDATE', 'o'),
        -- Controls: every process knows those that hold; three functions change them, and nothing else does.
        ('live_controls',    NULL, 'SELECT', 'dwo'),
        ('control_changes',  NULL, 'SELECT', 'o'),
        -- Breakers: every process knows them; what workers count, and every move, is written by functions alone.
        ('breaker_states',   NULL, 'SELECT', 'dw'),
        ('breaker_windows',  NULL, 'SELECT', 'o'),
        -- Kept answers name calls of the history; functions alone write them.
        ('kept_answers',     NULL, 'SELECT', 'o'),
        -- Start times: two functions hand them out and close buckets; a dispatcher deletes what is not used any more.
        ('rate_buckets',     NULL, 'SELECT, DELETE', 'd'),
        -- What policies count: triggers and functions alone write it.
        ('happenings',       NULL, 'SELECT', 'o'),
        ('policy_locks',     NULL, 'SELECT', 'o'),
        -- Learned timeouts: workers count run times, a dispatcher looks at them and deletes what is old.
        ('run_times',        NULL, 'SELECT, INSERT, UPDATE', 'w'),
        ('run_times',        NULL, 'SELECT, DELETE', 'd'),
        ('timeout_looks',    NULL, 'SELECT', 'w'),
        ('timeout_looks',    NULL, 'SELECT, INSERT, UPDATE', 'd'),
        ('timeout_changes',  NULL, 'SELECT, INSERT, DELETE', 'd'),
        -- Marks: one function makes them, and `drop_history` drops them with their calls.
        ('call_marks',       NULL, 'SELECT', 'o'),
        -- Decisions about calls that wait for a yes: one function makes them.
        ('call_decisions',   NULL, 'SELECT', 'o'),
        -- Files: functions write and delete them. Who accepts a call says which ones it names, and locks them for that. A worker reads
        -- those of its attempts through two functions.
        ('kept_files',       NULL, 'SELECT', 'd'),
        ('kept_files',       'expires_at', 'UPDATE', 'd'),
        ('file_chunks',      NULL, 'SELECT', 'd'),
        ('call_files',       NULL, 'SELECT, INSERT', 'd'),
        ('bulk_retries',     NULL, 'SELECT, INSERT', 'o'),
        ('retry_reservations', NULL, 'SELECT', 'o'),
        -- The documented views.
        ('calls',            NULL, 'SELECT', 'org'),
        ('attempts',         NULL, 'SELECT', 'org'),
        ('call_events',      NULL, 'SELECT', 'org'),
        ('model_calls',      NULL, 'SELECT', 'org'),
        ('todos',            NULL, 'SELECT', 'org'),
        ('in_doubt',         NULL, 'SELECT', 'org'),
        ('slots',            NULL, 'SELECT', 'dorg'),
        ('tools',            NULL, 'SELECT', 'org'),
        ('mcp_servers',      NULL, 'SELECT', 'org'),
        ('controls',         NULL, 'SELECT', 'dorg'),
        ('limits',           NULL, 'SELECT', 'org'),
        ('control_log',      NULL, 'SELECT', 'org'),
        ('interceptors',     NULL, 'SELECT', 'org'),
        ('breakers',         NULL, 'SELECT', 'dorg'),
        ('current_timeouts', NULL, 'SELECT', 'org'),
        ('learned_timeouts', NULL, 'SELECT', 'org'),
        ('dead_letters',     NULL, 'SELECT', 'dorg'),
        ('marks',            NULL, 'SELECT', 'org'),
        ('abandoned',        NULL, 'SELECT', 'org'),
        ('retries_under_way', NULL, 'SELECT', 'org'),
        ('files',            NULL, 'SELECT', 'org'),
        ('workers',          NULL, 'SELECT', 'org'),
        -- Calls that wait, and the secret of the tokens with which they are answered: whoever reads it can answer any of them.
        ('waiting',          NULL, 'SELECT', 'org'),
        ('approvals',        NULL, 'SELECT', 'org'),
        ('token_secret',     NULL, 'SELECT', 'd'),
        -- Workers give tools the tokens with which those answer later, and can make no other.
        ('token_secret',     'completion', 'SELECT', 'w'),
        -- Tokens of clients over HTTP: two functions write them, people see them without their hashes, and gateways compare.
        ('access_tokens',    NULL, 'SELECT', '-'),
        ('tokens',           NULL, 'SELECT', 'org'),
        ('token_hashes',     NULL, 'SELECT', 'g'),
        -- Keys of the URLs at which tools fetch files: workers sign, gateways look whether it is true, and nobody else may see them.
        ('file_url_keys',    NULL, 'SELECT', '-'),
        ('file_keys',        NULL, 'SELECT', 'wg')
        ) AS tables (what, columns, privilege, whom) WHERE whom <> '-'
    LOOP
        IF one.columns = 'all but done_secret' THEN
            one.columns := (SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
                            WHERE attrelid = ('toolfleet.' || one.what)::regclass AND attnum > 0 AND NOT attisdropped
                              AND attname <> 'done_secret');
        END IF;
        EXECUTE format('GRANT %s%s ON toolfleet.%I TO %s', one.privilege, ' (' || one.columns || ')', one.what, (
            SELECT string_agg('toolfleet_' || r.name, ', ')
            FROM (VALUES ('d', 'dispatcher'), ('w', 'worker'), ('o', 'operator'), ('r', 'reader'), ('g', 'gateway')) AS r (letter, name)
            WHERE strpos(one.whom, r.letter) > 0));
    END LOOP;

    FOR one IN
        SELECT * FROM (VALUES
        -- What decides about calls and people's decisions.
        ('settle',            'do'),
        ('cancel',            'do'),
        ('decide',            'do'),
        ('park',              'w'),
        ('give_input',        'd'),
        ('mark_calls',        'o'),
        ('reserve_retries',   'o'),
        ('release_retries',   'o'),
        ('fence',             'wo'),
        ('leave',             'w'),
        ('quarantine',        'dw'),
        ('set_control',       'do'),
        ('unset_control',     'do'),
        ('expire_controls',   'd'),
        ('breaker_report',    'w'),
        ('breaker_permit',    'w'),
        ('breaker_give_back', 'w'),
        ('look',              'w'),
        ('answer_calls',      'w'),
        ('stale_answer',      'w'),
        ('purge_answers',     'do'),
        ('drop_old_answers',  'd'),
        ('take_starts',       'dw'),
        ('close_bucket',      'w'),
        ('policy_says',       'w'),
        ('note_asked',        'd'),
        ('renew_buckets',     'o'),
        ('create_token',      'o'),
        ('revoke_token',      'o'),
        ('note_for',          'd'),
        ('renew_file_key',    'o'),
        ('plain_number',      'o'),
        ('begin_file',        'd'),
        ('write_chunk',       'd'),
        ('finish_file',       'd'),
        ('delete_file',       'd'),
        ('drop_files',        'd'),
        ('is_named',          'dorg'),
        ('attempt_files',     'w'),
        ('read_attempt_file', 'w'),
        ('keep_answer_files', 'dw'),
        -- Housekeeping.
        ('ensure_partitions', 'd'),
        ('drop_history',      'd'),
        ('drop_breakers',     'd'),
        ('fold_model_spend',  'd'),
        ('drop_model_spend',  'd'),
        ('drop_summaries',    'd'),
        ('drop_todos',        'd'),
        ('fold_open_counts',  'd'),
        ('recount_open',      'd'),
        ('open_count',        'd'),
        ('set_autovacuum_threshold', 'd'),
        -- What statements and views read.
        ('key_lapsed',        'd'),
        ('accepted_at',       'd'),
        ('fenced_since',      'd'),
        ('is_fenced',         'dorg'),
        ('applied_late',      'dw'),
        ('unknown_until',     'dw'),
        ('fill_model_request', 'w'),
        ('write_todos',       'w'),
        ('kept',              'dw'),
        ('uuid_floor',        'dworg'),
        ('uuid_instant',      'dworg'),
        ('rate_of',           'dworg'),
        ('rate_base',         'dorg'),
        ('rate_room',         'd'),
        ('bucket_of',         'd'),
        ('held_why',          'org'),
        ('fetching',          'd'),
        ('is_fetching',       'dorg'),
        ('shown_hash',        'dworg'),
        ('shown',             'org'),
        ('veiled',            'org'),
        ('veiled_below',      'org'),
        ('below',             'org'),
        -- Only functions and triggers call these.
        ('finish',                   '-'),
        ('next_control_rev',         '-'),
        ('log_control',              '-'),
        ('control_problem',          '-'),
        ('pause_problem',            '-'),
        ('mode_problem',             '-'),
        ('only_problem',             '-'),
        ('interceptor_problem',      '-'),
        ('is_brake',                 '-'),
        ('answer_key',               '-'),
        ('answer_verdict',           '-'),
        ('breaker_problem',          '-'),
        ('breaker_ms',               '-'),
        ('breaker_terms',            '-'),
        ('next_breaker_rev',         '-'),
        ('lock_breaker',             '-'),
        ('move_breaker',             '-'),
        ('breaker_is_over',          '-'),
        ('judge_breaker',            '-'),
        ('close_breaker',            '-'),
        ('close_forced_breakers',    '-'),
        ('breaker_report_at',        '-'),
        ('breaker_permit_at',        '-'),
        ('limit_problem',            '-'),
        ('watch_tools',              '-'),
        ('note_happening',           '-'),
        ('may_have_happened',        '-'),
        ('renew_buckets_of_version', '-'),
        ('renew_buckets_of_limit',   '-'),
        ('open_buckets_of_limit',    '-'),
        ('duration_ms',              '-'),
        ('current_limits',           '-'),
        ('refuse_second_limit',      '-'),
        ('refuse_lost_breaker',      '-'),
        ('has_invisible',            '-'),
        ('shown_control',            '-'),
        ('touches',                  '-'),
        ('refuse_change_of_controls', '-'),
        ('require_program',          '-'),
        ('count_opened',             '-'),
        ('count_closed',             '-'),
        ('refuse_change_of_history', '-'),
        ('refuse_change_of_marks',   '-'),
        ('refuse_change_of_decisions', '-'),
        ('require_approval',         '-'),
        ('person_of',                '-'),
        ('token_author_problem',     '-'),
        ('refuse_change_of_tokens',  '-'),
        ('name_person',              '-'),
        ('refuse_truncation',        '-'),
        ('refuse_illegal_move',      '-'),
        ('refuse_settling',          '-')
        ) AS functions (what, whom) WHERE whom <> '-'
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION toolfleet.%I TO %s', one.what, (
            SELECT string_agg('toolfleet_' || r.name, ', ')
            FROM (VALUES ('d', 'dispatcher'), ('w', 'worker'), ('o', 'operator'), ('r', 'reader'), ('g', 'gateway')) AS r (letter, name)
            WHERE strpos(one.whom, r.letter) > 0));
    END LOOP;

    -- From Postgres 17 on a dispatcher vacuums what it changes all the time without owning it. Before, only autovacuum does:
    -- set `autovacuum_naptime = 1s`.
    IF current_setting('server_version_num')::integer >= 170000 THEN
        EXECUTE 'GRANT MAINTAIN ON toolfleet.open_calls, toolfleet.open_counts TO toolfleet_dispatcher';
    END IF;
END $grants$;

COMMIT;
