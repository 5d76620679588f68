-- The schema after all migrations, as pg_dump prints it, for reading: `make schema` writes it.
-- Without the daily partitions of the history.

CREATE SCHEMA toolfleet;

CREATE SCHEMA toolfleet_tool;

CREATE TYPE toolfleet.attempt_outcome AS ENUM (
    'applied',
    'not_started',
    'definite_failure',
    'unknown'
);

CREATE TYPE toolfleet.call_outcome AS ENUM (
    'success',
    'business_error',
    'fallback',
    'system_error',
    'unknown'
);

CREATE TYPE toolfleet.call_state AS ENUM (
    'queued',
    'running',
    'in_doubt',
    'awaiting_client',
    'succeeded',
    'failed',
    'cancelled',
    'expired'
);

CREATE TYPE toolfleet.effect AS ENUM (
    'read',
    'idempotent',
    'once',
    'transaction'
);

CREATE TYPE toolfleet.effect_known AS ENUM (
    'none',
    'applied',
    'not_applied',
    'unknown'
);

CREATE TYPE toolfleet.source AS ENUM (
    'live',
    'cache',
    'other',
    'stale',
    'stub',
    'error',
    'settled',
    'client'
);

CREATE TYPE toolfleet.worker_state AS ENUM (
    'live',
    'draining',
    'left',
    'dead',
    'fenced'
);

CREATE FUNCTION toolfleet.accepted_at(call uuid) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN coalesce((SELECT o.accepted_at FROM toolfleet.open_calls o WHERE o.call_id = call),
                    (SELECT f.accepted_at FROM toolfleet.finished_calls f WHERE f.call_id = call));
END $$;

CREATE FUNCTION toolfleet.answer_calls(calls uuid[], ttls_ms bigint[], keeps_ms bigint[], bytes_max integer, actor text) RETURNS TABLE(call_id uuid, rev integer, moved_at timestamp with time zone, state text, tool text, tool_version integer, tenant text, session text, dispatcher_id uuid, attempts integer, coercions text, queued_ms bigint, run_ms bigint, copied uuid, done_secret uuid, shown text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT unnest(answer_calls.calls) AS id, unnest(answer_calls.ttls_ms) * interval '1 millisecond' AS ttl,
               unnest(answer_calls.keeps_ms) AS keep_ms
    ), mine AS MATERIALIZED (
        -- `is_kept`: an answer is known that counts now. Else the last leader may have ended with one, which then is known from here on.
        SELECT o.call_id, k.key, k.is_kept, f.call_id AS copied, f.finished_at + i.ttl AS fresh_until,
               f.finished_at + greatest(i.ttl, i.keep_ms * interval '1 millisecond') AS keep_until, i.keep_ms, f.size, f.result, f.preview
        FROM asked i
        -- Each by its key: what the statistics say of tables that fill and empty decides nothing.
        CROSS JOIN LATERAL (SELECT c.* FROM toolfleet.open_calls c WHERE c.call_id = i.id LIMIT 1) q
        CROSS JOIN LATERAL (
            SELECT a.key, a.leader, a.call_id, coalesce(a.bytes, 262144) AS bytes, a.fresh_until > clock_timestamp() IS TRUE AS is_kept
            FROM toolfleet.kept_answers a
            WHERE a.key = toolfleet.answer_key(q.tenant, q.tool, q.tool_version, q.language, q.args_hash) LIMIT 1) k
        CROSS JOIN LATERAL (
            SELECT c.call_id, c.finished_at, c.result, c.preview,
                   CASE WHEN k.is_kept THEN k.bytes WHEN pg_column_size(c.result) > 262144 THEN pg_column_size(c.result)
                        ELSE octet_length(c.result::text) END AS size
            FROM toolfleet.finished_calls c
            WHERE c.call_id = CASE WHEN k.is_kept THEN k.call_id WHEN k.leader IS DISTINCT FROM k.call_id THEN k.leader END
              AND c.state = 'succeeded' AND c.result IS NOT NULL
              AND (k.is_kept OR c.outcome = 'success' AND c.source = 'live' AND c.error IS NULL
                   AND c.finished_at + i.ttl > clock_timestamp()) LIMIT 1) f
        JOIN toolfleet.open_calls o ON o.call_id = i.id
        WHERE o.call_id = ANY(answer_calls.calls) AND o.state = 'queued' AND NOT o.held AND o.due_at IS NULL AND NOT o.cancel_requested
          AND o.attempts = 0 AND o.no_store IS NOT TRUE AND o.probe_of IS NULL AND o.effect = 'read' AND f.size <= answer_calls.bytes_max
        FOR UPDATE OF o SKIP LOCKED
    ), found AS MATERIALIZED (
        -- One of each question, and none that has another leader by now.
        SELECT c.key, m.copied, m.fresh_until, m.keep_until, m.keep_ms, m.size
        FROM (SELECT DISTINCT ON (key) * FROM mine WHERE NOT is_kept ORDER BY key) m
        JOIN toolfleet.kept_answers c ON c.key = m.key
        WHERE c.key = ANY(ARRAY(SELECT key FROM mine WHERE NOT is_kept)) AND c.leader = m.copied
        FOR UPDATE OF c SKIP LOCKED
    ), marked AS (
        UPDATE toolfleet.kept_answers a
        SET call_id = f.copied, bytes = f.size, failures = 0, apart_until = NULL, fresh_until = f.fresh_until, keep_until = f.keep_until,
            keep_ms = f.keep_ms
        FROM found f WHERE a.key = ANY(ARRAY(SELECT key FROM found)) AND a.key = f.key AND a.leader = f.copied
    ), ended AS (
        DELETE FROM toolfleet.open_calls o
        USING mine m
        WHERE o.call_id = ANY(answer_calls.calls) AND o.call_id = m.call_id
        -- Each column by name: a newer schema may have a column with the name of an answer's part.
        RETURNING o.call_id, o.rev, o.state, o.tenant, o.tool, o.tool_version, o.effect, o.queue, o.priority, o.key_hash,
            o.key_retention_ms, o.args, o.kept_args, o.original_args, o.coercions, o.args_hash, o.session, o.run, o.meta, o.language,
            o.traceparent, o.dispatcher_id, o.accepted_at, o.deadline_at, o.first_started_at, o.attempts, o.worker_id, o.claim_rev,
            o.attempt_started_at, o.attempt_timeout_ms, o.probe_of, o.done_secret, m.copied, m.result, m.preview
    ), finished AS (
        INSERT INTO toolfleet.finished_calls (
            call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, priority,
            key_hash, key_retention_ms, args, original_args, coercions, args_hash, result, preview, session, run, meta, language,
            traceparent, accepted_at, deadline_at, first_started_at, finished_at, queued_ms, run_ms, attempts, worker_id, claim_rev,
            attempt_started_at, attempt_timeout_ms, probe_of, actor, reason, details)
        SELECT e.call_id, e.rev + 1, e.state, 'succeeded', 'success', 'cache', 'none', e.tenant, e.tool, e.tool_version, e.effect,
            e.queue, e.priority, e.key_hash, e.key_retention_ms, coalesce(e.kept_args, e.args),
            CASE WHEN e.kept_args IS NULL THEN e.original_args END, e.coercions, e.args_hash, e.result, e.preview, e.session, e.run,
            e.meta, e.language, e.traceparent, e.accepted_at, e.deadline_at, e.first_started_at, now(),
            (date_part('epoch', coalesce(e.first_started_at, now()) - e.accepted_at) * 1000)::bigint,
            (date_part('epoch', now() - coalesce(e.first_started_at, now())) * 1000)::bigint, e.attempts, e.worker_id, e.claim_rev,
            e.attempt_started_at, e.attempt_timeout_ms, e.probe_of, answer_calls.actor, 'answered_from_the_cache',
            json_build_object('from', e.copied)
        FROM ended e
    )
    SELECT e.call_id, e.rev + 1, now(), 'succeeded', e.tool, e.tool_version, e.tenant, e.session, e.dispatcher_id, e.attempts,
           e.coercions::text, (date_part('epoch', coalesce(e.first_started_at, now()) - e.accepted_at) * 1000)::bigint,
           (date_part('epoch', now() - coalesce(e.first_started_at, now())) * 1000)::bigint, e.copied, e.done_secret,
           CASE WHEN octet_length(coalesce(e.preview, e.result)::text) <= 65536 THEN coalesce(e.preview, e.result)::text END
    FROM ended e;
END $$;

CREATE FUNCTION toolfleet.answer_key(tenant text, tool text, version integer, language text, args_hash bytea) RETURNS bytea
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    AS $$
    SELECT sha256(convert_to(tenant || E'\n' || tool || E'\n' || version::text || E'\n' || language || E'\n', 'UTF8') || args_hash)
$$;

CREATE TABLE toolfleet.kept_answers (
    key bytea NOT NULL,
    tenant text NOT NULL,
    tool text NOT NULL,
    version integer NOT NULL,
    leader uuid NOT NULL,
    call_id uuid,
    bytes integer,
    fresh_until timestamp with time zone,
    failures integer DEFAULT 0 NOT NULL,
    apart_until timestamp with time zone,
    keep_until timestamp with time zone NOT NULL,
    keep_ms bigint
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE FUNCTION toolfleet.answer_verdict(k toolfleet.kept_answers, call uuid, ttl_ms bigint, OUT verdict text, OUT ended_at timestamp with time zone, OUT size integer) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    is_good boolean;
BEGIN
    IF k.key IS NULL THEN
        verdict := 'free';
    ELSIF k.fresh_until > clock_timestamp()
          -- The history may have dropped or lost it.
          AND EXISTS (SELECT FROM toolfleet.finished_calls f WHERE f.call_id = k.call_id) THEN
        verdict := 'hit';
    ELSIF k.leader = answer_verdict.call THEN
        verdict := 'lead';
    ELSIF EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.call_id = k.leader AND o.state IN ('queued', 'running')) THEN
        verdict := CASE WHEN k.apart_until > clock_timestamp() THEN 'alone' ELSE 'follow' END;
    ELSE
        -- A good answer of its own: not one that was copied, nor one that does not fit its schema, nor what remains of one. A compressed
        -- one that is too large need not be read.
        SELECT f.finished_at, f.state = 'succeeded' AND f.outcome = 'success' AND f.source = 'live' AND f.error IS NULL
                   AND f.result IS NOT NULL,
               CASE WHEN pg_column_size(f.result) > 262144 THEN pg_column_size(f.result) ELSE octet_length(f.result::text) END
        INTO ended_at, is_good, size FROM toolfleet.finished_calls f
        WHERE f.call_id = k.leader AND f.call_id IS DISTINCT FROM k.call_id;
        verdict := CASE
            WHEN k.leader IS NOT DISTINCT FROM k.call_id THEN 'free'
            WHEN is_good IS NOT TRUE THEN 'failed'
            WHEN ended_at + answer_verdict.ttl_ms * interval '1 millisecond' <= clock_timestamp() THEN
                -- It counts no more, and is the last good one.
                CASE WHEN size > 262144 THEN 'free' ELSE 'old' END
            WHEN size > 262144 THEN 'large'
            ELSE 'found' END;
    END IF;
END $$;

CREATE FUNCTION toolfleet.applied_late(call uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN EXISTS (SELECT FROM toolfleet.ended_attempts e WHERE e.call_id = call AND e.late AND e.outcome = 'applied');
END $$;

CREATE FUNCTION toolfleet.attempt_files(call uuid, attempt uuid) RETURNS TABLE(file_id uuid, name text, mime text, bytes bigint, sha256 bytea)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
    SELECT f.file_id, f.name, f.mime, f.bytes, f.sha256
    FROM toolfleet.open_calls o
    JOIN toolfleet.call_files u ON u.call_id = o.call_id
    JOIN toolfleet.kept_files f ON f.file_id = u.file_id
    WHERE o.call_id = attempt_files.call AND o.attempt_id = attempt_files.attempt AND o.state = 'running'
    ORDER BY u.position
$$;

CREATE FUNCTION toolfleet.begin_file(file uuid, tenant text, name text, mime text, bytes bigint, files_max bigint, bytes_max bigint) RETURNS TABLE(verdict text, expires_at timestamp with time zone, files bigint, kept_bytes bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    kept record;
    until timestamptz;
BEGIN
    -- One of a tenant at a time, so that each sees those before; the count is a later statement.
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.kept_files'), hashtext(begin_file.tenant));
    SELECT count(*) AS files, coalesce(sum(k.bytes), 0)::bigint AS bytes INTO kept FROM toolfleet.kept_files k WHERE k.tenant = begin_file.tenant;
    IF begin_file.files_max > 0 AND kept.files >= begin_file.files_max
       OR begin_file.bytes_max > 0 AND kept.bytes + begin_file.bytes > begin_file.bytes_max THEN
        RETURN QUERY SELECT 'quota', NULL::timestamptz, kept.files, kept.bytes;
        RETURN;
    END IF;
    until := now() + interval '1 hour';
    INSERT INTO toolfleet.kept_files (file_id, tenant, name, mime, bytes, expires_at)
    VALUES (begin_file.file, begin_file.tenant, begin_file.name, begin_file.mime, begin_file.bytes, until);
    RETURN QUERY SELECT 'open', until, kept.files + 1, kept.bytes + begin_file.bytes;
END $$;

CREATE FUNCTION toolfleet.below(pointers text[], segment text) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
    SELECT coalesce(array_agg(substring(p FROM 2 + length(split_part(p, '/', 2)))), '{}')
    FROM unnest(pointers) p
    WHERE split_part(p, '/', 2) = '*' OR replace(replace(split_part(p, '/', 2), '~1', '/'), '~0', '~') = segment
$$;

CREATE FUNCTION toolfleet.breaker_give_back(tool text, target text, generation bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    UPDATE toolfleet.breaker_states s SET probes_out = s.probes_out - 1
    WHERE s.tool = breaker_give_back.tool AND s.target = breaker_give_back.target AND s.state = 'half_open'
      AND s.generation = breaker_give_back.generation AND s.probes_out > s.probes_ok;
    IF FOUND THEN
        PERFORM toolfleet.next_breaker_rev();
    END IF;
    RETURN FOUND;
END $$;

CREATE FUNCTION toolfleet.breaker_is_over(needed integer, share integer, slow_share integer, calls bigint, failures bigint, slow bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT calls >= needed AND (failures * 100 >= share * calls OR coalesce(slow * 100 >= slow_share * calls, false))
$$;

CREATE FUNCTION toolfleet.breaker_ms(written text) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    SELECT substring(written FROM '^[0-9]+')::bigint
        * CASE substring(written FROM '[a-z]+$') WHEN 'ms' THEN 1 WHEN 's' THEN 1000 WHEN 'm' THEN 60000 WHEN 'h' THEN 3600000 END
$_$;

CREATE FUNCTION toolfleet.breaker_permit(tool text, target text, timeout_ms bigint) RETURNS TABLE(verdict text, breaker_id bigint, generation bigint, left_ms bigint)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT * FROM toolfleet.breaker_permit_at(clock_timestamp(), tool, target, timeout_ms)
$$;

CREATE FUNCTION toolfleet.breaker_permit_at(moment timestamp with time zone, tool text, target text, timeout_ms bigint) RETURNS TABLE(verdict text, breaker_id bigint, generation bigint, left_ms bigint)
    LANGUAGE plpgsql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    t record;
    b toolfleet.breaker_states;
    is_new boolean := NOT EXISTS (
        SELECT FROM toolfleet.breaker_states s WHERE s.tool = breaker_permit_at.tool AND s.target = breaker_permit_at.target);
    over timestamptz;
BEGIN
    SELECT * INTO t FROM toolfleet.breaker_terms(breaker_permit_at.tool);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'unguarded', 0::bigint, 0::bigint, NULL::bigint;
        RETURN;
    END IF;
    b := toolfleet.lock_breaker(breaker_permit_at.tool, breaker_permit_at.target);
    IF b.state = 'closed' THEN
        IF is_new THEN
            PERFORM toolfleet.next_breaker_rev();
        END IF;
        RETURN QUERY SELECT 'closed', b.breaker_id, b.generation, NULL::bigint;
        RETURN;
    END IF;
    over := CASE b.state WHEN 'open' THEN b.open_until ELSE b.round_until END;
    IF over <= moment THEN
        b.state := 'half_open';
        b.generation := b.generation + 1;
        b.probes_out := 0;
        b.probes_ok := 0;
        PERFORM toolfleet.move_breaker(b);
    ELSIF b.state = 'open' OR b.probes_out >= t.probes THEN
        RETURN QUERY SELECT 'refused', b.breaker_id, b.generation, ceil(extract(epoch FROM over - moment) * 1000)::bigint;
        RETURN;
    END IF;
    UPDATE toolfleet.breaker_states s
    SET probes_out = b.probes_out + 1,
        round_until = moment + (least(breaker_permit_at.timeout_ms, 86400000) + 10000) * interval '1 millisecond'
    WHERE s.breaker_id = b.breaker_id;
    PERFORM toolfleet.next_breaker_rev();
    RETURN QUERY SELECT 'granted', b.breaker_id, b.generation, NULL::bigint;
END $$;

CREATE TABLE toolfleet.live_controls (
    control_id bigint NOT NULL,
    kind text NOT NULL,
    tool text,
    queue text,
    tenant text,
    pointer text,
    value text,
    subject text,
    setting json NOT NULL,
    told text,
    actor text NOT NULL,
    note text NOT NULL,
    role text NOT NULL,
    set_in text,
    set_at timestamp with time zone NOT NULL,
    for_ms bigint,
    expires_at timestamp with time zone,
    CONSTRAINT live_controls_check CHECK (((pointer IS NULL) = (value IS NULL))),
    CONSTRAINT live_controls_check1 CHECK (((for_ms IS NULL) = (expires_at IS NULL)))
);

CREATE FUNCTION toolfleet.breaker_problem(c toolfleet.live_controls) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR c.setting::text NOT IN ('"open"', '"closed"') THEN 'setting must be "open" or "closed"'
        WHEN c.tool IS NULL THEN 'a breaker needs a tool'
        WHEN c.queue IS NOT NULL OR c.tenant IS NOT NULL OR c.pointer IS NOT NULL OR c.value IS NOT NULL THEN
            'a breaker is of a whole tool: it has no queue, no tenant and no pointer'
        WHEN c.subject IS NOT NULL THEN 'a breaker has no subject'
        WHEN c.told IS NOT NULL THEN 'told is what callers read that a pause refuses; a breaker tells them by itself'
        WHEN NOT EXISTS (SELECT FROM toolfleet.breaker_terms(c.tool)) THEN
            'the newest version of the tool has no breaker; write breaker: {} into its manifest, or pause the tool'
        END;
END $$;

CREATE FUNCTION toolfleet.breaker_report(worker uuid, tools text[], targets text[], generations bigint[], seconds bigint[], ages_ms bigint[], calls integer[], failures integer[], slow integer[]) RETURNS TABLE(tool text, target text, verdict text, for_ms bigint)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT * FROM toolfleet.breaker_report_at(clock_timestamp(), worker, tools, targets, generations, seconds, ages_ms, calls, failures,
        slow)
$$;

CREATE FUNCTION toolfleet.breaker_report_at(moment timestamp with time zone, worker uuid, tools text[], targets text[], generations bigint[], seconds bigint[], ages_ms bigint[], calls integer[], failures integer[], slow integer[]) RETURNS TABLE(tool text, target text, verdict text, for_ms bigint)
    LANGUAGE plpgsql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    k record;
    t record;
    b toolfleet.breaker_states;
    came text;
    -- A new row is news, too: processes know every breaker for which a call may wait.
    has_moved boolean := false;
BEGIN
    -- In one order, so that two reports never wait for each other.
    FOR k IN SELECT r.tool, r.target, max(r.generation) AS generation
             FROM unnest(breaker_report_at.tools, breaker_report_at.targets, breaker_report_at.generations)
                  AS r (tool, target, generation)
             GROUP BY r.tool, r.target ORDER BY r.tool, r.target LOOP
        SELECT * INTO t FROM toolfleet.breaker_terms(k.tool);
        CONTINUE WHEN NOT FOUND;
        has_moved := has_moved OR NOT EXISTS (
            SELECT FROM toolfleet.breaker_states s WHERE s.tool = k.tool AND s.target = k.target);
        b := toolfleet.lock_breaker(k.tool, k.target);
        INSERT INTO toolfleet.breaker_windows AS w
        SELECT k.tool, k.target, breaker_report_at.worker, r.second, moment - r.age_ms * interval '1 millisecond', moment,
               r.calls, r.failures, r.slow
        FROM unnest(breaker_report_at.tools, breaker_report_at.targets, breaker_report_at.generations, breaker_report_at.seconds,
                    breaker_report_at.ages_ms, breaker_report_at.calls, breaker_report_at.failures, breaker_report_at.slow)
             AS r (tool, target, generation, second, age_ms, calls, failures, slow)
        WHERE r.tool = k.tool AND r.target = k.target AND r.generation = b.generation AND b.state <> 'open'
        ON CONFLICT ON CONSTRAINT breaker_windows_pkey DO UPDATE
            SET calls = greatest(w.calls, excluded.calls), failures = greatest(w.failures, excluded.failures),
                slow = greatest(w.slow, excluded.slow);
        came := toolfleet.judge_breaker(b, breaker_report_at.worker, moment);
        has_moved := has_moved OR came IN ('opened', 'closed');
        IF came = 'stays' AND k.generation <> b.generation THEN
            came := 'stale';
        END IF;
        IF came <> 'stays' THEN
            RETURN QUERY SELECT k.tool, k.target, came, CASE came WHEN 'local' THEN t.open_ms END;
        END IF;
    END LOOP;
    IF has_moved THEN
        PERFORM toolfleet.next_breaker_rev();
    END IF;
END $$;

CREATE FUNCTION toolfleet.breaker_terms(tool text) RETURNS TABLE(window_ms bigint, calls integer, failures integer, slow integer, open_ms bigint, open_max_ms bigint, probes integer)
    LANGUAGE sql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT toolfleet.breaker_ms(b->>'window'), (b->>'calls')::integer, rtrim(b->>'failures', '%')::integer,
           rtrim(b->'slow'->>'share', '%')::integer, toolfleet.breaker_ms(b->>'open'), toolfleet.breaker_ms(b->>'open_max'),
           (b->>'probes')::integer
    FROM (SELECT v.manifest->'breaker' AS b FROM toolfleet.tool_versions v
          WHERE v.tool = breaker_terms.tool ORDER BY v.version DESC LIMIT 1) newest
    WHERE b IS NOT NULL
$$;

CREATE FUNCTION toolfleet.bucket_of(shared_by text, name text, tenant text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT shared_by || '/' || name || CASE shared_by
        WHEN 'tenant' THEN '/' || split_part(tenant, '/', 1)
        WHEN 'argument' THEN coalesce('/' || tenant, '')
        ELSE '' END
$$;

CREATE FUNCTION toolfleet.cancel(call uuid, actor text, reason text DEFAULT NULL::text, in_tenant text DEFAULT NULL::text) RETURNS TABLE(verdict text, state text, worker_id uuid, dispatcher_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    o toolfleet.open_calls;
    f toolfleet.finished_calls;
    details json := json_strip_nulls(json_build_object('reason', left(cancel.reason, 2000), 'role', session_user));
    -- When the last attempt that may have had the effect runs out of time: it may have ended before that.
    until timestamptz;
    -- Somebody outside the fleet has it, and answers later.
    is_handed boolean;
BEGIN
    IF coalesce(btrim(cancel.actor), '') = '' OR length(cancel.actor) > 200 THEN
        RAISE EXCEPTION 'actor must say who cancels it, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = cancel.call AND (cancel.in_tenant IS NULL OR c.tenant = cancel.in_tenant) FOR UPDATE;
    IF NOT FOUND THEN
        SELECT * INTO f FROM toolfleet.finished_calls c
        WHERE c.call_id = cancel.call AND (cancel.in_tenant IS NULL OR c.tenant = cancel.in_tenant);
        RETURN QUERY SELECT CASE WHEN f.call_id IS NULL THEN 'not_found' ELSE 'already_terminal' END, f.state::text,
            NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    is_handed := o.awaiting IN ('client', 'completion');
    IF o.state = 'in_doubt' THEN
        RETURN QUERY SELECT 'in_doubt', o.state::text, NULL::uuid, o.dispatcher_id;
    ELSIF o.state = 'running' THEN
        IF NOT o.cancel_requested THEN
            UPDATE toolfleet.open_calls c SET cancel_requested = true, rev = c.rev + 1 WHERE c.call_id = o.call_id;
            INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details)
            VALUES (o.call_id, o.rev + 1, 'running', 'running', cancel.actor, 'cancel_requested', o.attempt_id, details);
        END IF;
        RETURN QUERY SELECT 'cancel_requested', o.state::text, o.worker_id, o.dispatcher_id;
    ELSIF (o.effect_unknown OR is_handed) AND o.effect IN ('idempotent', 'once') THEN
        SELECT max(a.started_at + make_interval(secs => a.timeout_ms / 1000.0)) INTO until
        FROM toolfleet.ended_attempts a
        WHERE a.call_id = o.call_id AND a.outcome = 'unknown' AND NOT a.late;
        IF is_handed THEN
            -- Whoever has it may do it until its time is over.
            until := o.attempt_until;
            INSERT INTO toolfleet.ended_attempts (
                call_id, attempt_id, number, claim_rev, worker_id, started_at, timeout_ms, outcome, effect_known, error, over)
            VALUES (o.call_id, o.attempt_id, o.attempts, o.claim_rev, o.worker_id, o.attempt_started_at, o.attempt_timeout_ms, 'unknown', 'unknown', NULL,
                -- No worker has anything of it any more.
                o.awaiting = 'completion');
        END IF;
        UPDATE toolfleet.open_calls c
        SET state = 'in_doubt', awaiting = NULL, held = false, rev = c.rev + 1, doubt_since = now(), doubt_reason = 'cancelled', attempt_until = until,
            due_at = greatest(now(), until),
            last_error = json_build_object('code', 'in_doubt', 'message', CASE o.language
                WHEN 'zh' THEN CASE o.awaiting WHEN 'client' THEN '这次调用在交给调用方的程序之后被取消。'
                    WHEN 'completion' THEN '这次调用在工具收到之后、回答之前被取消。'
                    ELSE '这次调用在一次效果未知的尝试之后被取消。' END
                    || '操作可能已经生效，也可能没有生效。不要重复这次调用，换用新的幂等键也不行；请交由人工查明结果。'
                ELSE CASE o.awaiting WHEN 'client' THEN 'The call was cancelled after the caller''s program had got it.'
                    WHEN 'completion' THEN 'The call was cancelled after the tool had got it and before it answered.'
                    ELSE 'The call was cancelled after an attempt whose effect is unknown.' END || ' The action may or may not have been '
                    'carried out. Do not repeat the call, not with a new idempotency key either; ask a person to find out.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'do_not_repeat',
                'details', json_build_object('cause', o.last_error))
        WHERE c.call_id = o.call_id;
        INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
        VALUES (o.call_id, o.rev + 1, o.state, 'in_doubt', cancel.actor, 'cancelled', details);
        RETURN QUERY SELECT 'in_doubt', 'in_doubt', NULL::uuid, o.dispatcher_id;
    ELSE
        PERFORM toolfleet.finish(o, 'cancelled', 'system_error', 'error',
            CASE WHEN o.effect = 'read' THEN 'none' ELSE 'not_applied' END::toolfleet.effect_known, NULL,
            json_build_object('code', 'cancelled', 'message', CASE o.language
                WHEN 'zh' THEN
                    CASE WHEN o.awaiting = 'client' THEN '这次调用在调用方的程序交回结果之前被取消。'
                         WHEN o.awaiting = 'completion' THEN '这次调用在工具回答之前被取消。'
                         WHEN o.attempts = 0 THEN '这次调用在执行之前被取消。' ELSE '这次调用在下一次尝试之前被取消。' END
                    || '没有做任何更改。请询问用户；如果仍然需要，请再次发送；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。'
                ELSE
                    CASE WHEN o.awaiting = 'client' THEN 'The call was cancelled before the caller''s program answered.'
                         WHEN o.awaiting = 'completion' THEN 'The call was cancelled before the tool answered.'
                         WHEN o.attempts = 0 THEN 'The call was cancelled before it ran.'
                         ELSE 'The call was cancelled before its next attempt.' END
                    || ' Nothing was changed. Ask the user; if it is still wanted, send it again, with a new idempotency key if there was one: the same one repeats this answer.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'ask_user'),
            cancel.actor, 'cancelled', details,
            -- Whoever has it may look all the same; what comes of that is not known.
            CASE WHEN is_handed THEN 'unknown' END::toolfleet.attempt_outcome);
        RETURN QUERY SELECT 'cancelled', 'cancelled', NULL::uuid, o.dispatcher_id;
    END IF;
END $$;

CREATE TABLE toolfleet.breaker_states (
    breaker_id bigint NOT NULL,
    tool text NOT NULL,
    target text NOT NULL,
    state text DEFAULT 'closed'::text NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    open_until timestamp with time zone,
    open_ms bigint DEFAULT 0 NOT NULL,
    probes_out integer DEFAULT 0 NOT NULL,
    probes_ok integer DEFAULT 0 NOT NULL,
    round_until timestamp with time zone,
    opened_at timestamp with time zone,
    why json,
    CONSTRAINT breaker_states_state_check CHECK ((state = ANY (ARRAY['closed'::text, 'open'::text, 'half_open'::text])))
);

CREATE FUNCTION toolfleet.close_breaker(b toolfleet.breaker_states) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    b.state := 'closed';
    b.generation := b.generation + 1;
    b.open_until := NULL;
    b.open_ms := 0;
    b.probes_out := 0;
    b.probes_ok := 0;
    b.round_until := NULL;
    b.opened_at := NULL;
    b.why := NULL;
    PERFORM toolfleet.move_breaker(b);
END $$;

CREATE FUNCTION toolfleet.close_bucket(tool text, tenant text, for_ms bigint) RETURNS timestamp with time zone
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    INSERT INTO toolfleet.rate_buckets AS b (bucket, shared_by, name, tenant, tat, closed_until, used_at)
    SELECT toolfleet.bucket_of(r.shared_by, r.name, close_bucket.tenant), r.shared_by, r.name,
        CASE r.shared_by WHEN 'tenant' THEN split_part(close_bucket.tenant, '/', 1) WHEN 'argument' THEN close_bucket.tenant END,
        clock_timestamp(),
        clock_timestamp() + least(greatest(close_bucket.for_ms, 0), 3600000) * interval '1 millisecond', clock_timestamp()
    FROM toolfleet.rate_of(close_bucket.tool) r
    ON CONFLICT (bucket) DO UPDATE SET closed_until = greatest(b.closed_until, EXCLUDED.closed_until)
    RETURNING b.closed_until
$$;

CREATE FUNCTION toolfleet.close_forced_breakers() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    b toolfleet.breaker_states;
BEGIN
    -- This transaction has the fleet's row, for which a report waits with its breakers locked: so it must not wait for those. One
    -- that is skipped as the force begins is closed by the next report; one that is skipped as it ends counts what is still to come.
    FOR b IN SELECT * FROM toolfleet.breaker_states s WHERE s.tool = coalesce(NEW.tool, OLD.tool) ORDER BY s.target FOR UPDATE SKIP LOCKED LOOP
        PERFORM toolfleet.close_breaker(b);
    END LOOP;
    PERFORM toolfleet.next_breaker_rev();
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.control_problem(c toolfleet.live_controls, in_tenant text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $_$
DECLARE
    problem text;
BEGIN
    problem := CASE
        WHEN c.kind IS NULL OR c.kind !~ '^[a-z]+$'
             OR to_regprocedure(format('toolfleet.%I(toolfleet.live_controls)', c.kind || '_problem')) IS NULL THEN
            'kind must be a kind of control, such as pause'
        WHEN coalesce(length(btrim(c.actor)), 0) NOT BETWEEN 1 AND 200 THEN
            'actor must say who sets it, in 1 to 200 characters'
        WHEN coalesce(length(btrim(c.note)), 0) NOT BETWEEN 1 AND 2000 THEN 'note must say why, in 1 to 2000 characters'
        WHEN c.told IS NOT NULL AND length(btrim(c.told)) NOT BETWEEN 1 AND 200 THEN 'told may have 1 to 200 characters'
        WHEN c.told ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'told must not have control characters'
        WHEN toolfleet.has_invisible(c.actor) THEN 'actor must not have invisible characters'
        WHEN toolfleet.has_invisible(c.note) THEN 'note must not have invisible characters'
        WHEN toolfleet.has_invisible(c.told) THEN 'told must not have invisible characters'
        WHEN c.for_ms NOT BETWEEN 1 AND 2592000000 THEN 'for_ms must be 1 to 2592000000, which is 30 days'
        WHEN c.tenant !~ '^[A-Za-z0-9_-]{1,64}$' THEN 'tenant must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -'
        WHEN in_tenant IS NOT NULL AND c.tenant IS NULL THEN
            'tenant must be named: on the subject of a tenant a control holds for that tenant only'
        WHEN c.tenant <> in_tenant THEN 'tenant is another one: on the subject of a tenant a control holds for that tenant only'
        WHEN in_tenant IS NOT NULL AND c.kind = 'mode' AND toolfleet.is_brake(c.subject) THEN
            'the brakes of the engine hold for the whole fleet: only its own operators set their modes'
        WHEN c.tool IS NOT NULL AND NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = c.tool) THEN
            'there is no such tool'
        WHEN c.queue IS NOT NULL AND c.queue <> 'default' AND NOT EXISTS (
            SELECT FROM toolfleet.tool_versions v WHERE v.manifest->>'queue' = c.queue) THEN 'no tool has this queue'
        WHEN c.tool IS NOT NULL AND c.queue IS NOT NULL AND NOT EXISTS (
            SELECT FROM toolfleet.tool_versions v
            WHERE v.tool = c.tool AND coalesce(v.manifest->>'queue', 'default') = c.queue) THEN
            'no version of the tool has this queue, so no call would be in its scope' END;
    IF problem IS NULL THEN
        EXECUTE format('SELECT toolfleet.%I($1)', c.kind || '_problem') INTO problem USING c;
    END IF;
    RETURN problem;
END $_$;

CREATE FUNCTION toolfleet.count_closed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO toolfleet.open_counts AS c (tenant, backend, generation, n)
    SELECT o.tenant, pg_catalog.pg_backend_pid(), coalesce((
        SELECT l.generation FROM toolfleet.open_counts l
        WHERE l.tenant = o.tenant AND l.backend = pg_catalog.pg_backend_pid()
        ORDER BY l.tenant DESC, l.backend DESC, l.generation DESC LIMIT 1),
        (1000 * date_part('epoch', clock_timestamp()))::bigint), -count(*)
    FROM closed o GROUP BY o.tenant ORDER BY o.tenant
    ON CONFLICT (tenant, backend, generation) DO UPDATE
    SET n = c.n + EXCLUDED.n, changes = (c.changes + 1) % 128,
        generation = CASE WHEN c.changes < 127 THEN c.generation
                          ELSE greatest(c.generation + 1, (1000 * date_part('epoch', clock_timestamp()))::bigint) END;
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.count_opened() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO toolfleet.open_counts AS c (tenant, backend, generation, n)
    SELECT o.tenant, pg_catalog.pg_backend_pid(), coalesce((
        SELECT l.generation FROM toolfleet.open_counts l
        WHERE l.tenant = o.tenant AND l.backend = pg_catalog.pg_backend_pid()
        ORDER BY l.tenant DESC, l.backend DESC, l.generation DESC LIMIT 1),
        (1000 * date_part('epoch', clock_timestamp()))::bigint), count(*)
    FROM opened o GROUP BY o.tenant ORDER BY o.tenant
    ON CONFLICT (tenant, backend, generation) DO UPDATE
    SET n = c.n + EXCLUDED.n, changes = (c.changes + 1) % 128,
        generation = CASE WHEN c.changes < 127 THEN c.generation
                          ELSE greatest(c.generation + 1, (1000 * date_part('epoch', clock_timestamp()))::bigint) END;
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.create_token(token_id text, name text, hash bytea, tenant text, scopes text[], tools text[], actor text, note text, for_ms bigint DEFAULT NULL::bigint) RETURNS TABLE(verdict text, token json)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $_$
#variable_conflict use_column
DECLARE
    t toolfleet.access_tokens;
    there toolfleet.access_tokens;
    wrong text := toolfleet.token_author_problem(create_token.actor, create_token.note);
BEGIN
    wrong := coalesce(wrong, CASE
        WHEN coalesce(create_token.token_id, '') !~ '^[0-9a-f]{12}$' THEN 'token_id must be 12 hexadecimal digits'
        WHEN coalesce(octet_length(create_token.hash), 0) <> 32 THEN 'hash must be the SHA-256 of the secret'
        WHEN coalesce(create_token.name, '') !~ '^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$' THEN
            'name must be 1 to 64 characters of A-Z, a-z, 0-9, ., _, @, + and -, beginning with a letter or a digit'
        WHEN coalesce(create_token.tenant, '') !~ '^(\*|[A-Za-z0-9_-]{1,64})$' THEN
            'tenant must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -, or * for every tenant'
        WHEN coalesce(cardinality(create_token.scopes), 0) NOT BETWEEN 1 AND 5 OR array_position(create_token.scopes, NULL) IS NOT NULL
             OR NOT create_token.scopes <@ '{call,read,approve,settle,admin}' THEN
            'scopes must be some of call, read, approve, settle and admin'
        WHEN coalesce(cardinality(create_token.tools), 0) NOT BETWEEN 1 AND 64 OR array_position(create_token.tools, NULL) IS NOT NULL
             OR array_to_string(create_token.tools, ',') !~ '^[a-z0-9_*]{1,64}(,[a-z0-9_*]{1,64})*$'
             OR cardinality(string_to_array(array_to_string(create_token.tools, ','), ',')) <> cardinality(create_token.tools) THEN
            'tools must be 1 to 64 names of tools, of a-z, 0-9 and _, in which * stands for any letters'
        WHEN create_token.for_ms NOT BETWEEN 1000 AND 315360000000 THEN
            'for_ms must be 1000 to 315360000000, which is 10 years' END);
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One at a time, so that each sees those before.
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    SELECT * INTO there FROM toolfleet.access_tokens a WHERE a.token_id = create_token.token_id;
    IF FOUND THEN
        IF (there.hash, there.name, there.tenant, there.scopes, there.tools, there.created_by, there.note, there.for_ms)
           IS DISTINCT FROM (create_token.hash, create_token.name, create_token.tenant, create_token.scopes, create_token.tools,
                             create_token.actor, create_token.note, create_token.for_ms) THEN
            RAISE EXCEPTION 'token_id is that of another token; make a new one' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN QUERY SELECT 'already', row_to_json(v) FROM toolfleet.tokens v WHERE v.token_id = there.token_id;
        RETURN;
    END IF;
    IF (SELECT count(*) >= 1000 FROM toolfleet.token_hashes) THEN
        RAISE EXCEPTION 'there are 1000 tokens that hold, and that is the most; revoke some' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    t.token_id := create_token.token_id;
    t.name := create_token.name;
    t.hash := create_token.hash;
    t.tenant := create_token.tenant;
    t.scopes := create_token.scopes;
    t.tools := create_token.tools;
    t.note := create_token.note;
    t.created_by := create_token.actor;
    t.role := session_user;
    t.created_at := clock_timestamp();
    t.for_ms := create_token.for_ms;
    t.expires_at := t.created_at + t.for_ms * interval '1 millisecond';
    INSERT INTO toolfleet.access_tokens SELECT t.*;
    RETURN QUERY SELECT 'created', row_to_json(v) FROM toolfleet.tokens v WHERE v.token_id = t.token_id;
END $_$;

CREATE FUNCTION toolfleet.current_limits() RETURNS TABLE(tool text, version integer, is_shared boolean, name text)
    LANGUAGE sql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT v.tool, v.version, v.rate_limit->>'share' IS NOT NULL, coalesce(v.rate_limit->>'share', v.tool)
    FROM (SELECT DISTINCT ON (t.tool) t.tool, t.version, t.rate_limit FROM toolfleet.tool_versions t
          ORDER BY t.tool, t.version DESC) v
    WHERE v.rate_limit IS NOT NULL
      AND NOT EXISTS (SELECT FROM toolfleet.tool_retirements r WHERE r.tool = v.tool AND r.version >= v.version)
$$;

CREATE FUNCTION toolfleet.decide(call uuid, decision text, args_hash text, actor text, note text, in_tenant text DEFAULT NULL::text) RETURNS TABLE(verdict text, state text, approvals integer, needed integer, decided_by text, decided_at timestamp with time zone, dispatcher_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    o toolfleet.open_calls;
    d toolfleet.call_decisions;
    given integer;
    wanted integer;
    of_run timestamptz;
    ends timestamptz;
    hands_out_until timestamptz;
    new_state toolfleet.call_state := 'queued';
    details json := json_build_object('note', decide.note, 'role', session_user);
BEGIN
    IF decide.decision IS NULL OR decide.decision NOT IN ('approve', 'deny') THEN
        RAISE EXCEPTION 'decision must be approve or deny' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One name for one person: what is not seen would make two of it.
    IF coalesce(decide.actor, '') !~ '\S' OR length(decide.actor) > 200 OR toolfleet.has_invisible(decide.actor)
       OR decide.actor ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'actor must say who decides, in 1 to 200 characters that can be seen' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(decide.note, '') !~ '\S' OR length(decide.note) > 2000 THEN
        RAISE EXCEPTION 'note must say why, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = decide.call AND (decide.in_tenant IS NULL OR c.tenant = decide.in_tenant) FOR UPDATE;
    IF NOT FOUND OR o.awaiting IS DISTINCT FROM 'approval' THEN
        SELECT * INTO d FROM toolfleet.call_decisions c WHERE c.call_id = decide.call ORDER BY c.at DESC LIMIT 1;
        RETURN QUERY
        SELECT 'not_waiting', c.state, NULL::integer, NULL::integer, d.actor, d.at, NULL::uuid
        FROM (SELECT x.state::text, x.tenant FROM toolfleet.open_calls x WHERE x.call_id = decide.call
              UNION ALL
              SELECT x.state::text, x.tenant FROM toolfleet.finished_calls x WHERE x.call_id = decide.call) c
        WHERE decide.in_tenant IS NULL OR c.tenant = decide.in_tenant;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'not_found', NULL::text, NULL::integer, NULL::integer, NULL::text, NULL::timestamptz, NULL::uuid;
        END IF;
        RETURN;
    END IF;
    wanted := (o.approval->>'count')::integer;
    SELECT count(*) INTO given FROM toolfleet.call_decisions c WHERE c.call_id = o.call_id AND c.decision = 'approve';
    IF toolfleet.shown_hash(o.args_hash, o.approval) IS DISTINCT FROM decide.args_hash THEN
        RETURN QUERY SELECT 'other_arguments', o.state::text, given, wanted, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;
    IF o.due_at <= clock_timestamp() THEN
        RETURN QUERY SELECT 'over', o.state::text, given, wanted, NULL::text, o.due_at, NULL::uuid;
        RETURN;
    END IF;
    SELECT * INTO d FROM toolfleet.call_decisions c
    WHERE c.call_id = o.call_id AND toolfleet.person_of(c.actor) = toolfleet.person_of(decide.actor) AND c.decision = decide.decision;
    IF FOUND THEN
        RETURN QUERY SELECT 'same_person', o.state::text, given, wanted, d.actor, d.at, NULL::uuid;
        RETURN;
    END IF;
    IF wanted > 1 AND decide.decision = 'approve' AND toolfleet.person_of(o.meta->>'principal') IN (toolfleet.person_of(decide.actor), toolfleet.person_of(split_part(decide.actor, '@', 1))) THEN
        RETURN QUERY SELECT 'submitter', o.state::text, given, wanted, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;
    INSERT INTO toolfleet.call_decisions (call_id, decision, actor, role, note, args_hash)
    VALUES (o.call_id, decide.decision, decide.actor, session_user, decide.note, decode(decide.args_hash, 'hex'));
    IF decide.decision = 'deny' THEN
        IF o.effect_unknown AND o.effect IN ('idempotent', 'once') THEN
            -- Nothing that is decided now undoes what was lost with the writes.
            UPDATE toolfleet.open_calls c
            SET state = 'in_doubt', awaiting = NULL, rev = c.rev + 1, doubt_since = now(), doubt_reason = 'denied',
                attempt_until = toolfleet.unknown_until(c.call_id), due_at = greatest(now(), toolfleet.unknown_until(c.call_id)),
                last_error = json_build_object('code', 'in_doubt', 'message', CASE o.language
                    WHEN 'zh' THEN '有权决定的人拒绝了这次调用。操作可能已经生效，也可能没有生效。不要重复这次调用，换用新的幂等键也不行；请交由人工查明结果。'
                    ELSE 'Who had to decide about this call said no. The action may or may not have been carried out. Do not repeat the call, not with a new idempotency key either; ask a person to find out.'
                    END,
                    'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'do_not_repeat')
            WHERE c.call_id = o.call_id;
            INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
            VALUES (o.call_id, o.rev + 1, o.state, 'in_doubt', decide.actor, 'denied', details);
            RETURN QUERY SELECT 'decided', 'in_doubt', given, wanted, decide.actor, now(), o.dispatcher_id;
            RETURN;
        END IF;
        PERFORM toolfleet.finish(o, 'failed', 'business_error', 'error',
            CASE WHEN o.effect = 'read' THEN 'none' ELSE 'not_applied' END::toolfleet.effect_known, NULL,
            json_build_object('code', 'denied', 'message', CASE o.language
                WHEN 'zh' THEN '有权决定的人拒绝了这次调用。没有做任何更改。不要再次请求，换一种方式也不行；请告知用户。'
                ELSE 'Who had to decide about this call said no. Nothing was changed. Do not ask for it again, nor in another way; tell the user.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'do_not_repeat'),
            decide.actor, 'denied', details);
        RETURN QUERY SELECT 'decided', 'failed', given, wanted, decide.actor, now(), o.dispatcher_id;
        RETURN;
    END IF;
    given := given + 1;
    IF given < wanted THEN
        UPDATE toolfleet.open_calls c SET rev = c.rev + 1 WHERE c.call_id = o.call_id;
        INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
        VALUES (o.call_id, o.rev + 1, o.state, o.state, decide.actor, 'approved', details);
        RETURN QUERY SELECT 'decided', o.state::text, given, wanted, decide.actor, now(), NULL::uuid;
        RETURN;
    END IF;
    -- The clocks that begin now.
    of_run := (o.approval->>'run_deadline')::timestamptz;
    ends := least(now() + (o.approval->>'deadline_ms')::bigint * interval '1 millisecond', of_run);
    hands_out_until := least(now() + (o.approval->>'client_ms')::bigint * interval '1 millisecond', ends);
    IF o.approval->>'client_ms' IS NOT NULL THEN
        new_state := 'awaiting_client';
        UPDATE toolfleet.open_calls c
        SET awaiting = 'client', watched = c.watched OR (c.run IS NOT NULL OR c.session IS NOT NULL)
                AND c.tool = ANY ((SELECT f.watched_tools FROM toolfleet.fleet f)::text[]), rev = c.rev + 1, attempts = 1, attempt_id = gen_random_uuid(), first_started_at = coalesce(c.first_started_at, now()),
            attempt_started_at = now(), attempt_timeout_ms = (c.approval->>'client_ms')::bigint, attempt_until = hands_out_until,
            due_at = hands_out_until, deadline_at = ends
        WHERE c.call_id = o.call_id;
    ELSE
        UPDATE toolfleet.open_calls c
        SET state = 'queued', awaiting = NULL, held = true, rev = c.rev + 1, publish_n = c.publish_n + 1, not_before = now(),
            due_at = NULL, deadline_at = ends,
            queue_until = now() + (c.approval->>'queue_wait_ms')::bigint * interval '1 millisecond'
        WHERE c.call_id = o.call_id;
    END IF;
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
    VALUES (o.call_id, o.rev + 1, o.state, new_state, decide.actor, 'approved', details);
    RETURN QUERY SELECT 'decided', new_state::text, given, wanted, decide.actor, now(), NULL::uuid;
END $$;

CREATE FUNCTION toolfleet.delete_file(file uuid, tenant text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    f toolfleet.kept_files;
BEGIN
    -- Who accepts a call that names it has locked it FOR KEY SHARE. So either the call is seen below, in a later statement, or it is
    -- accepted after this and does not find the file.
    SELECT * INTO f FROM toolfleet.kept_files k WHERE k.file_id = delete_file.file AND k.tenant = delete_file.tenant FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    END IF;
    IF toolfleet.is_named(f.file_id) THEN
        RETURN 'named';
    END IF;
    IF f.expires_at <= now() THEN
        -- The sweep has not come to it yet.
        RETURN 'not_found';
    END IF;
    DELETE FROM toolfleet.kept_files k WHERE k.file_id = f.file_id;
    RETURN 'deleted';
END $$;

CREATE FUNCTION toolfleet.drop_breakers(ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    dropped bigint;
BEGIN
    WITH unused AS (
        DELETE FROM toolfleet.breaker_states s
        WHERE s.breaker_id = ANY (drop_breakers.ids)
          AND NOT EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.held AND o.line = 'breaker/' || s.breaker_id)
        RETURNING s.tool, s.target
    ), windows AS (
        DELETE FROM toolfleet.breaker_windows w USING unused u WHERE w.tool = u.tool AND w.target = u.target
    )
    SELECT count(*) INTO dropped FROM unused;
    IF dropped > 0 THEN
        PERFORM toolfleet.next_breaker_rev();
    END IF;
    RETURN dropped;
END $$;

CREATE FUNCTION toolfleet.drop_files(most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    due uuid[];
    dropped integer;
BEGIN
    due := ARRAY(
        SELECT k.file_id FROM toolfleet.kept_files k
        WHERE k.expires_at <= now() AND NOT toolfleet.is_named(k.file_id)
        ORDER BY k.expires_at
        LIMIT drop_files.most
        FOR UPDATE SKIP LOCKED);
    -- Asked again once they are locked: a call may have named one in between.
    DELETE FROM toolfleet.kept_files k WHERE k.file_id = ANY (due) AND NOT toolfleet.is_named(k.file_id);
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

CREATE FUNCTION toolfleet.drop_history(horizon timestamp with time zone) RETURNS date
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $_$
DECLARE
    part record;
    low uuid;
    high uuid;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.ensure_partitions'));
    FOR part IN
        SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'toolfleet.finished_calls'::regclass AND c.relname ~ '^finished_calls_[0-9]{8}$'
        ORDER BY 1
    LOOP
        CONTINUE WHEN (part.day + 1)::timestamp AT TIME ZONE 'UTC' > horizon;
        low := toolfleet.uuid_floor(part.day::timestamp AT TIME ZONE 'UTC');
        high := toolfleet.uuid_floor((part.day + 1)::timestamp AT TIME ZONE 'UTC');
        CONTINUE WHEN EXISTS (
            SELECT FROM toolfleet.call_marks m WHERE m.call_id >= low AND m.call_id < high AND m.what = 'abandoned');
        CONTINUE WHEN EXISTS (SELECT FROM toolfleet.open_calls WHERE call_id >= low AND call_id < high);
        CONTINUE WHEN EXISTS (
            SELECT FROM toolfleet.idempotency_keys k LEFT JOIN toolfleet.finished_calls f USING (call_id)
            WHERE k.call_id >= low AND k.call_id < high
              AND (f.call_id IS NULL OR f.finished_at + make_interval(secs => f.key_retention_ms / 1000.0) > now()));
        DELETE FROM toolfleet.happenings WHERE call_id >= low AND call_id < high;
        DELETE FROM toolfleet.policy_locks WHERE made_at < horizon;
        DELETE FROM toolfleet.idempotency_keys WHERE call_id >= low AND call_id < high;
        EXECUTE format('DROP TABLE toolfleet.%I, toolfleet.%I, toolfleet.%I',
            'finished_calls' || to_char(part.day, '_YYYYMMDD'),
            'ended_attempts' || to_char(part.day, '_YYYYMMDD'),
            'call_notes' || to_char(part.day, '_YYYYMMDD'));
        DELETE FROM toolfleet.call_marks WHERE call_id >= low AND call_id < high;
        DELETE FROM toolfleet.retry_reservations WHERE call_id >= low AND call_id < high;
        DELETE FROM toolfleet.bulk_retries WHERE newest >= low AND newest < high;
        DELETE FROM toolfleet.call_decisions d WHERE d.call_id >= low AND d.call_id < high
            AND NOT EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.call_id = d.call_id);
        DELETE FROM toolfleet.call_files WHERE call_id >= low AND call_id < high;
        EXECUTE format('DROP TABLE IF EXISTS toolfleet.%I', 'model_requests' || to_char(part.day, '_YYYYMMDD'));
        RETURN part.day;
    END LOOP;
    RETURN NULL;
END $_$;

CREATE FUNCTION toolfleet.drop_model_spend(days_before date, runs_before date, rows_max integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    dropped bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_model_spend')) THEN
        RETURN 0;
    END IF;
    WITH days AS MATERIALIZED (
        SELECT s.ctid AS place FROM toolfleet.model_spend s WHERE s.scope = 'tenant_day' AND s.day < days_before
        ORDER BY s.day LIMIT rows_max FOR UPDATE SKIP LOCKED
    ), runs AS MATERIALIZED (
        -- A run that goes on keeps all of its rows.
        SELECT s.ctid AS place FROM toolfleet.model_spend s WHERE s.scope = 'run' AND s.day < runs_before AND NOT EXISTS (
            SELECT FROM toolfleet.model_spend n
            WHERE n.tenant = s.tenant AND n.tool = s.tool AND n.scope = 'run' AND n.key = s.key AND n.day >= runs_before)
        ORDER BY s.day LIMIT rows_max FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM toolfleet.model_spend s WHERE s.ctid = ANY (ARRAY(SELECT place FROM days UNION ALL SELECT place FROM runs)) RETURNING 1
    )
    SELECT count(*) INTO dropped FROM gone;
    RETURN dropped;
END $$;

CREATE FUNCTION toolfleet.drop_old_answers() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    n bigint;
BEGIN
    WITH over AS MATERIALIZED (
        SELECT k.key, k.leader, k.keep_ms FROM toolfleet.kept_answers k WHERE k.keep_until < clock_timestamp()
        ORDER BY k.keep_until LIMIT 5000 FOR UPDATE SKIP LOCKED
    ), needed AS MATERIALIZED (
        SELECT o.key, f.finished_at + o.keep_ms * interval '1 millisecond' AS keep_until
        FROM over o
        -- One at a time, by its id: the history may be large, whatever its statistics say.
        CROSS JOIN LATERAL (
            SELECT f.finished_at FROM toolfleet.finished_calls f
            WHERE f.call_id = o.leader AND f.state = 'succeeded' AND f.outcome = 'success' AND f.source = 'live' AND f.error IS NULL
            LIMIT 1) f
        WHERE o.keep_ms > 0 AND f.finished_at + o.keep_ms * interval '1 millisecond' > clock_timestamp()
        UNION ALL
        SELECT o.key, clock_timestamp() + interval '1 minute'
        FROM over o JOIN toolfleet.open_calls c ON c.call_id = o.leader AND c.state IN ('queued', 'running')
    ), longer AS (
        UPDATE toolfleet.kept_answers a SET keep_until = n.keep_until FROM needed n WHERE a.key = n.key
    ), gone AS (
        DELETE FROM toolfleet.kept_answers a WHERE a.key IN (SELECT o.key FROM over o EXCEPT SELECT n.key FROM needed n)
    )
    SELECT count(*) INTO n FROM over;
    RETURN n;
END $$;

CREATE FUNCTION toolfleet.drop_summaries(used_before timestamp with time zone, rows_max integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    dropped bigint;
BEGIN
    WITH old AS MATERIALIZED (
        SELECT s.ctid AS place FROM toolfleet.summaries s WHERE s.used_at < used_before
        ORDER BY s.used_at LIMIT rows_max FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM toolfleet.summaries s WHERE s.ctid = ANY (ARRAY(SELECT place FROM old)) RETURNING 1
    )
    SELECT count(*) INTO dropped FROM gone;
    RETURN dropped;
END $$;

CREATE FUNCTION toolfleet.drop_todos(before date, lists_max integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    dropped bigint;
BEGIN
    WITH old AS MATERIALIZED (
        SELECT l.tenant, l.session FROM toolfleet.todo_lists l WHERE l.day < before
        ORDER BY l.day LIMIT lists_max FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM toolfleet.todo_lists l USING old o WHERE l.tenant = o.tenant AND l.session = o.session RETURNING 1
    )
    SELECT count(*) INTO dropped FROM gone;
    RETURN dropped;
END $$;

CREATE FUNCTION toolfleet.duration_ms(duration text) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    SELECT part[1]::bigint * CASE part[2] WHEN 'ms' THEN 1 WHEN 's' THEN 1000 WHEN 'm' THEN 60000 WHEN 'h' THEN 3600000 END
    FROM regexp_match(duration, '^([0-9]+)(ms|s|m|h)$') AS part
$_$;

CREATE FUNCTION toolfleet.ensure_partitions(days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    today timestamptz := date_trunc('day', now(), 'UTC');
    parents text[] := ARRAY['finished_calls', 'ended_attempts', 'call_notes', 'model_requests'];
    parent text;
    name text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.ensure_partitions'));
    FOR day IN -1 .. days LOOP
        name := to_char((today + make_interval(days => day)) AT TIME ZONE 'UTC', '_YYYYMMDD');
        CONTINUE WHEN to_regclass('toolfleet.finished_calls' || name) IS NOT NULL;
        BEGIN
            FOREACH parent IN ARRAY parents LOOP
                EXECUTE format('CREATE TABLE toolfleet.%I PARTITION OF toolfleet.%I FOR VALUES FROM (%L) TO (%L)%s',
                    parent || name, parent, toolfleet.uuid_floor(today + make_interval(days => day)),
                    toolfleet.uuid_floor(today + make_interval(days => day + 1)),
                    CASE parent WHEN 'model_requests' THEN ' WITH (fillfactor = 60)' ELSE '' END);
                EXECUTE format('CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.%I FOR EACH STATEMENT '
                    'EXECUTE FUNCTION toolfleet.refuse_truncation()', parent || name);
            END LOOP;
            made := made + cardinality(parents);
        EXCEPTION WHEN check_violation THEN
            RAISE WARNING 'the default partitions hold rows of %', ltrim(name, '_');
        END;
    END LOOP;
    RETURN made;
END $$;

CREATE FUNCTION toolfleet.expire_controls() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    c toolfleet.live_controls;
    ended bigint := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM toolfleet.live_controls l WHERE l.expires_at <= clock_timestamp()) THEN
        RETURN 0;
    END IF;
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    FOR c IN DELETE FROM toolfleet.live_controls l WHERE l.expires_at <= clock_timestamp() RETURNING l.* LOOP
        PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'expired', c, 'toolfleet', 'its time is over');
        ended := ended + 1;
    END LOOP;
    RETURN ended;
END $$;

CREATE FUNCTION toolfleet.fence(worker uuid, actor text, note text, proven boolean, lease_ms bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    w toolfleet.worker_processes;
BEGIN
    IF coalesce(length(btrim(fence.actor)), 0) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'actor must say who fences it, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(length(btrim(fence.note)), 0) NOT BETWEEN 1 AND 2000 THEN
        RAISE EXCEPTION 'note must say how that is known, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO w FROM toolfleet.worker_processes p WHERE p.worker_id = fence.worker FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF w.state = 'fenced' THEN
        RETURN 'already';
    ELSIF w.state = 'left' THEN
        RETURN 'left';
    ELSIF NOT fence.proven AND w.state IN ('live', 'draining')
        AND w.beat_at > clock_timestamp() - make_interval(secs => fence.lease_ms / 1000.0) THEN
        RETURN 'alive';
    END IF;
    UPDATE toolfleet.worker_processes p
    SET state = 'fenced', ended_at = coalesce(p.ended_at, now()), ended_by = coalesce(p.ended_by, fence.actor),
        fenced_at = now(), fenced_by = fence.actor, fence_note = fence.note
    WHERE p.worker_id = fence.worker;
    -- A "no" of a probe counts from now on, so those that wait for long ask at once.
    UPDATE toolfleet.open_calls o SET due_at = now()
    FROM (SELECT call_id FROM toolfleet.open_calls
          WHERE worker_id = fence.worker AND state = 'in_doubt' AND probe_id IS NULL
            AND (due_at > now() OR due_at IS NULL AND probe_state IN ('given_up', 'not_yet_applied'))
            AND attempt_until <= now()
          FOR UPDATE SKIP LOCKED) waiting
    WHERE o.call_id = waiting.call_id;
    RETURN 'fenced';
END $$;

CREATE FUNCTION toolfleet.fenced_since(call uuid) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    SELECT greatest(o.attempt_until, max(CASE WHEN a.over THEN a.finished_at
                                              ELSE coalesce(l.finished_at, w.fenced_at, w.ended_at) END))
    FROM toolfleet.open_calls o
    LEFT JOIN toolfleet.ended_attempts a ON a.call_id = o.call_id AND a.outcome = 'unknown' AND NOT a.late
    LEFT JOIN toolfleet.ended_attempts l
        ON l.call_id = a.call_id AND l.attempt_id = a.attempt_id AND l.late AND l.over
    LEFT JOIN toolfleet.worker_processes w ON w.worker_id = a.worker_id
    WHERE o.call_id = call
    GROUP BY o.call_id, o.attempt_until
$$;

CREATE FUNCTION toolfleet.fetching(calls uuid[]) RETURNS TABLE(call_id uuid, tool text, tenant text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT c.id, o.tool, o.tenant
    FROM unnest(fetching.calls) AS c (id)
    LEFT JOIN LATERAL (
        SELECT q.tool, q.tenant
        FROM toolfleet.open_calls q
        WHERE q.call_id = c.id AND q.state IN ('queued', 'running')
          AND (SELECT a.leader FROM toolfleet.kept_answers a
               WHERE a.key = toolfleet.answer_key(q.tenant, q.tool, q.tool_version, q.language, q.args_hash)) = q.call_id
        LIMIT 1) o ON true;
END $$;

CREATE FUNCTION toolfleet.fill_model_request(call uuid, request uuid, model text, first_token_ms bigint, run_ms bigint, input bigint, cached_input bigint, cache_write bigint, output bigint, reasoning bigint, estimated boolean, cost text, currency text, finish text, code text, misconfigured smallint, counted_run text, is_per_day boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'toolfleet', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    filled record;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE toolfleet.model_requests m
    SET model_answered = fill_model_request.model, first_token_ms = fill_model_request.first_token_ms,
        run_ms = fill_model_request.run_ms, input_tokens = fill_model_request.input,
        cached_input_tokens = fill_model_request.cached_input, cache_write_tokens = fill_model_request.cache_write,
        output_tokens = fill_model_request.output, reasoning_tokens = fill_model_request.reasoning,
        estimated = fill_model_request.estimated, cost = fill_model_request.cost::numeric, currency = fill_model_request.currency,
        finish = fill_model_request.finish, code = fill_model_request.code, misconfigured_status = fill_model_request.misconfigured
    WHERE m.call_id = fill_model_request.call AND m.request_id = fill_model_request.request AND m.run_ms IS NULL
    RETURNING m.tenant, m.tool, m.input_tokens + m.output_tokens AS tokens, m.cost, m.currency INTO filled;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF filled.tokens IS NOT NULL AND (fill_model_request.counted_run IS NOT NULL OR fill_model_request.is_per_day) THEN
        INSERT INTO toolfleet.model_spend AS s (tenant, tool, scope, key, currency, backend, day, tokens, cost)
        SELECT filled.tenant, filled.tool, c.scope, c.key, coalesce(filled.currency, ''), pg_backend_pid(), today, filled.tokens,
               coalesce(filled.cost, 0)
        FROM (VALUES ('run', fill_model_request.counted_run),
                     ('tenant_day', CASE WHEN fill_model_request.is_per_day THEN to_char(today, 'YYYY-MM-DD') END)) c (scope, key)
        WHERE c.key IS NOT NULL
        ON CONFLICT (tenant, tool, scope, key, currency, backend) DO UPDATE
        SET day = EXCLUDED.day, tokens = s.tokens + EXCLUDED.tokens, cost = s.cost + EXCLUDED.cost;
    END IF;
    RETURN true;
END $$;

CREATE TABLE toolfleet.finished_calls (
    call_id uuid NOT NULL,
    rev integer NOT NULL,
    from_state toolfleet.call_state NOT NULL,
    state toolfleet.call_state NOT NULL,
    outcome toolfleet.call_outcome NOT NULL,
    source toolfleet.source NOT NULL,
    effect_known toolfleet.effect_known NOT NULL,
    tenant text NOT NULL,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    effect toolfleet.effect NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    key_hash bytea,
    key_retention_ms bigint NOT NULL,
    args json NOT NULL,
    original_args json,
    coercions json,
    args_hash bytea NOT NULL,
    result json,
    error json,
    degraded json,
    session text,
    run text,
    meta json,
    language text NOT NULL,
    traceparent text,
    accepted_at timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    first_started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    queued_ms bigint NOT NULL,
    run_ms bigint NOT NULL,
    attempts integer NOT NULL,
    attempt_id uuid,
    worker_id uuid,
    claim_rev integer,
    attempt_started_at timestamp with time zone,
    attempt_timeout_ms bigint,
    attempt_outcome toolfleet.attempt_outcome,
    probe_of uuid,
    actor text NOT NULL,
    reason text NOT NULL,
    details json,
    preview json
)
PARTITION BY RANGE (call_id);

CREATE TABLE toolfleet.open_calls (
    call_id uuid NOT NULL,
    rev integer DEFAULT 0 NOT NULL,
    state toolfleet.call_state DEFAULT 'queued'::toolfleet.call_state NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    claim_rev integer,
    attempt_id uuid,
    worker_id uuid,
    first_started_at timestamp with time zone,
    attempt_started_at timestamp with time zone,
    attempt_until timestamp with time zone,
    attempt_timeout_ms bigint,
    held boolean DEFAULT false NOT NULL,
    line text NOT NULL,
    cancel_requested boolean DEFAULT false NOT NULL,
    tenant text NOT NULL,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    effect toolfleet.effect NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    key_hash bytea,
    key_retention_ms bigint NOT NULL,
    args json NOT NULL,
    kept_args json,
    original_args json,
    coercions json,
    args_hash bytea NOT NULL,
    session text,
    run text,
    meta json,
    language text NOT NULL,
    traceparent text,
    tracestate text,
    baggage text,
    dispatcher_id uuid NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    queue_until timestamp with time zone,
    not_before timestamp with time zone NOT NULL,
    due_at timestamp with time zone,
    publish_n integer DEFAULT 1 NOT NULL,
    lost_attempts integer DEFAULT 0 NOT NULL,
    unspent_attempts integer DEFAULT 0 NOT NULL,
    effect_unknown boolean DEFAULT false NOT NULL,
    last_error json,
    doubt_since timestamp with time zone,
    doubt_reason text,
    quarantined boolean DEFAULT false NOT NULL,
    probe_of uuid,
    probe_id uuid,
    probes integer DEFAULT 0 NOT NULL,
    probe_state text,
    obstacle json,
    done_secret uuid,
    rate_at timestamp with time zone,
    no_store boolean,
    rate_key text,
    awaiting text,
    approval json,
    asked json,
    watched boolean,
    CONSTRAINT open_calls_check CHECK (((state <> 'queued'::toolfleet.call_state) OR (attempt_id IS NULL))),
    CONSTRAINT open_calls_check1 CHECK (((NOT held) OR (state = 'queued'::toolfleet.call_state))),
    CONSTRAINT open_calls_check2 CHECK (((state <> 'running'::toolfleet.call_state) OR ((attempt_id IS NOT NULL) AND (worker_id IS NOT NULL) AND (attempt_until IS NOT NULL)))),
    CONSTRAINT open_calls_check3 CHECK (((state <> 'in_doubt'::toolfleet.call_state) OR ((doubt_since IS NOT NULL) AND (doubt_reason IS NOT NULL)))),
    CONSTRAINT open_calls_priority_check CHECK (((priority >= 0) AND (priority <= 2))),
    CONSTRAINT open_calls_state_check CHECK ((state = ANY (ARRAY['queued'::toolfleet.call_state, 'running'::toolfleet.call_state, 'in_doubt'::toolfleet.call_state, 'awaiting_client'::toolfleet.call_state]))),
    CONSTRAINT open_calls_transaction_known CHECK (((effect <> 'transaction'::toolfleet.effect) OR ((state <> 'in_doubt'::toolfleet.call_state) AND (NOT effect_unknown))))
)
WITH (fillfactor='40', vacuum_truncate=off, autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='-1');

CREATE FUNCTION toolfleet.finish(o toolfleet.open_calls, state toolfleet.call_state, outcome toolfleet.call_outcome, source toolfleet.source, effect_known toolfleet.effect_known, result json, error json, actor text, reason text, details json, attempt_outcome toolfleet.attempt_outcome DEFAULT NULL::toolfleet.attempt_outcome, at timestamp with time zone DEFAULT now()) RETURNS toolfleet.finished_calls
    LANGUAGE plpgsql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    f toolfleet.finished_calls;
    hidden json := (SELECT v.sensitive FROM toolfleet.tool_versions v WHERE v.tool = o.tool AND v.version = o.tool_version);
BEGIN
    INSERT INTO toolfleet.finished_calls (
        call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, priority,
        key_hash, key_retention_ms, args, original_args, coercions, args_hash, result, error, session, run, meta, language,
        traceparent, accepted_at, deadline_at, first_started_at, finished_at, queued_ms, run_ms, attempts, attempt_id,
        worker_id, claim_rev, attempt_started_at, attempt_timeout_ms, attempt_outcome, probe_of, actor, reason, details)
    VALUES (
        o.call_id, o.rev + 1, o.state, finish.state, finish.outcome, finish.source, finish.effect_known, o.tenant, o.tool,
        o.tool_version, o.effect, o.queue, o.priority, o.key_hash, o.key_retention_ms, coalesce(o.kept_args, o.args),
        CASE WHEN o.kept_args IS NULL THEN o.original_args END, o.coercions, o.args_hash, toolfleet.kept(finish.result, hidden), finish.error,
        o.session, o.run, o.meta, o.language, o.traceparent, o.accepted_at,
        o.deadline_at, o.first_started_at, finish.at,
        (extract(epoch FROM coalesce(o.first_started_at, finish.at) - o.accepted_at) * 1000)::bigint,
        (extract(epoch FROM finish.at - coalesce(o.first_started_at, finish.at)) * 1000)::bigint, o.attempts,
        CASE WHEN finish.attempt_outcome IS NOT NULL THEN o.attempt_id END,
        o.worker_id, o.claim_rev, o.attempt_started_at, o.attempt_timeout_ms, finish.attempt_outcome, o.probe_of,
        finish.actor, finish.reason,
        (coalesce(finish.details::jsonb, '{}') || jsonb_build_object('role', session_user))::json)
    RETURNING * INTO f;
    -- Last: what is noted of it (`note_happening`) is read from the row above.
    DELETE FROM toolfleet.open_calls c WHERE c.call_id = o.call_id;
    RETURN f;
END $$;

CREATE FUNCTION toolfleet.finish_file(file uuid, tenant text, said bytea) RETURNS TABLE(verdict text, name text, mime text, bytes bigint, received bigint, sha256 bytea, expires_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    f toolfleet.kept_files;
    came text;
BEGIN
    SELECT * INTO f FROM toolfleet.kept_files k
    WHERE k.file_id = finish_file.file AND k.tenant = finish_file.tenant AND k.expires_at > now()
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::timestamptz;
        RETURN;
    END IF;
    IF f.received < f.bytes THEN
        came := 'short';
    ELSE
        IF f.sha256 IS NULL THEN
            -- Once: who says a wrong hash again and again does not have it computed each time.
            f.sha256 := (SELECT sha256(string_agg(c.data, ''::bytea ORDER BY c.at)) FROM toolfleet.file_chunks c WHERE c.file_id = f.file_id);
            UPDATE toolfleet.kept_files k SET sha256 = f.sha256 WHERE k.file_id = f.file_id;
        END IF;
        IF f.sha256 IS DISTINCT FROM finish_file.said THEN
            came := 'differs';
        ELSE
            came := 'ready';
            IF f.state = 'open' THEN
                f.expires_at := now() + interval '1 day';
                UPDATE toolfleet.kept_files k SET state = 'ready', ready_at = now(), expires_at = f.expires_at WHERE k.file_id = f.file_id;
            END IF;
        END IF;
    END IF;
    RETURN QUERY SELECT came, f.name, f.mime, f.bytes, f.received, f.sha256, f.expires_at;
END $$;

CREATE FUNCTION toolfleet.fold_model_spend(rows_max integer, crowd integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    crowded boolean := (SELECT count(*) > crowd FROM (SELECT FROM toolfleet.model_spend s WHERE s.backend <> 0 LIMIT crowd + 1) c);
    folded bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_model_spend')) THEN
        RETURN 0;
    END IF;
    WITH living AS MATERIALIZED (
        SELECT pid FROM pg_stat_activity
    ), chosen AS MATERIALIZED (
        SELECT s.tenant, s.tool, s.scope, s.key, s.currency, s.backend FROM toolfleet.model_spend s
        WHERE s.backend <> 0 AND (crowded OR NOT EXISTS (SELECT FROM living l WHERE l.pid = s.backend))
        ORDER BY s.tenant, s.tool, s.scope, s.key, s.currency, s.backend LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM toolfleet.model_spend s USING chosen c
        WHERE (s.tenant, s.tool, s.scope, s.key, s.currency, s.backend) = (c.tenant, c.tool, c.scope, c.key, c.currency, c.backend)
        RETURNING s.tenant, s.tool, s.scope, s.key, s.currency, s.day, s.calls, s.tokens, s.cost
    ), moved AS (
        INSERT INTO toolfleet.model_spend AS s (tenant, tool, scope, key, currency, backend, day, calls, tokens, cost)
        SELECT tenant, tool, scope, key, currency, 0, max(day), sum(calls), sum(tokens), sum(cost) FROM taken
        GROUP BY tenant, tool, scope, key, currency ORDER BY tenant, tool, scope, key, currency
        ON CONFLICT (tenant, tool, scope, key, currency, backend) DO UPDATE
        SET day = greatest(s.day, EXCLUDED.day), calls = s.calls + EXCLUDED.calls, tokens = s.tokens + EXCLUDED.tokens,
            cost = s.cost + EXCLUDED.cost
    )
    SELECT count(*) INTO folded FROM taken;
    RETURN folded;
END $$;

CREATE FUNCTION toolfleet.fold_open_counts(rows_max integer, crowd integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    crowded boolean := (SELECT count(*) > crowd FROM (SELECT FROM toolfleet.open_counts LIMIT crowd + 1) c);
    folded bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_open_counts')) THEN
        RETURN 0;
    END IF;
    WITH living AS MATERIALIZED (
        SELECT pid FROM pg_stat_activity
    ), chosen AS MATERIALIZED (
        SELECT c.tenant, c.backend, c.generation FROM toolfleet.open_counts c
        WHERE c.backend <> 0 AND (crowded OR NOT EXISTS (SELECT FROM living l WHERE l.pid = c.backend))
        ORDER BY c.tenant, c.backend LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM toolfleet.open_counts c USING chosen s
        WHERE c.tenant = s.tenant AND c.backend = s.backend AND c.generation = s.generation
        RETURNING c.tenant, c.n
    ), kept AS (
        DELETE FROM toolfleet.open_counts c
        WHERE c.backend = 0 AND c.tenant IN (SELECT tenant FROM chosen)
        RETURNING c.tenant, c.n
    ), moved AS (
        INSERT INTO toolfleet.open_counts (tenant, backend, n)
        SELECT tenant, 0, sum(n) FROM (SELECT * FROM taken UNION ALL SELECT * FROM kept) c
        GROUP BY tenant HAVING sum(n) <> 0 ORDER BY tenant
    )
    SELECT count(*) INTO folded FROM taken;
    RETURN folded;
END $$;

CREATE FUNCTION toolfleet.give_input(call uuid, seen integer, input json, actor text) RETURNS TABLE(rev integer)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    WITH given AS (
        UPDATE toolfleet.open_calls c
        SET state = 'queued', awaiting = NULL, held = true, rev = c.rev + 1, publish_n = c.publish_n + 1, not_before = now(), due_at = NULL,
            asked = json_build_object('round', c.asked->'round', 'requests', c.asked->'requests', 'state', c.asked->'state',
                                      'input', give_input.input)
        WHERE c.call_id = give_input.call AND c.awaiting = 'input' AND c.rev = give_input.seen AND c.due_at > clock_timestamp()
        RETURNING c.call_id, c.rev
    ), notes AS (
        INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason)
        SELECT call_id, rev, 'awaiting_client', 'queued', give_input.actor, 'told' FROM given
    )
    SELECT rev FROM given
$$;

CREATE FUNCTION toolfleet.has_invisible(said text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT said ~ ('[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164'
        || '\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'
        || '|(^|[\u0001-\u024f\u200c\u200d])[\u200c\u200d]')
$$;

CREATE FUNCTION toolfleet.held_why(held boolean, line text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN NOT held THEN NULL
                WHEN line NOT LIKE '%/%' THEN 'room'
                WHEN line LIKE 'slots/%' THEN 'slots'
                WHEN line LIKE 'tool/%' THEN 'limit'
                WHEN line LIKE 'pause/%' THEN 'pause'
                WHEN line LIKE 'breaker/%' THEN 'breaker'
                WHEN line LIKE 'after/%' THEN 'follows' END
$$;

CREATE FUNCTION toolfleet.interceptor_problem(name text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT CASE
        WHEN NOT EXISTS (
            SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) i
            WHERE i->>'name' = interceptor_problem.name) THEN
            'no worker has an interceptor of this name; toolfleet.interceptors has those that there are' END
$$;

CREATE FUNCTION toolfleet.is_brake(name text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT name IN ('rate_limit', 'breaker', 'retry_budget', 'repeat_cap', 'learned_timeout', 'cache', 'fallback', 'large_result',
                    'delegation', 'tool_selection', 'todo', 'context', 'log')
$$;

CREATE FUNCTION toolfleet.is_fenced(call uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT NOT o.quarantined AND NOT EXISTS (
        SELECT FROM toolfleet.ended_attempts a
        LEFT JOIN toolfleet.worker_processes w USING (worker_id)
        WHERE a.call_id = o.call_id AND a.outcome = 'unknown' AND NOT a.over AND NOT a.late
          AND coalesce(w.state NOT IN ('left', 'fenced'), true)
          AND NOT EXISTS (SELECT FROM toolfleet.ended_attempts l
                          WHERE l.call_id = a.call_id AND l.attempt_id = a.attempt_id AND l.late AND l.over))
    FROM toolfleet.open_calls o
    WHERE o.call_id = call
$$;

CREATE FUNCTION toolfleet.is_fetching(call uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT EXISTS (SELECT FROM toolfleet.fetching(ARRAY[is_fetching.call]) f WHERE f.tool IS NOT NULL)
$$;

CREATE FUNCTION toolfleet.is_named(file uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM toolfleet.call_files u
        JOIN toolfleet.open_calls o ON o.call_id = u.call_id
        WHERE u.file_id = is_named.file
          AND u.call_id >= (SELECT p.call_id FROM toolfleet.open_calls p ORDER BY p.call_id LIMIT 1));
END $$;

CREATE FUNCTION toolfleet.judge_breaker(b toolfleet.breaker_states, worker uuid, moment timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    t record;
    n record;
BEGIN
    -- While an operator forces it, what is counted decides nothing, and nothing of it is left when that ends.
    IF EXISTS (SELECT FROM toolfleet.live_controls c
               WHERE c.kind = 'breaker' AND c.tool = b.tool AND (c.expires_at IS NULL OR c.expires_at > moment)) THEN
        IF b.state = 'closed' THEN
            DELETE FROM toolfleet.breaker_windows w WHERE w.tool = b.tool AND w.target = b.target;
            RETURN 'stays';
        END IF;
        PERFORM toolfleet.close_breaker(b);
        RETURN 'closed';
    END IF;
    SELECT * INTO t FROM toolfleet.breaker_terms(b.tool);
    IF b.state = 'closed' THEN
        DELETE FROM toolfleet.breaker_windows w
        WHERE w.tool = b.tool AND w.target = b.target AND w.at <= moment - t.window_ms * interval '1 millisecond';
    END IF;
    SELECT coalesce(sum(c.calls), 0) AS calls, coalesce(sum(c.failures), 0) AS failures, coalesce(sum(c.slow), 0) AS slow,
           min(c.heard_at) AS heard_at, count(*) FILTER (WHERE c.calls > 0) AS callers, count(*) FILTER (WHERE c.troubled) AS troubled,
           coalesce(bool_or(c.worker_id = worker AND c.troubled), false) AS i_am,
           coalesce(bool_or(c.worker_id = worker
               AND toolfleet.breaker_is_over(t.calls, t.failures, t.slow, c.calls, c.failures, c.slow)), false) AS i_am_over
    INTO n
    FROM (SELECT w.worker_id, min(w.heard_at) AS heard_at, sum(w.calls) AS calls, sum(w.failures) AS failures, sum(w.slow) AS slow,
                 sum(w.failures) > 0 OR t.slow IS NOT NULL AND sum(w.slow) > 0 AS troubled
          FROM toolfleet.breaker_windows w WHERE w.tool = b.tool AND w.target = b.target GROUP BY w.worker_id) c;
    IF b.state = 'closed' THEN
        IF NOT toolfleet.breaker_is_over(t.calls, t.failures, t.slow, n.calls::bigint, n.failures::bigint, n.slow::bigint)
           AND NOT (n.troubled = 1 AND n.i_am_over) THEN
            RETURN 'stays';
        ELSIF n.callers > 1 AND n.troubled = 1 THEN
            RETURN CASE WHEN n.i_am THEN 'local' ELSE 'stays' END;
        ELSIF n.callers <= 1 AND moment - n.heard_at < interval '500 ms' THEN
            RETURN 'unsure';
        END IF;
        b.open_ms := t.open_ms;
        b.opened_at := moment;
    ELSIF b.state = 'half_open' THEN
        IF n.troubled = 0 THEN
            b.probes_ok := n.calls;
            IF n.calls < t.probes THEN
                UPDATE toolfleet.breaker_states s SET probes_ok = b.probes_ok WHERE s.breaker_id = b.breaker_id;
                RETURN 'stays';
            END IF;
            b.state := 'closed';
            b.generation := b.generation + 1;
            b.open_until := NULL;
            b.open_ms := 0;
            b.probes_out := 0;
            b.probes_ok := 0;
            b.round_until := NULL;
            b.opened_at := NULL;
            b.why := NULL;
            PERFORM toolfleet.move_breaker(b);
            RETURN 'closed';
        END IF;
        b.open_ms := least(greatest(b.open_ms, 1) * 2, t.open_max_ms);
    ELSE
        RETURN 'stays';
    END IF;
    b.why := json_build_object('was', b.state, 'calls', n.calls, 'failures', n.failures, 'slow', n.slow, 'workers', n.callers);
    b.state := 'open';
    b.generation := b.generation + 1;
    b.open_until := moment + b.open_ms * interval '1 millisecond';
    b.probes_out := 0;
    b.probes_ok := 0;
    b.round_until := NULL;
    PERFORM toolfleet.move_breaker(b);
    RETURN 'opened';
END $$;

CREATE FUNCTION toolfleet.keep_answer_files(call uuid, attempt uuid, files uuid[], names text[], mimes text[], parts bytea[], files_max bigint, bytes_max bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    o record;
    part record;
    at integer;
    begun text;
    made uuid[] := '{}';
BEGIN
    SELECT c.tenant, c.key_retention_ms INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = keep_answer_files.call AND c.attempt_id = keep_answer_files.attempt;
    IF NOT FOUND THEN
        RETURN 'over';
    END IF;
    -- That of `begin_file`: whoever keeps the same files waits here, and then sees them.
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.kept_files'), hashtext(o.tenant));
    FOR part IN
        SELECT p.file, p.name, p.mime, p.data FROM unnest(keep_answer_files.files, keep_answer_files.names, keep_answer_files.mimes, keep_answer_files.parts)
            AS p(file, name, mime, data)
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM toolfleet.kept_files k WHERE k.file_id = part.file AND k.tenant = o.tenant AND k.state = 'ready');
        SELECT b.verdict INTO begun
        FROM toolfleet.begin_file(part.file, o.tenant, part.name, part.mime, octet_length(part.data), keep_answer_files.files_max, keep_answer_files.bytes_max) b;
        IF begun <> 'open' THEN
            DELETE FROM toolfleet.kept_files k WHERE k.file_id = ANY (made);
            RETURN begun;
        END IF;
        made := made || part.file;
        at := 0;
        WHILE at < octet_length(part.data) LOOP
            PERFORM toolfleet.write_chunk(part.file, o.tenant, at, substring(part.data FROM at + 1 FOR 262144));
            at := at + 262144;
        END LOOP;
        PERFORM toolfleet.finish_file(part.file, o.tenant, sha256(part.data));
    END LOOP;
    UPDATE toolfleet.kept_files k
    SET expires_at = greatest(k.expires_at, now() + greatest(interval '1 day', o.key_retention_ms * interval '1 millisecond'))
    WHERE k.file_id = ANY (keep_answer_files.files);
    RETURN 'kept';
END $$;

CREATE FUNCTION toolfleet.kept(value json, sensitive json) RETURNS json
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
    IF sensitive->>'mode' = 'omit' THEN
        RETURN toolfleet.veiled(value, ARRAY(SELECT json_array_elements_text(sensitive->'pointers')), '[omitted]');
    END IF;
    RETURN value;
END $$;

CREATE FUNCTION toolfleet.key_lapsed(call uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM toolfleet.finished_calls f
        WHERE f.call_id = call AND f.finished_at + make_interval(secs => f.key_retention_ms / 1000.0) < now()
          -- One that was abandoned may have been carried out: its key never makes a second call.
          AND NOT (f.source = 'settled' AND f.effect_known = 'unknown'));
END $$;

CREATE FUNCTION toolfleet.leave(worker uuid, clean boolean) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    w toolfleet.worker_processes;
BEGIN
    SELECT * INTO w FROM toolfleet.worker_processes p WHERE p.worker_id = leave.worker FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF w.state IN ('left', 'fenced') OR (w.state = 'dead' AND NOT leave.clean) THEN
        RETURN w.state::text;
    ELSIF NOT leave.clean THEN
        UPDATE toolfleet.worker_processes p
        SET state = 'dead', ended_at = now(), ended_by = 'itself: something that it started may live'
        WHERE p.worker_id = leave.worker;
        RETURN 'dead';
    ELSIF w.state <> 'dead' AND NOT EXISTS (
        SELECT FROM toolfleet.open_calls o WHERE o.worker_id = leave.worker AND o.state = 'running') THEN
        UPDATE toolfleet.worker_processes p SET state = 'left', ended_at = now(), ended_by = 'itself'
        WHERE p.worker_id = leave.worker;
        RETURN 'left';
    END IF;
    UPDATE toolfleet.worker_processes p
    SET state = 'fenced', ended_at = coalesce(p.ended_at, now()), ended_by = coalesce(p.ended_by, 'itself'),
        fenced_at = now(), fenced_by = 'worker ' || leave.worker, fence_note = 'lock released; it ended in order'
    WHERE p.worker_id = leave.worker;
    RETURN 'fenced';
END $$;

CREATE FUNCTION toolfleet.limit_problem(c toolfleet.live_controls) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $_$
DECLARE
    shape text := 'setting must be {"calls": 50, "per_ms": 1000} and perhaps "burst", in whole numbers';
    calls numeric;
    per_ms numeric;
    burst numeric;
    limits bigint := (
        SELECT count(*)
        FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
        CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r
        WHERE r.name = c.subject);
BEGIN
    IF num_nonnulls(c.tool, c.queue, c.tenant, c.pointer, c.value, c.told) > 0 THEN
        RETURN 'a limit has a name, as its subject, and no scope: no tool, queue, tenant, pointer, value or told';
    ELSIF c.subject IS NULL OR limits = 0 THEN
        RETURN 'subject must name a limit: that of a tool with a rate_limit of its own, or one that tools share';
    ELSIF (SELECT count(DISTINCT l.is_shared) > 1 FROM toolfleet.current_limits() l WHERE l.name = c.subject) THEN
        RETURN 'subject names the limit of a tool and a shared one; give the shared one another name, or retire the tool';
    ELSIF c.setting IS NULL OR json_typeof(c.setting) <> 'object' THEN
        RETURN shape;
    ELSIF EXISTS (
        SELECT FROM json_each(c.setting) s
        WHERE s.key NOT IN ('calls', 'per_ms', 'burst') OR s.value::text !~ '^[0-9]{1,9}$') THEN
        RETURN shape;
    END IF;
    calls := c.setting->>'calls';
    per_ms := c.setting->>'per_ms';
    burst := coalesce(c.setting->>'burst', '1');
    RETURN CASE
        WHEN calls IS NULL OR calls NOT BETWEEN 1 AND 1000000 THEN 'calls must be 1 to 1000000'
        WHEN per_ms IS NULL OR per_ms NOT BETWEEN 1 AND 86400000 THEN 'per_ms must be 1 to 86400000, which is a day'
        WHEN burst NOT BETWEEN 1 AND 10000 THEN 'burst must be 1 to 10000'
        WHEN calls > per_ms * 100 THEN 'calls are more than 100 in a millisecond, which is no limit'
        END;
END $_$;

CREATE FUNCTION toolfleet.lock_breaker(tool text, target text) RETURNS toolfleet.breaker_states
    LANGUAGE plpgsql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    b toolfleet.breaker_states;
BEGIN
    LOOP
        SELECT * INTO b FROM toolfleet.breaker_states s
        WHERE s.tool = lock_breaker.tool AND s.target = lock_breaker.target FOR UPDATE;
        EXIT WHEN FOUND;
        -- Another one may have made it meanwhile, or taken the number.
        INSERT INTO toolfleet.breaker_states (breaker_id, tool, target)
        SELECT coalesce(max(s.breaker_id), 0) + 1, lock_breaker.tool, lock_breaker.target FROM toolfleet.breaker_states s
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN b;
END $$;

CREATE FUNCTION toolfleet.log_control(rev bigint, change text, c toolfleet.live_controls, actor text, note text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    INSERT INTO toolfleet.control_changes (rev, change, control_id, kind, tool, queue, tenant, pointer, value, subject, setting,
        told, expires_at, actor, note, role)
    VALUES (log_control.rev, log_control.change, c.control_id, c.kind, c.tool, c.queue, c.tenant, c.pointer, c.value, c.subject,
        c.setting, c.told, c.expires_at, log_control.actor, log_control.note, session_user)
$$;

CREATE FUNCTION toolfleet.look(calls uuid[], ttls_ms bigint[], observes boolean[], keeps_ms bigint[]) RETURNS TABLE(call_id uuid, verdict text, other uuid, bytes integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    q record;
    k toolfleet.kept_answers;
    v record;
    aside uuid[] := '{}';
    leaders uuid[] := '{}';
BEGIN
    FOR q IN
        SELECT o.call_id, o.tenant, o.tool, o.tool_version, o.deadline_at, o.attempts, i.ttl_ms, i.keep_ms, i.observes,
               i.ttl_ms * interval '1 millisecond' AS ttl,
               greatest(i.ttl_ms, i.keep_ms) * interval '1 millisecond' AS kept,
               o.no_store IS TRUE OR o.probe_of IS NOT NULL OR o.effect <> 'read' AS is_alone,
               toolfleet.answer_key(o.tenant, o.tool, o.tool_version, o.language, o.args_hash) AS key
        FROM unnest(look.calls, look.ttls_ms, look.observes, look.keeps_ms) AS i (call_id, ttl_ms, observes, keep_ms)
        JOIN toolfleet.open_calls o ON o.call_id = i.call_id
        -- Repeated: the list makes Postgres use the index, whatever the statistics of an emptied table are.
        WHERE o.call_id = ANY(look.calls) AND o.state = 'queued' AND NOT o.held AND o.due_at IS NULL AND NOT o.cancel_requested
        ORDER BY key, o.call_id
    LOOP
        IF q.is_alone THEN
            SELECT 'alone' AS verdict INTO v;
        ELSE
            SELECT * INTO k FROM toolfleet.kept_answers a WHERE a.key = q.key;
            v := toolfleet.answer_verdict(k, q.call_id, q.ttl_ms);
        END IF;
        IF v.verdict IN ('free', 'found', 'old', 'large', 'failed') THEN
            INSERT INTO toolfleet.kept_answers (key, tenant, tool, version, leader, keep_until, keep_ms)
            VALUES (q.key, q.tenant, q.tool, q.tool_version, q.call_id, q.deadline_at + q.ttl + interval '1 minute', q.keep_ms)
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                RETURN QUERY SELECT q.call_id, 'lead', NULL::uuid, NULL::integer;
                CONTINUE;
            END IF;
            -- Whoever looks second sees what the first one decided; a statement of its own, for the leader may have ended while this
            -- one waited for the lock.
            SELECT * INTO k FROM toolfleet.kept_answers a WHERE a.key = q.key FOR UPDATE;
            CONTINUE WHEN NOT FOUND;
            v := toolfleet.answer_verdict(k, q.call_id, q.ttl_ms);
            IF v.verdict = 'found' OR v.verdict = 'old' AND q.kept > q.ttl THEN
                k.call_id := k.leader;
                k.bytes := v.size;
                UPDATE toolfleet.kept_answers a
                SET call_id = k.call_id, bytes = k.bytes, failures = 0, apart_until = NULL, fresh_until = v.ended_at + q.ttl,
                    keep_until = v.ended_at + q.kept, keep_ms = q.keep_ms
                WHERE a.key = q.key;
                v.verdict := CASE v.verdict WHEN 'found' THEN 'hit' ELSE v.verdict END;
            END IF;
            IF v.verdict IN ('free', 'old', 'large', 'failed') THEN
                -- Behind an answer that cannot be kept, and when two in turn have failed, one at a time would take as long as all of them
                -- together. What keeps a target that fails from being asked is a breaker.
                UPDATE toolfleet.kept_answers a
                SET leader = q.call_id,
                    failures = CASE WHEN v.verdict = 'failed' AND a.failures = 0 THEN 1 ELSE 0 END,
                    apart_until = CASE
                        WHEN v.verdict = 'large' THEN v.ended_at + q.ttl
                        WHEN v.verdict = 'failed' AND a.failures > 0 THEN clock_timestamp() + interval '10 seconds'
                        ELSE a.apart_until END,
                    keep_ms = q.keep_ms,
                    -- A good answer from before goes on to be kept.
                    keep_until = greatest(CASE WHEN a.call_id IS NOT NULL THEN a.keep_until END,
                                          q.deadline_at + q.ttl + interval '1 minute')
                WHERE a.key = q.key;
                v.verdict := 'lead';
            END IF;
        END IF;
        IF v.verdict IN ('hit', 'follow') AND q.attempts > 0 THEN
            -- It has begun: what it was told by then is its own.
            RETURN QUERY SELECT q.call_id, 'alone', NULL::uuid, NULL::integer;
        ELSIF v.verdict = 'follow' AND NOT q.observes THEN
            aside := aside || q.call_id;
            leaders := leaders || k.leader;
        ELSE
            RETURN QUERY SELECT q.call_id, v.verdict, CASE v.verdict WHEN 'hit' THEN k.call_id WHEN 'follow' THEN k.leader END,
                CASE v.verdict WHEN 'hit' THEN k.bytes END;
        END IF;
    END LOOP;
    IF aside <> '{}' THEN
        RETURN QUERY
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest(aside, leaders) AS asked (id, leader)
        ), mine AS MATERIALIZED (
            -- A row that another statement has is being cancelled, ended or moved, and no other one is waited for.
            SELECT o.call_id AS id FROM toolfleet.open_calls o
            WHERE o.call_id = ANY(aside) AND o.state = 'queued' AND NOT o.held AND o.due_at IS NULL AND NOT o.cancel_requested
            FOR UPDATE SKIP LOCKED
        )
        UPDATE toolfleet.open_calls o SET held = true, line = 'after/' || a.leader
        FROM mine m JOIN asked a ON a.id = m.id
        WHERE o.call_id = ANY(aside) AND o.call_id = m.id
        RETURNING o.call_id, 'follow', a.leader, NULL::integer;
    END IF;
END $$;

CREATE FUNCTION toolfleet.mark_calls(calls uuid[], what text, actor text, note text DEFAULT NULL::text, new_calls uuid[] DEFAULT NULL::uuid[], bulk_name text DEFAULT NULL::text) RETURNS TABLE(call_id uuid, verdict text, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
BEGIN
    IF mark_calls.what IS NULL OR mark_calls.what NOT IN ('retried', 'discarded') THEN
        RAISE EXCEPTION 'what must be retried or discarded' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(btrim(mark_calls.actor), '') = '' OR length(mark_calls.actor) > 200 THEN
        RAISE EXCEPTION 'actor must say who marks it, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF mark_calls.what = 'discarded' AND coalesce(btrim(mark_calls.note), '') = '' OR length(mark_calls.note) > 2000 THEN
        RAISE EXCEPTION 'note must say why it is discarded, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(cardinality(mark_calls.calls), 0) > 1000 THEN
        RAISE EXCEPTION 'at most 1000 calls are marked at a time' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF mark_calls.what = 'retried'
       AND cardinality(mark_calls.new_calls) IS DISTINCT FROM cardinality(mark_calls.calls)
       OR mark_calls.what = 'discarded' AND mark_calls.new_calls IS NOT NULL
       OR array_position(mark_calls.new_calls, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'new_calls must have a call for each that was retried' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF mark_calls.what = 'discarded' THEN
        -- Either those who reserve it to make it again see this mark, or this sees their reservation.
        PERFORM pg_advisory_xact_lock(hashtext('toolfleet.retry_reservations'));
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT a.call_id, a.new_call_id, coalesce(f.state, o.state) AS state, f.call_id IS NOT NULL AS over,
               EXISTS (SELECT FROM toolfleet.dead_letters d WHERE d.call_id = a.call_id) AS dead,
               EXISTS (SELECT FROM toolfleet.retry_reservations r WHERE r.call_id = a.call_id
                           AND r.at > now() - interval '23 hours') AS reserved,
               EXISTS (SELECT FROM toolfleet.call_marks m WHERE m.call_id = a.call_id AND m.what = mark_calls.what
                           AND m.new_call_id IS NOT DISTINCT FROM a.new_call_id) AS marked
        FROM unnest(mark_calls.calls, mark_calls.new_calls) a (call_id, new_call_id)
        LEFT JOIN toolfleet.open_calls o ON o.call_id = a.call_id
        LEFT JOIN toolfleet.finished_calls f ON f.call_id = a.call_id
    ), stored AS (
        INSERT INTO toolfleet.call_marks (call_id, what, actor, role, new_call_id, note, bulk_name)
        SELECT DISTINCT a.call_id, mark_calls.what, mark_calls.actor, session_user, a.new_call_id, mark_calls.note,
               mark_calls.bulk_name
        FROM asked a
        WHERE a.over AND (a.dead AND NOT a.reserved OR mark_calls.what = 'retried')
        ORDER BY a.call_id
        ON CONFLICT DO NOTHING
    )
    SELECT a.call_id,
           CASE WHEN a.state IS NULL THEN 'not_found'
                WHEN NOT a.over THEN 'not_over'
                WHEN a.marked OR mark_calls.what = 'retried' THEN 'marked'
                WHEN a.dead AND a.reserved THEN 'under_way'
                WHEN a.dead THEN 'marked'
                ELSE 'not_dead' END,
           a.state::text
    FROM asked a;
END $$;

CREATE FUNCTION toolfleet.may_have_happened(f toolfleet.finished_calls) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT (f.state = 'succeeded' OR f.effect_known IN ('applied', 'unknown')
        -- Who was answered by what stood in for the tool has an answer of it, perhaps an old one.
        OR f.outcome = 'fallback'
        -- A read that its caller's program was given, of which the fleet has heard nothing: that program may have read it all the same.
        OR f.state IN ('expired', 'cancelled') AND f.attempt_id IS NOT NULL AND f.worker_id IS NULL) IS TRUE
$$;

CREATE FUNCTION toolfleet.mode_problem(c toolfleet.live_controls) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR c.setting::text NOT IN ('"enforce"', '"observe"', '"off"') THEN
            'setting must be "enforce", "observe" or "off"'
        WHEN c.queue IS NOT NULL OR c.pointer IS NOT NULL OR c.value IS NOT NULL THEN
            'a mode is about an interceptor, and perhaps a tool, a tenant, or both'
        WHEN c.told IS NOT NULL THEN 'told is what callers refused by a pause read: a mode has none'
        WHEN c.subject IS NULL THEN
            'subject must name an interceptor, or rate_limit, breaker, retry_budget, repeat_cap, learned_timeout, cache, fallback, large_result, delegation, tool_selection, todo, context or log'
        WHEN c.subject = 'pause' THEN 'pause is mandatory: end a pause instead of switching it off'
        WHEN c.subject = 'policy' THEN 'policy is mandatory: apply a version of the tool with other rules instead of switching it off'
        WHEN toolfleet.is_brake(c.subject) THEN NULL
        WHEN toolfleet.interceptor_problem(c.subject) IS NOT NULL THEN toolfleet.interceptor_problem(c.subject)
        WHEN c.setting::text <> '"enforce"' AND EXISTS (
            SELECT FROM toolfleet.worker_processes w, json_array_elements(w.interceptors) i
            WHERE i->>'name' = c.subject AND (i->>'mandatory')::boolean) THEN
            'the interceptor is mandatory: its program lets nobody switch it off or only observe it'
        END;
END $$;

CREATE FUNCTION toolfleet.move_breaker(b toolfleet.breaker_states) RETURNS void
    LANGUAGE sql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    UPDATE toolfleet.breaker_states s
    SET state = b.state, generation = b.generation, open_until = b.open_until, open_ms = b.open_ms, probes_out = b.probes_out,
        probes_ok = b.probes_ok, round_until = b.round_until, opened_at = b.opened_at, why = b.why
    WHERE s.breaker_id = b.breaker_id;
    DELETE FROM toolfleet.breaker_windows w WHERE w.tool = b.tool AND w.target = b.target;
$$;

CREATE FUNCTION toolfleet.name_person() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    NEW.person := toolfleet.person_of(NEW.actor);
    RETURN NEW;
END $$;

CREATE FUNCTION toolfleet.next_breaker_rev() RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    UPDATE toolfleet.fleet SET breaker_rev = breaker_rev + 1 RETURNING breaker_rev
$$;

CREATE FUNCTION toolfleet.next_control_rev() RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    UPDATE toolfleet.fleet SET control_rev = control_rev + 1 RETURNING control_rev
$$;

CREATE FUNCTION toolfleet.note_asked(call uuid, run text, session text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    o toolfleet.open_calls;
    f toolfleet.finished_calls;
BEGIN
    PERFORM FROM toolfleet.open_calls c
    WHERE c.call_id = note_asked.call
      AND (note_asked.run IS NULL OR note_asked.run = c.run) AND (note_asked.session IS NULL OR note_asked.session = c.session);
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT * INTO o FROM toolfleet.open_calls c WHERE c.call_id = note_asked.call FOR NO KEY UPDATE;
    IF FOUND THEN
        IF (SELECT count(*) FROM toolfleet.happenings h
            WHERE h.call_id = o.call_id AND h.what = 'asked'
              AND (h.scope, h.label) IS DISTINCT FROM ('run', note_asked.run)
              AND (h.scope, h.label) IS DISTINCT FROM ('session', note_asked.session)) > 30 THEN
            RETURN false;
        END IF;
        INSERT INTO toolfleet.happenings (tenant, scope, label, tool, what, call_id)
        SELECT o.tenant, l.scope, l.label, o.tool, w.what, o.call_id
        FROM (VALUES ('run', note_asked.run, o.run), ('session', note_asked.session, o.session)) AS l (scope, label, own)
        CROSS JOIN LATERAL (
            SELECT 'asked' AS what
            UNION ALL
            SELECT 'seen' WHERE o.state IN ('running', 'in_doubt') OR o.awaiting IN ('client', 'completion') OR o.effect_unknown) w
        WHERE l.label IS NOT NULL AND l.label IS DISTINCT FROM l.own
        ON CONFLICT DO NOTHING;
        -- One that has neither a run nor a session, or was accepted before the policy, is noted from here on.
        UPDATE toolfleet.open_calls c SET watched = true WHERE c.call_id = o.call_id AND c.watched IS NOT TRUE;
        RETURN true;
    END IF;
    SELECT * INTO f FROM toolfleet.finished_calls c WHERE c.call_id = note_asked.call;
    -- What has ended and has not happened never will.
    IF NOT FOUND OR NOT toolfleet.may_have_happened(f) THEN
        RETURN true;
    END IF;
    INSERT INTO toolfleet.happenings (tenant, scope, label, tool, what, call_id)
    SELECT f.tenant, l.scope, l.label, f.tool, w.what, f.call_id
    FROM (VALUES ('run', note_asked.run, f.run), ('session', note_asked.session, f.session)) AS l (scope, label, own)
    CROSS JOIN LATERAL (SELECT 'seen' AS what UNION ALL SELECT 'succeeded' WHERE f.state = 'succeeded') w
    WHERE l.label IS NOT NULL AND l.label IS DISTINCT FROM l.own
    ON CONFLICT DO NOTHING;
    RETURN true;
END $$;

CREATE FUNCTION toolfleet.note_for(note text, set_in text, in_tenant text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN in_tenant IS NULL OR set_in = in_tenant THEN note ELSE 'set by the fleet''s operators' END
$$;

CREATE FUNCTION toolfleet.note_happening() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    c toolfleet.open_calls;
    may_have boolean;
    has_succeeded boolean := false;
BEGIN
    IF TG_OP = 'DELETE' THEN
        c := OLD;
        -- Who ends a call has inserted it there by now; where it is not found, what is noted stays.
        SELECT toolfleet.may_have_happened(f), f.state = 'succeeded' INTO may_have, has_succeeded
        FROM toolfleet.finished_calls f WHERE f.call_id = c.call_id;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    ELSE
        c := NEW;
        may_have := (c.state IN ('running', 'in_doubt') OR c.awaiting IN ('client', 'completion') OR c.effect_unknown) IS TRUE;
    END IF;
    IF may_have THEN
        INSERT INTO toolfleet.happenings (tenant, scope, label, tool, what, call_id)
        SELECT c.tenant, l.scope, l.label, c.tool, w.what, c.call_id
        FROM (
            SELECT 'run' AS scope, c.run AS label, 'own' AS what WHERE c.run IS NOT NULL
            UNION ALL
            SELECT 'session', c.session, 'own' WHERE c.session IS NOT NULL
            UNION ALL
            SELECT h.scope, h.label, 'seen' FROM toolfleet.happenings h WHERE h.call_id = c.call_id AND h.what = 'asked') l
        CROSS JOIN LATERAL (SELECT l.what UNION ALL SELECT 'succeeded' WHERE has_succeeded) w
        ON CONFLICT DO NOTHING;
    END IF;
    -- Who asked for it matters until it is over.
    DELETE FROM toolfleet.happenings h
    WHERE h.call_id = c.call_id AND (NOT may_have AND h.what IN ('own', 'seen') OR TG_OP = 'DELETE' AND h.what = 'asked');
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.only_problem(c toolfleet.live_controls) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR json_typeof(c.setting) <> 'array' THEN 'setting must be a list of names of interceptors'
        WHEN json_array_length(c.setting) > 16 THEN 'setting may have 16 names'
        WHEN EXISTS (SELECT FROM json_array_elements(c.setting) n WHERE json_typeof(n) <> 'string') THEN
            'setting must be a list of names of interceptors'
        WHEN c.queue IS NOT NULL OR c.pointer IS NOT NULL OR c.value IS NOT NULL OR c.subject IS NOT NULL THEN
            'a list of the only interceptors is about all calls, or about a tool, a tenant, or both'
        WHEN c.told IS NOT NULL THEN 'told is what callers refused by a pause read: a list has none'
        ELSE (SELECT toolfleet.interceptor_problem(n) FROM json_array_elements_text(c.setting) n
              WHERE toolfleet.interceptor_problem(n) IS NOT NULL LIMIT 1)
        END;
END $$;

CREATE FUNCTION toolfleet.open_buckets_of_limit() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE toolfleet.rate_buckets b SET closed_until = NULL WHERE b.name = NEW.subject AND b.closed_until IS NOT NULL;
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.open_count(of_tenant text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    session record;
    below bigint := 4294967296;
    total bigint := 0;
BEGIN
    IF pg_relation_size('toolfleet.open_counts') < 4194304 THEN
        RETURN (SELECT coalesce(sum(c.n), 0) FROM toolfleet.open_counts c WHERE c.tenant = of_tenant);
    END IF;
    LOOP
        SELECT c.backend, c.n INTO session FROM toolfleet.open_counts c
        WHERE c.tenant = of_tenant AND c.backend < below
        ORDER BY c.tenant DESC, c.backend DESC, c.generation DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        total := total + session.n;
        below := session.backend;
    END LOOP;
    RETURN total;
END $$;

CREATE FUNCTION toolfleet.park(call uuid, attempt uuid, awaiting text, wait_ms bigint, asked json, actor text) RETURNS TABLE(verdict text, rev integer, at timestamp with time zone, until timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    o toolfleet.open_calls;
    ends timestamptz;
BEGIN
    SELECT * INTO o FROM toolfleet.open_calls c WHERE c.call_id = park.call FOR UPDATE;
    IF o.attempt_id = park.attempt AND o.state = 'running' AND NOT o.cancel_requested THEN
        IF park.awaiting = 'completion' THEN
            ends := least(now() + park.wait_ms * interval '1 millisecond', o.deadline_at);
            UPDATE toolfleet.open_calls c
            SET state = 'awaiting_client', awaiting = 'completion', rev = c.rev + 1, attempt_until = ends, due_at = ends
            WHERE c.call_id = o.call_id;
        ELSE
            ends := o.deadline_at;
            INSERT INTO toolfleet.ended_attempts (
                call_id, attempt_id, number, claim_rev, worker_id, started_at, timeout_ms, outcome, effect_known, error, over)
            VALUES (o.call_id, o.attempt_id, o.attempts, o.claim_rev, o.worker_id, o.attempt_started_at, o.attempt_timeout_ms, 'not_started',
                CASE WHEN o.effect = 'read' THEN 'none' ELSE 'not_applied' END::toolfleet.effect_known, NULL, true);
            UPDATE toolfleet.open_calls c
            SET state = 'awaiting_client', awaiting = 'input', rev = c.rev + 1, asked = park.asked, attempt_id = NULL, worker_id = NULL,
                claim_rev = NULL, attempt_started_at = NULL, attempt_until = NULL, attempt_timeout_ms = NULL, due_at = ends,
                unspent_attempts = c.unspent_attempts + 1
            WHERE c.call_id = o.call_id;
        END IF;
        INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id)
        VALUES (o.call_id, o.rev + 1, 'running', 'awaiting_client', park.actor,
            CASE park.awaiting WHEN 'completion' THEN 'answers_later' ELSE 'asks' END, o.attempt_id);
        RETURN QUERY SELECT 'waits', o.rev + 1, now(), ends;
        RETURN;
    END IF;
    RETURN QUERY SELECT 'waits', n.rev, n.at, coalesce(o.due_at, n.at)
    FROM toolfleet.call_notes n
    WHERE n.call_id = park.call AND n.attempt_id = park.attempt AND n.to_state = 'awaiting_client';
    IF NOT FOUND THEN
        RETURN QUERY SELECT CASE WHEN EXISTS (
            SELECT FROM toolfleet.finished_calls f WHERE f.call_id = park.call AND f.attempt_id = park.attempt AND f.actor = 'tool')
            THEN 'over' ELSE 'not_now' END, NULL::integer, NULL::timestamptz, NULL::timestamptz;
    END IF;
END $$;

CREATE FUNCTION toolfleet.pause_problem(c toolfleet.live_controls) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $_$
BEGIN
    RETURN CASE
        WHEN c.setting IS NULL OR c.setting::text NOT IN ('"wait"', '"refuse"') THEN 'setting must be "wait" or "refuse"'
        WHEN c.subject IS NOT NULL THEN 'a pause has no subject'
        WHEN c.told IS NOT NULL AND c.setting::text <> '"refuse"' THEN
            'told is what refused callers read: it needs the setting "refuse"'
        WHEN c.tool IS NULL AND c.queue IS NULL AND c.tenant IS NULL THEN
            'a pause needs a scope: a tool, a queue, a tenant, or several of them'
        WHEN (c.pointer IS NULL) <> (c.value IS NULL) THEN 'pointer and value belong together'
        WHEN c.pointer IS NULL THEN NULL
        WHEN c.tool IS NULL THEN 'a pointer needs a tool: the arguments of others have other places'
        WHEN octet_length(c.pointer) > 1024 OR c.pointer !~ '^(/([^/~]|~[01])*)+$' THEN
            'pointer must be a JSON pointer such as /account/id, of at most 1024 bytes'
        WHEN octet_length(c.value) > 1024 THEN 'value may have 1024 bytes, as JSON'
        WHEN strpos(c.value, '\u0000') > 0 THEN 'value must not hold the character NUL'
        WHEN EXISTS (
            SELECT FROM toolfleet.tool_versions v, json_array_elements_text(v.sensitive->'pointers') s (pointer)
            WHERE v.tool = c.tool AND toolfleet.touches(s.pointer, c.pointer)) THEN
            'pointer is sensitive in this tool: the value would stand in the log of controls'
        END;
END $_$;

CREATE FUNCTION toolfleet.person_of(actor text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    SELECT translate(replace(replace(regexp_replace(
        normalize(coalesce(nullif(split_part(regexp_replace(actor, '\s*\(.*$', ''), '@', 1), ''), actor), NFKD),
        '[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]+', '', 'g'),
        'ß', 'ss'), 'ẞ', 'ss'),
        'ABCDEFGHIJKLMNOPQRSTUVWXYZÆÐØÞĐĦŁŊŒŦƁƂƄƆƇƉƊƋƎƏƐƑƓƔƖƗƘƜƝƟƢƤƦƧƩƬƮƱƲƳƵƷƸƼǤǶǷȜȠȢȤȺȻȽȾɁɃɄɅɆɈɊɌɎͰͲͶͿΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠ'
            || 'ΡΣΤΥΦΧΨΩςϏϘϚϜϞϠϷϺϽϾϿЂЄЅІЈЉЊЋЏАБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯѠѢѤѦѨѪѬѮѰѲѴѸѺѼѾҀҊҌҎҐҒҔҖҘҚҜҞҠҢҤҦҨҪҬҮҰҲҴҶҸҺҼҾӀӃӅӇӉӋӍ'
            || 'ӔӘӠӨӶӺӼӾԀԂԄԆԈԊԌԎԐԒԔԖԘԚԜԞԠԢԤԦԨԪԬԮԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕՖᲀᲁᲂᲃᲄᲅᲆᲇᲈỺỼỾⱠⱢⱣⱤⱧⱩⱫⱭⱮⱯⱰⱲⱵⱾⱿꙀꙂꙄꙆꙈꙊꙌꙎꙐꙒꙔꙖꙘ'
            || 'ꙚꙜꙞꙠꙢꙤꙦꙨꙪꙬꚀꚂꚄꚆꚈꚊꚌꚎꚐꚒꚔꚖꚘꚚꜢꜤꜦꜨꜪꜬꜮꜲꜴꜶꜸꜺꜼꜾꝀꝂꝄꝆꝈꝊꝌꝎꝐꝒꝔꝖꝘꝚꝜꝞꝠꝢꝤꝦꝨꝪꝬꝮꝹꝻꝽꝾꞀꞂꞄꞆꞋꞍꞐꞒꞖꞘꞚꞜꞞꞠꞢꞤꞦꞨꞪꞫꞬꞭꞮꞰꞱꞲꞳꞴꞶꞸꞺꞼꞾꟀꟂꟄꟅꟆꟇꟉꟐꟖꟘꟵ',
        'abcdefghijklmnopqrstuvwxyzæðøþđħłŋœŧɓƃƅɔƈɖɗƌǝəɛƒɠɣɩɨƙɯɲɵƣƥʀƨʃƭʈʊʋƴƶʒƹƽǥƕƿȝƞȣȥⱥȼƚⱦɂƀʉʌɇɉɋɍɏͱͳͷϳαβγδεζηθικλμνξοπ'
            || 'ρστυφχψωσϗϙϛϝϟϡϸϻͻͼͽђєѕіјљњћџабвгдежзиклмнопрстуфхцчшщъыьэюяѡѣѥѧѩѫѭѯѱѳѵѹѻѽѿҁҋҍҏґғҕҗҙқҝҟҡңҥҧҩҫҭүұҳҵҷҹһҽҿӏӄӆӈӊӌӎ'
            || 'ӕәӡөӷӻӽӿԁԃԅԇԉԋԍԏԑԓԕԗԙԛԝԟԡԣԥԧԩԫԭԯաբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆвдосттъѣꙋỻỽỿⱡɫᵽɽⱨⱪⱬɑɱɐɒⱳⱶȿɀꙁꙃꙅꙇꙉꙋꙍꙏꙑꙓꙕꙗꙙ'
            || 'ꙛꙝꙟꙡꙣꙥꙧꙩꙫꙭꚁꚃꚅꚇꚉꚋꚍꚏꚑꚓꚕꚗꚙꚛꜣꜥꜧꜩꜫꜭꜯꜳꜵꜷꜹꜻꜽꜿꝁꝃꝅꝇꝉꝋꝍꝏꝑꝓꝕꝗꝙꝛꝝꝟꝡꝣꝥꝧꝩꝫꝭꝯꝺꝼᵹꝿꞁꞃꞅꞇꞌɥꞑꞓꞗꞙꞛꞝꞟꞡꞣꞥꞧꞩɦɜɡɬɪʞʇʝꭓꞵꞷꞹꞻꞽꞿꟁꟃꞔʂᶎꟈꟊꟑꟗꟙꟶ')
$_$;

CREATE FUNCTION toolfleet.plain_number(value text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    SELECT CASE WHEN v.text ~ '^-?[0-9]+(\.[0-9]+)?([eE][+-]?0*[0-9]{1,3})?$' AND length(v.text) <= 1024
                THEN trim_scale(v.text::numeric)::text ELSE value END
    FROM (SELECT btrim(value, E' \t\n\r') AS text OFFSET 0) v
$_$;

CREATE FUNCTION toolfleet.policy_says(tenant text, tool text, run text, session text, is_counted boolean, locks boolean) RETURNS TABLE(verdict text, named text, calls bigint, per text, places bigint, among text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
DECLARE
    policy json;
    own_label text;
BEGIN
    SELECT v.policy INTO policy
    FROM toolfleet.tool_versions v WHERE v.tool = policy_says.tool ORDER BY v.version DESC LIMIT 1;
    IF policy IS NULL THEN
        RETURN;
    END IF;
    calls := (policy->'at_most'->>'calls')::bigint;
    per := policy->'at_most'->>'per';
    own_label := CASE per WHEN 'run' THEN policy_says.run WHEN 'session' THEN policy_says.session END;
    verdict := CASE
        WHEN per IS NOT NULL AND own_label IS NULL THEN 'no_' || per
        WHEN coalesce(policy_says.run, policy_says.session) IS NULL THEN 'no_label' END;
    IF verdict IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    among := CASE WHEN NOT is_counted THEN policy_says.tenant || '/' || policy_says.tool || '/' || per || '/' || own_label END;
    IF among IS NOT NULL AND locks THEN
        PERFORM FROM toolfleet.policy_locks l
        WHERE l.tenant = policy_says.tenant AND l.scope = per AND l.label = own_label AND l.tool = policy_says.tool
        FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            -- Another claim has it. Or it is not there, and the gate makes it, where the call comes by again: a row that was inserted
            -- here would let other claims wait for this one.
            verdict := 'busy';
            RETURN NEXT;
            RETURN;
        END IF;
    ELSIF among IS NOT NULL THEN
        INSERT INTO toolfleet.policy_locks (tenant, scope, label, tool)
        SELECT policy_says.tenant, per, own_label, policy_says.tool
        WHERE NOT EXISTS (
            SELECT FROM toolfleet.policy_locks l
            WHERE l.tenant = policy_says.tenant AND l.scope = per AND l.label = own_label AND l.tool = policy_says.tool)
        ON CONFLICT DO NOTHING;
    END IF;
    -- One by one, and each by the whole key: with a list of names, or as a join, the whole run would be read.
    FOR named IN SELECT json_array_elements_text(policy->'never_after') LOOP
        IF EXISTS (
                SELECT FROM toolfleet.happenings h WHERE h.tenant = policy_says.tenant
                  AND h.scope = 'run' AND h.label = policy_says.run AND h.tool = named AND h.what = 'own')
            OR EXISTS (
                SELECT FROM toolfleet.happenings h WHERE h.tenant = policy_says.tenant
                  AND h.scope = 'run' AND h.label = policy_says.run AND h.tool = named AND h.what = 'seen')
            OR EXISTS (
                SELECT FROM toolfleet.happenings h WHERE h.tenant = policy_says.tenant
                  AND h.scope = 'session' AND h.label = policy_says.session AND h.tool = named AND h.what = 'own')
            OR EXISTS (
                SELECT FROM toolfleet.happenings h WHERE h.tenant = policy_says.tenant
                  AND h.scope = 'session' AND h.label = policy_says.session AND h.tool = named AND h.what = 'seen') THEN
            verdict := 'never_after';
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    FOR named IN SELECT json_array_elements_text(policy->'after') LOOP
        PERFORM FROM toolfleet.happenings h
        WHERE h.tenant = policy_says.tenant AND h.scope = CASE WHEN policy_says.run IS NULL THEN 'session' ELSE 'run' END
          AND h.label = coalesce(policy_says.run, policy_says.session) AND h.tool = named AND h.what = 'succeeded'
        LIMIT 1;
        IF NOT FOUND THEN
            verdict := 'after';
            per := CASE WHEN policy_says.run IS NULL THEN 'session' ELSE 'run' END;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    named := NULL;
    IF among IS NOT NULL THEN
        SELECT calls - count(*) INTO places
        FROM (
            SELECT FROM toolfleet.happenings h
            WHERE h.tenant = policy_says.tenant AND h.scope = per AND h.label = own_label AND h.tool = policy_says.tool AND h.what = 'own'
            LIMIT calls) h;
    END IF;
    verdict := CASE WHEN places <= 0 THEN 'at_most' ELSE 'passes' END;
    RETURN NEXT;
END $$;

CREATE FUNCTION toolfleet.purge_answers(tool text, actor text, note text, tenant text DEFAULT NULL::text, in_tenant text DEFAULT NULL::text, goes_on boolean DEFAULT false, OUT taken bigint, OUT answers bigint, OUT fetching bigint, OUT old bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $_$
#variable_conflict use_column
DECLARE
    wrong text := CASE
        WHEN coalesce(length(btrim(purge_answers.actor)), 0) NOT BETWEEN 1 AND 200 THEN
            'actor must say who purges, in 1 to 200 characters'
        WHEN coalesce(length(btrim(purge_answers.note)), 0) NOT BETWEEN 1 AND 2000 THEN 'note must say why, in 1 to 2000 characters'
        WHEN toolfleet.has_invisible(purge_answers.actor) THEN 'actor must not have invisible characters'
        WHEN toolfleet.has_invisible(purge_answers.note) THEN 'note must not have invisible characters'
        WHEN purge_answers.tenant !~ '^[A-Za-z0-9_-]{1,64}$' THEN
            'tenant must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -'
        WHEN purge_answers.in_tenant IS NOT NULL AND purge_answers.tenant IS NULL THEN
            'tenant must be named: on the subject of a tenant only its own answers are purged'
        WHEN purge_answers.tenant <> purge_answers.in_tenant THEN
            'tenant is another one: on the subject of a tenant only its own answers are purged'
        WHEN purge_answers.tool ~ '^[a-z0-9_]{1,64}$' IS NOT TRUE THEN 'tool must name a tool'
        WHEN NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = purge_answers.tool) THEN
            'there is no tool ' || purge_answers.tool
        WHEN NOT EXISTS (SELECT FROM toolfleet.tool_versions v WHERE v.tool = purge_answers.tool AND v.manifest #>> '{cache,ttl}' IS NOT NULL) THEN
            'the tool ' || purge_answers.tool || ' has no cache: no answer of it is kept' END;
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH mine AS MATERIALIZED (
        SELECT k FROM toolfleet.kept_answers k
        WHERE k.tool = purge_answers.tool AND (purge_answers.tenant IS NULL OR k.tenant = purge_answers.tenant)
        ORDER BY k.key LIMIT 1000 FOR UPDATE
    ), said AS MATERIALIZED (
        -- As a call is told that asks now; no call has this id.
        SELECT (m.k).*, s.verdict, s.ended_at
        FROM mine m
        LEFT JOIN toolfleet.tool_versions v ON v.tool = (m.k).tool AND v.version = (m.k).version
        CROSS JOIN LATERAL toolfleet.answer_verdict(
            m.k, '00000000-0000-0000-0000-000000000000', coalesce(toolfleet.duration_ms(v.manifest #>> '{cache,ttl}'), 0)) s
    ), gone AS (
        DELETE FROM toolfleet.kept_answers a WHERE a.key = ANY(ARRAY(SELECT s.key FROM said s))
    )
    SELECT count(*), count(*) FILTER (WHERE s.verdict IN ('hit', 'found')), count(*) FILTER (WHERE s.verdict IN ('follow', 'alone')),
           -- Of the last leader, which no look has found yet, or of one before.
           count(*) FILTER (WHERE s.verdict NOT IN ('hit', 'found') AND s.keep_ms > 0 AND (
               s.verdict = 'old' AND s.ended_at + s.keep_ms * interval '1 millisecond' > clock_timestamp()
               OR EXISTS (SELECT FROM toolfleet.finished_calls f
                          WHERE f.call_id = s.call_id AND f.finished_at + s.keep_ms * interval '1 millisecond' > clock_timestamp())))
    INTO taken, answers, fetching, old FROM said s;
    IF NOT purge_answers.goes_on THEN
        WITH next AS (SELECT toolfleet.next_control_rev() AS rev)
        INSERT INTO toolfleet.control_changes (rev, change, control_id, kind, tool, tenant, setting, actor, note, role)
        SELECT rev, 'purged', rev, 'purge', purge_answers.tool, purge_answers.tenant, '"answers"', purge_answers.actor, purge_answers.note,
               session_user
        FROM next;
    END IF;
END $_$;

CREATE FUNCTION toolfleet.quarantine(seen integer, next integer, system_identifier text, timeline integer, standing text, errors json) RETURNS TABLE(done boolean, doubted bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    details json := json_build_object('quarantine', quarantine.next, 'standing', quarantine.standing);
    doubted bigint;
BEGIN
    PERFORM FROM toolfleet.fleet f WHERE f.quarantines = quarantine.seen FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, 0::bigint;
        RETURN;
    END IF;
    LOCK TABLE toolfleet.open_calls IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO toolfleet.ended_attempts (
        call_id, attempt_id, number, claim_rev, worker_id, started_at, timeout_ms, outcome, effect_known, error, over)
    SELECT call_id, attempt_id, attempts, claim_rev, worker_id, attempt_started_at, attempt_timeout_ms, 'unknown', 'unknown',
        quarantine.errors->language, false
    FROM toolfleet.open_calls
    WHERE (state = 'running' OR awaiting IN ('client', 'completion')) AND effect IN ('idempotent', 'once');
    -- What stays where it is has a remark: its revision tells whoever judged it before that it has changed.
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details)
    SELECT call_id, rev + 1, state, (CASE WHEN effect = 'idempotent' AND NOT cancel_requested AND awaiting IN ('approval', 'input') THEN 'awaiting_client'
            WHEN effect = 'idempotent' AND NOT cancel_requested AND coalesce(awaiting, 'completion') = 'completion' THEN 'queued' ELSE 'in_doubt' END)::toolfleet.call_state, 'ground', 'quarantine',
        attempt_id, details
    FROM toolfleet.open_calls
    WHERE state IN ('queued', 'running', 'awaiting_client') AND effect IN ('idempotent', 'once');
    UPDATE toolfleet.open_calls
    SET rev = rev + 1, quarantined = true, effect_unknown = true, first_started_at = coalesce(first_started_at, accepted_at)
    WHERE (state IN ('queued', 'running') OR awaiting IN ('approval', 'input', 'completion')) AND effect = 'idempotent' AND NOT cancel_requested;
    -- The attempt that the ledger remembers may not have been the last one, so what it says decides nothing any more.
    UPDATE toolfleet.open_calls
    SET state = 'queued', awaiting = NULL, attempt_id = NULL, worker_id = NULL, claim_rev = NULL, attempt_started_at = NULL,
        attempt_until = NULL, attempt_timeout_ms = NULL, not_before = now(), due_at = now(), publish_n = publish_n + 1,
        unspent_attempts = unspent_attempts + 1
    WHERE (state = 'running' OR awaiting = 'completion') AND effect = 'idempotent' AND NOT cancel_requested;
    UPDATE toolfleet.open_calls
    SET state = 'in_doubt', awaiting = NULL, held = false, rev = rev + 1, quarantined = true, doubt_since = now(), doubt_reason = 'lost_writes',
        -- A claim that was lost with the writes ends by the call's deadline.
        -- What waits for a yes may have got one, and its deadline with it.
        attempt_until = CASE WHEN awaiting = 'approval' THEN now() + (approval->>'deadline_ms')::bigint * interval '1 millisecond'
                             ELSE deadline_at END,
        due_at = CASE WHEN awaiting = 'approval' THEN now() + (approval->>'deadline_ms')::bigint * interval '1 millisecond'
                      ELSE greatest(now(), deadline_at) END,
        last_error = quarantine.errors->language
    -- What the caller's program has is handed out once: its answer may be among what was lost.
    WHERE state IN ('queued', 'running', 'awaiting_client')
      AND (effect = 'once' OR effect = 'idempotent' AND (cancel_requested OR awaiting = 'client'));
    GET DIAGNOSTICS doubted = ROW_COUNT;
    UPDATE toolfleet.fleet
    SET system_identifier = quarantine.system_identifier, timeline = quarantine.timeline,
        wal_lsn = pg_current_wal_flush_lsn(), quarantines = quarantine.next;
    RETURN QUERY SELECT true, doubted;
END $$;

CREATE FUNCTION toolfleet.rate_base(tat timestamp with time zone, closed_until timestamp with time zone, at timestamp with time zone, step_us bigint, burst integer) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT greatest(
        at,
        tat,
        closed_until + (burst - 1) * step_us * interval '1 microsecond')
$$;

CREATE FUNCTION toolfleet.rate_of(tool text) RETURNS TABLE(shared_by text, name text, calls bigint, per_ms bigint, burst integer, step_us bigint, control_id bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT r.shared_by, r.name, n.calls, n.per_ms, n.burst, ceil(n.per_ms * 1000.0 / n.calls)::bigint, c.control_id
    FROM (
        SELECT CASE WHEN v.rate_limit->>'share' IS NOT NULL THEN 'share'
                    WHEN v.rate_limit->>'by' LIKE '/%' THEN 'argument'
                    ELSE coalesce(v.rate_limit->>'by', 'tool') END AS shared_by,
               coalesce(v.rate_limit->>'share', v.tool) AS name, v.rate_limit AS own
        FROM (SELECT l.tool, l.rate_limit FROM toolfleet.tool_versions l WHERE l.tool = rate_of.tool ORDER BY l.version DESC LIMIT 1) v
        WHERE v.rate_limit IS NOT NULL
    ) r
    LEFT JOIN LATERAL (
        SELECT l.control_id, l.setting FROM toolfleet.live_controls l
        WHERE l.kind = 'limit' AND l.subject = r.name AND (l.expires_at IS NULL OR l.expires_at > clock_timestamp())
        -- One for a time stands before the one that holds again after it.
        ORDER BY l.expires_at NULLS LAST LIMIT 1
    ) c ON true
    CROSS JOIN LATERAL (
        SELECT (c.setting->>'calls')::bigint AS calls, (c.setting->>'per_ms')::bigint AS per_ms,
               coalesce((c.setting->>'burst')::integer, 1) AS burst WHERE c.control_id IS NOT NULL
        UNION ALL
        SELECT (r.own->>'calls')::bigint, toolfleet.duration_ms(r.own->>'per'), coalesce((r.own->>'burst')::integer, 1)
        WHERE c.control_id IS NULL
    ) n
$$;

CREATE FUNCTION toolfleet.rate_room(base timestamp with time zone, at timestamp with time zone, within_ms integer, step_us bigint, burst integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT greatest(0, burst + floor(extract(epoch FROM at + within_ms * interval '1 millisecond' - base) * 1000000 / step_us))::bigint
$$;

CREATE FUNCTION toolfleet.read_attempt_file(call uuid, attempt uuid, file uuid, at bigint, most integer) RETURNS bytea
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
    SELECT coalesce((
        SELECT substring(c.data FROM (read_attempt_file.at - c.at)::integer + 1 FOR read_attempt_file.most)
        FROM toolfleet.file_chunks c
        WHERE c.file_id = u.file_id AND c.at <= read_attempt_file.at AND read_attempt_file.at < f.bytes
        ORDER BY c.at DESC
        LIMIT 1), ''::bytea)
    FROM toolfleet.open_calls o
    JOIN toolfleet.call_files u ON u.call_id = o.call_id AND u.file_id = read_attempt_file.file
    JOIN toolfleet.kept_files f ON f.file_id = u.file_id
    WHERE o.call_id = read_attempt_file.call AND o.attempt_id = read_attempt_file.attempt AND o.state = 'running'
$$;

CREATE FUNCTION toolfleet.recount_open() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    righted bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_open_counts')) THEN
        RETURN 0;
    END IF;
    WITH wrong AS MATERIALIZED (
        SELECT tenant, sum(n) AS n
        FROM (SELECT tenant, count(*) AS n FROM toolfleet.open_calls GROUP BY tenant
              UNION ALL
              SELECT tenant, -sum(n) FROM toolfleet.open_counts GROUP BY tenant) c
        GROUP BY tenant
        HAVING sum(n) <> 0
    ), kept AS (
        DELETE FROM toolfleet.open_counts c
        WHERE c.backend = 0 AND c.tenant IN (SELECT tenant FROM wrong)
        RETURNING c.tenant, c.n
    ), moved AS (
        INSERT INTO toolfleet.open_counts (tenant, backend, n)
        SELECT tenant, 0, sum(n) FROM (SELECT * FROM wrong UNION ALL SELECT * FROM kept) c
        GROUP BY tenant HAVING sum(n) <> 0 ORDER BY tenant
    )
    SELECT count(*) INTO righted FROM wrong;
    RETURN righted;
END $$;

CREATE FUNCTION toolfleet.refuse_change_of_controls() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'the log of controls does not change: change %', OLD.rev USING ERRCODE = 'check_violation';
END $$;

CREATE FUNCTION toolfleet.refuse_change_of_decisions() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- `drop_history` has dropped the call before its decisions.
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM toolfleet.finished_calls f WHERE f.call_id = OLD.call_id)
       AND NOT EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.call_id = OLD.call_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'decisions about call % do not change', OLD.call_id USING ERRCODE = 'check_violation';
END $$;

CREATE FUNCTION toolfleet.refuse_change_of_history() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'history of call % does not change', OLD.call_id USING ERRCODE = 'check_violation';
END $$;

CREATE FUNCTION toolfleet.refuse_change_of_marks() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- `drop_history` has dropped the call before its marks.
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM toolfleet.finished_calls f WHERE f.call_id = OLD.call_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'marks of call % do not change', OLD.call_id USING ERRCODE = 'check_violation';
END $$;

CREATE FUNCTION toolfleet.refuse_change_of_tokens() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    before toolfleet.access_tokens := OLD;
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL THEN
        before.revoked_at := NEW.revoked_at;
        before.revoked_by := NEW.revoked_by;
        before.revoked_role := NEW.revoked_role;
        before.revoke_note := NEW.revoke_note;
        IF before IS NOT DISTINCT FROM NEW THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'token % does not change but by its revocation', OLD.token_id USING ERRCODE = 'check_violation';
END $$;

CREATE FUNCTION toolfleet.refuse_illegal_move() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'illegal move of call %: % to %', OLD.call_id, OLD.state, NEW.state USING ERRCODE = 'check_violation';
END $$;

CREATE FUNCTION toolfleet.refuse_lost_breaker() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    IF EXISTS (SELECT FROM toolfleet.live_controls c
               WHERE c.kind = 'breaker' AND c.tool = NEW.tool AND c.setting #>> '{}' = 'open'
                 AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())) THEN
        RAISE EXCEPTION 'an operator has forced the breaker of this tool open'
            USING ERRCODE = 'object_in_use', CONSTRAINT = 'tool_versions_forced_breaker';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.refuse_second_limit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    IF EXISTS (SELECT FROM toolfleet.current_limits() mine JOIN toolfleet.current_limits() other USING (name)
               WHERE mine.tool = NEW.tool AND mine.version = NEW.version AND other.is_shared <> mine.is_shared) THEN
        RAISE EXCEPTION 'another tool has a limit with this name: one that tools share, or its own'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'tool_versions_limit_name';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.refuse_settling() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF has_function_privilege('toolfleet.settle(uuid, text, text, text, json, boolean, text)', 'EXECUTE') OR EXISTS (
        SELECT FROM toolfleet.finished_calls f
        WHERE f.call_id = OLD.call_id AND f.from_state = 'in_doubt' AND f.attempt_id = OLD.attempt_id
          AND f.attempt_outcome IS NOT NULL AND f.source <> 'settled' AND f.actor = 'worker ' || OLD.worker_id) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'call % is in doubt, and this role may not settle it', OLD.call_id USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE FUNCTION toolfleet.refuse_truncation() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'history does not change: % is not emptied', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$;

CREATE FUNCTION toolfleet.release_retries(calls uuid[], retry uuid, run uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    DELETE FROM toolfleet.retry_reservations r
    WHERE r.call_id = ANY (release_retries.calls) AND r.retry = release_retries.retry AND r.run = release_retries.run
      AND NOT r.shared
$$;

CREATE FUNCTION toolfleet.renew_buckets(tool text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    -- In the order in which claims lock them.
    WITH mine AS MATERIALIZED (
        SELECT b.bucket, r.burst * r.step_us * interval '1 microsecond' AS most
        FROM toolfleet.rate_of(renew_buckets.tool) r
        JOIN toolfleet.rate_buckets b ON b.shared_by = r.shared_by AND b.name = r.name
        WHERE r.step_us IS NOT NULL
        ORDER BY b.shared_by, b.name, b.tenant
        FOR UPDATE OF b
    )
    UPDATE toolfleet.rate_buckets b SET tat = clock_timestamp() + interval '500 milliseconds' + m.most
    FROM mine m WHERE b.bucket = m.bucket AND b.tat > clock_timestamp() + interval '500 milliseconds' + m.most
$$;

CREATE FUNCTION toolfleet.renew_buckets_of_limit() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM toolfleet.renew_buckets(v.tool)
    FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
    CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r
    WHERE r.name = coalesce(NEW.subject, OLD.subject);
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.renew_buckets_of_version() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM toolfleet.renew_buckets(NEW.tool);
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.renew_file_key() RETURNS timestamp with time zone
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    UPDATE toolfleet.file_url_keys
    SET previous = current, current = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), since = clock_timestamp()
    RETURNING since
$$;

CREATE FUNCTION toolfleet.require_approval() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    IF (SELECT count(*) FROM toolfleet.call_decisions d
        WHERE d.call_id = NEW.call_id AND d.decision = 'approve' AND d.args_hash = decode(toolfleet.shown_hash(NEW.args_hash, OLD.approval), 'hex')) < (OLD.approval->>'count')::integer THEN
        RAISE EXCEPTION 'call % waits for approval', NEW.call_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.require_program(migration bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    old text;
BEGIN
    LOCK TABLE toolfleet.fleet IN ACCESS EXCLUSIVE MODE;
    SELECT string_agg(format('%s (%s)', w.name, w.version), ', ' ORDER BY w.name) INTO old
    FROM toolfleet.worker_processes w
    WHERE w.state IN ('live', 'draining') AND w.newest_migration < require_program.migration;
    IF old IS NOT NULL THEN
        RAISE EXCEPTION 'workers that do not know migration % could not record what they run; drain or upgrade them first: %',
            require_program.migration, old USING ERRCODE = 'object_in_use';
    END IF;
    UPDATE toolfleet.fleet f SET oldest_program = greatest(f.oldest_program, require_program.migration);
    PERFORM pg_terminate_backend(a.pid)
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.application_name LIKE 'toolfleet%'
      AND pg_has_role(a.usesysid, 'MEMBER');
END $$;

CREATE FUNCTION toolfleet.reserve_retries(calls uuid[], name text, retry uuid, run uuid) RETURNS TABLE(call_id uuid, verdict text, holder text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
BEGIN
    IF coalesce(cardinality(reserve_retries.calls), 0) > 1000 THEN
        RAISE EXCEPTION 'at most 1000 calls are reserved at a time' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF reserve_retries.retry IS NULL OR reserve_retries.run IS NULL THEN
        RAISE EXCEPTION 'retry and run must say who reserves them' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One after the other, with those who discard: whoever comes second sees what the first one did.
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.retry_reservations'));
    INSERT INTO toolfleet.retry_reservations AS r (call_id, name, retry, run)
    SELECT DISTINCT f.call_id, reserve_retries.name, reserve_retries.retry, reserve_retries.run
    FROM unnest(reserve_retries.calls) a (call_id)
    JOIN toolfleet.finished_calls f ON f.call_id = a.call_id
    WHERE (f.effect = 'read' OR NOT toolfleet.applied_late(f.call_id))
      AND NOT EXISTS (SELECT FROM toolfleet.call_marks m WHERE m.call_id = f.call_id)
    ON CONFLICT (call_id) DO UPDATE SET shared = true, retry = excluded.retry
    WHERE r.run <> excluded.run AND r.retry = excluded.retry;
    RETURN QUERY
    SELECT a.call_id,
           CASE WHEN f.call_id IS NULL AND NOT EXISTS (SELECT FROM toolfleet.open_calls o WHERE o.call_id = a.call_id)
                    THEN 'not_found'
                WHEN f.call_id IS NULL THEN 'not_over'
                WHEN f.effect <> 'read' AND toolfleet.applied_late(f.call_id) THEN 'effect_happened'
                WHEN m.what = 'retried' THEN 'retried_before'
                WHEN m.what = 'discarded' THEN 'discarded_before'
                WHEN m.what IS NOT NULL THEN 'effect_unknown'
                -- It ended between the two statements.
                WHEN r.call_id IS NULL THEN 'not_over'
                WHEN r.at <= now() - interval '23 hours' THEN 'unsure'
                WHEN r.retry = reserve_retries.retry THEN 'held'
                ELSE 'under_way' END,
           r.name
    FROM (SELECT DISTINCT call_id FROM unnest(reserve_retries.calls) asked (call_id)) a
    LEFT JOIN toolfleet.finished_calls f ON f.call_id = a.call_id
    LEFT JOIN toolfleet.retry_reservations r ON r.call_id = a.call_id
    LEFT JOIN LATERAL (
        SELECT m.what FROM toolfleet.call_marks m WHERE m.call_id = a.call_id ORDER BY m.at DESC LIMIT 1) m ON true;
END $$;

CREATE FUNCTION toolfleet.revoke_token(token_id text, actor text, note text) RETURNS TABLE(verdict text, token json)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    came text := 'revoked';
    wrong text := toolfleet.token_author_problem(revoke_token.actor, revoke_token.note);
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE toolfleet.access_tokens a
    SET revoked_at = clock_timestamp(), revoked_by = revoke_token.actor, revoked_role = session_user, revoke_note = revoke_token.note
    WHERE a.token_id = revoke_token.token_id AND a.revoked_at IS NULL;
    IF NOT FOUND THEN
        came := CASE WHEN EXISTS (SELECT FROM toolfleet.access_tokens a WHERE a.token_id = revoke_token.token_id)
                     THEN 'already' ELSE 'not_found' END;
    END IF;
    -- One row in any case.
    RETURN QUERY SELECT came, (SELECT row_to_json(v) FROM toolfleet.tokens v WHERE v.token_id = revoke_token.token_id);
END $$;

CREATE FUNCTION toolfleet.set_autovacuum_threshold(p_table text, p_dead_rows bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
BEGIN
    IF p_table NOT IN ('open_calls', 'open_counts') OR p_dead_rows NOT BETWEEN 1000 AND 2147483647 THEN
        RAISE EXCEPTION 'no threshold of % dead rows for %', p_dead_rows, p_table USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('ALTER TABLE toolfleet.%I SET (autovacuum_vacuum_threshold = %s)', p_table, p_dead_rows);
END $$;
COMMENT ON FUNCTION toolfleet.set_autovacuum_threshold(p_table text, p_dead_rows bigint) IS 'Sets how many dead rows autovacuum waits for in a hot table; dispatchers call it while a snapshot keeps vacuum from its work.';

CREATE FUNCTION toolfleet.set_control(kind text, setting json, actor text, note text, tool text DEFAULT NULL::text, queue text DEFAULT NULL::text, tenant text DEFAULT NULL::text, pointer text DEFAULT NULL::text, value json DEFAULT NULL::json, subject text DEFAULT NULL::text, told text DEFAULT NULL::text, for_ms bigint DEFAULT NULL::bigint, in_tenant text DEFAULT NULL::text, replaces boolean DEFAULT false) RETURNS TABLE(verdict text, control json)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    c toolfleet.live_controls;
    there toolfleet.live_controls;
    before toolfleet.live_controls;
    wrong text;
    came text := 'set';
BEGIN
    c.kind := set_control.kind;
    c.tool := set_control.tool;
    c.queue := set_control.queue;
    c.tenant := set_control.tenant;
    c.pointer := set_control.pointer;
    c.value := toolfleet.plain_number(set_control.value::text);
    c.subject := set_control.subject;
    c.setting := set_control.setting;
    c.told := set_control.told;
    c.actor := set_control.actor;
    c.note := set_control.note;
    c.for_ms := set_control.for_ms;
    c.role := session_user;
    c.set_in := set_control.in_tenant;
    wrong := toolfleet.control_problem(c, set_control.in_tenant);
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    PERFORM toolfleet.expire_controls();
    SELECT * INTO there FROM toolfleet.live_controls l
    WHERE l.kind = c.kind AND l.tool IS NOT DISTINCT FROM c.tool AND l.queue IS NOT DISTINCT FROM c.queue
      AND l.tenant IS NOT DISTINCT FROM c.tenant AND l.pointer IS NOT DISTINCT FROM c.pointer
      AND l.value IS NOT DISTINCT FROM c.value AND l.subject IS NOT DISTINCT FROM c.subject
      AND (c.kind <> 'limit' OR (l.for_ms IS NULL) = (c.for_ms IS NULL));
    IF FOUND AND there.setting::text = c.setting::text AND there.told IS NOT DISTINCT FROM c.told
       AND there.for_ms IS NOT DISTINCT FROM c.for_ms AND there.actor = c.actor AND there.note = c.note
       AND there.set_in IS NOT DISTINCT FROM c.set_in
       AND NOT (set_control.replaces AND (
           c.for_ms IS NOT NULL
           OR c.kind = 'limit' AND EXISTS (
               SELECT FROM toolfleet.rate_buckets b WHERE b.name = c.subject AND b.closed_until > clock_timestamp())
           OR c.kind = 'limit' AND EXISTS (
               SELECT FROM toolfleet.live_controls l
               WHERE l.kind = 'limit' AND l.subject = c.subject AND l.control_id <> there.control_id))) THEN
        came := 'already';
        c := there;
    ELSIF there.control_id IS NOT NULL
          AND (NOT set_control.replaces OR c.set_in IS NOT NULL AND there.set_in IS DISTINCT FROM c.set_in) THEN
        came := 'conflict';
        c := there;
    ELSIF there.control_id IS NOT NULL THEN
        c.control_id := there.control_id;
        c.set_at := clock_timestamp();
        c.expires_at := c.set_at + c.for_ms * interval '1 millisecond';
        UPDATE toolfleet.live_controls l
        SET setting = c.setting, told = c.told, actor = c.actor, note = c.note, role = c.role, set_in = c.set_in,
            set_at = c.set_at, for_ms = c.for_ms, expires_at = c.expires_at
        WHERE l.control_id = c.control_id;
        PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'changed', c, c.actor, c.note);
        came := 'changed';
    ELSIF c.set_in IS NOT NULL AND (SELECT count(*) >= 100 FROM toolfleet.live_controls l WHERE l.set_in = c.set_in) THEN
        RAISE EXCEPTION 'this tenant has 100 controls, and that is the most on its subject; unset some'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF c.set_in IS NOT NULL AND (SELECT count(*) >= 900 FROM toolfleet.live_controls) THEN
        RAISE EXCEPTION 'there are 900 controls, and the last hundred are for the operators of the fleet; unset some'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF (SELECT count(*) >= 1000 FROM toolfleet.live_controls) THEN
        RAISE EXCEPTION 'there are 1000 controls, and that is the most; unset some' USING ERRCODE = 'invalid_parameter_value';
    ELSE
        c.control_id := toolfleet.next_control_rev();
        c.set_at := clock_timestamp();
        c.expires_at := c.set_at + c.for_ms * interval '1 millisecond';
        INSERT INTO toolfleet.live_controls SELECT c.*;
        PERFORM toolfleet.log_control(c.control_id, 'set', c, c.actor, c.note);
    END IF;
    IF c.kind = 'limit' AND c.for_ms IS NULL AND came IN ('set', 'changed') THEN
        FOR before IN DELETE FROM toolfleet.live_controls l
                      WHERE l.kind = 'limit' AND l.subject = c.subject AND l.control_id <> c.control_id RETURNING l.* LOOP
            PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'unset', before, c.actor, c.note);
        END LOOP;
    END IF;
    c.note := toolfleet.note_for(c.note, c.set_in, set_control.in_tenant);
    RETURN QUERY SELECT came, toolfleet.shown_control(c);
END $$;

CREATE FUNCTION toolfleet.settle(call uuid, outcome text, actor text, note text, result json DEFAULT NULL::json, by_time_only boolean DEFAULT false, in_tenant text DEFAULT NULL::text) RETURNS TABLE(verdict text, state text, decided_by text, decided_at timestamp with time zone, dispatcher_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    o toolfleet.open_calls;
    f toolfleet.finished_calls;
    evidence toolfleet.ended_attempts;
    fenced boolean;
    by_probe boolean;
    details json;
BEGIN
    IF settle.outcome IS NULL OR settle.outcome NOT IN ('applied', 'not_applied', 'abandoned') THEN
        RAISE EXCEPTION 'outcome must be applied, not_applied or abandoned' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(btrim(settle.actor), '') = '' OR length(settle.actor) > 200 THEN
        RAISE EXCEPTION 'actor must say who settles it, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(btrim(settle.note), '') = '' OR length(settle.note) > 2000 THEN
        RAISE EXCEPTION 'note must say how that is known, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF settle.result IS NOT NULL AND settle.outcome <> 'applied' THEN
        RAISE EXCEPTION 'what was not applied has no result' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- As large as the largest answer that a manifest can allow.
    IF octet_length(settle.result::text) > 8388608 THEN
        RAISE EXCEPTION 'result must have at most 8 MiB' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Refuses what could be stored and not be read again: NUL and half surrogate pairs.
    PERFORM settle.result::jsonb;
    SELECT * INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = settle.call AND (settle.in_tenant IS NULL OR c.tenant = settle.in_tenant) FOR UPDATE;
    IF NOT FOUND THEN
        -- In a statement of its own: whoever we waited for may have moved it.
        SELECT * INTO f FROM toolfleet.finished_calls c
        WHERE c.call_id = settle.call AND (settle.in_tenant IS NULL OR c.tenant = settle.in_tenant);
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'not_found', NULL::text, NULL::text, NULL::timestamptz, NULL::uuid;
        ELSIF f.source = 'settled'
              AND f.effect_known::text = (CASE settle.outcome WHEN 'abandoned' THEN 'unknown' ELSE settle.outcome END)
              AND (settle.result IS NULL OR f.result::jsonb IS NOT DISTINCT FROM toolfleet.kept(settle.result, (
                  SELECT v.sensitive FROM toolfleet.tool_versions v
                  WHERE v.tool = f.tool AND v.version = f.tool_version))::jsonb) THEN
            RETURN QUERY SELECT 'settled', f.state::text, f.actor, f.finished_at, NULL::uuid;
        ELSE
            RETURN QUERY SELECT 'conflict', f.state::text, f.actor, f.finished_at, NULL::uuid;
        END IF;
        RETURN;
    END IF;
    IF o.state <> 'in_doubt' THEN
        RETURN QUERY SELECT 'conflict', o.state::text, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;
    fenced := toolfleet.is_fenced(o.call_id);
    by_probe := settle.actor = 'probe ' || o.probe_id;
    IF by_probe AND settle.outcome = 'abandoned' THEN
        RAISE EXCEPTION 'only a person abandons a call' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    details := json_build_object('note', settle.note, 'settled_by', CASE WHEN by_probe THEN 'probe' ELSE 'person' END,
        'worker_fenced', fenced, 'by_time_only',
        settle.outcome = 'not_applied' AND NOT fenced);
    IF settle.outcome = 'applied' THEN
        PERFORM toolfleet.finish(o, 'succeeded', 'success', 'settled', 'applied', settle.result, NULL, settle.actor,
            'settled_applied', details);
        RETURN QUERY SELECT 'settled', 'succeeded', settle.actor, now(), o.dispatcher_id;
        RETURN;
    END IF;
    SELECT * INTO evidence FROM toolfleet.ended_attempts a
    WHERE a.call_id = o.call_id AND a.late AND a.outcome = 'applied' LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'conflict', o.state::text, 'late answer of attempt ' || evidence.number, evidence.finished_at, NULL::uuid;
        RETURN;
    END IF;
    IF settle.outcome = 'not_applied' AND NOT fenced AND NOT settle.by_time_only THEN
        RETURN QUERY SELECT 'worker_not_fenced', o.state::text, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;
    IF o.attempt_until > clock_timestamp() THEN
        RETURN QUERY SELECT 'too_early', o.state::text, NULL::text, o.attempt_until, NULL::uuid;
        RETURN;
    END IF;
    IF settle.outcome = 'abandoned' THEN
        PERFORM toolfleet.finish(o, 'failed', 'system_error', 'settled', 'unknown', NULL,
            json_build_object('code', 'in_doubt', 'message', CASE o.language
                WHEN 'zh' THEN '操作是否已经生效，永远无法查明，已不再追查。不要重复这次调用，换用新的幂等键也不行；请告知用户结果不确定。'
                ELSE 'Whether the action was carried out will never be known, and nobody looks into it any more. Do not repeat the call, not with a new idempotency key either; tell the user that it is not certain.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'do_not_repeat',
                'details', json_build_object('abandoned', true, 'cause', coalesce(o.last_error->'details'->'cause', o.last_error))),
            settle.actor, 'settled_abandoned', details);
        INSERT INTO toolfleet.call_marks (call_id, what, actor, role, note)
        VALUES (o.call_id, 'abandoned', settle.actor, session_user, settle.note);
        RETURN QUERY SELECT 'settled', 'failed', settle.actor, now(), o.dispatcher_id;
        RETURN;
    END IF;
    PERFORM toolfleet.finish(o, 'failed', 'system_error', 'settled', 'not_applied', NULL,
        json_build_object('code', 'not_applied', 'message', CASE o.language
            WHEN 'zh' THEN '已查明操作没有生效。请询问用户；如果仍然需要，请再次发送；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。'
            ELSE 'It was found out that the action was not carried out. Ask the user; if it is still wanted, send it again, with a new idempotency key if there was one: the same one repeats this answer.'
            END,
            'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'ask_user'),
        settle.actor, 'settled_not_applied', details);
    RETURN QUERY SELECT 'settled', 'failed', settle.actor, now(), o.dispatcher_id;
END $$;

CREATE FUNCTION toolfleet.shown(value json, sensitive json) RETURNS json
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT toolfleet.veiled(value, ARRAY(SELECT json_array_elements_text(sensitive->'pointers')),
        CASE WHEN sensitive->>'mode' = 'omit' THEN '[omitted]' ELSE '[masked]' END)
$$;

CREATE FUNCTION toolfleet.shown_control(c toolfleet.live_controls) RETURNS json
    LANGUAGE sql STABLE
    AS $$
    SELECT row_to_json(shown) FROM (
        SELECT c.control_id, c.kind, c.tool, c.queue, c.tenant, c.pointer, c.value::json AS value, c.subject, c.setting, c.told,
               c.actor, c.note, c.role, c.set_at, c.expires_at) shown
$$;

CREATE FUNCTION toolfleet.shown_hash(args_hash bytea, approval json) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT encode(CASE WHEN approval->>'salt' IS NULL THEN args_hash
                       ELSE sha256(decode(approval->>'salt', 'hex') || args_hash) END, 'hex')
$$;

CREATE FUNCTION toolfleet.stale_answer(call uuid, max_age_ms bigint) RETURNS TABLE(age_ms bigint, result text)
    LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER ROWS 1
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
DECLARE
    k toolfleet.kept_answers;
    kept uuid;
BEGIN
    SELECT a.* INTO k FROM toolfleet.open_calls o
    JOIN toolfleet.kept_answers a ON a.key = toolfleet.answer_key(o.tenant, o.tool, o.tool_version, o.language, o.args_hash)
    WHERE o.call_id = stale_answer.call AND o.effect = 'read' AND o.no_store IS NOT TRUE AND o.probe_of IS NULL;
    FOREACH kept IN ARRAY ARRAY[k.leader, k.call_id] LOOP
        RETURN QUERY
        SELECT greatest(0, date_part('epoch', clock_timestamp() - f.finished_at) * 1000)::bigint, f.result::text
        FROM toolfleet.finished_calls f
        WHERE f.call_id = kept AND f.state = 'succeeded' AND f.outcome = 'success' AND f.source = 'live' AND f.error IS NULL
          AND f.finished_at + stale_answer.max_age_ms * interval '1 millisecond' > clock_timestamp()
          AND CASE WHEN pg_column_size(f.result) > 262144 THEN false ELSE octet_length(f.result::text) <= 262144 END;
        EXIT WHEN FOUND;
    END LOOP;
END $$;

CREATE FUNCTION toolfleet.take_starts(shared_by text, name text, tenant text, step_us bigint, burst integer, wanted bigint, within_ms integer, waits boolean) RETURNS TABLE(verdict text, given bigint, first_at timestamp with time zone, next_at timestamp with time zone, at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    id text := toolfleet.bucket_of(take_starts.shared_by, take_starts.name, take_starts.tenant);
    b toolfleet.rate_buckets;
    step interval := take_starts.step_us * interval '1 microsecond';
    base timestamptz;
BEGIN
    FOR try IN 1..5 LOOP
        IF waits THEN
            SELECT * INTO b FROM toolfleet.rate_buckets r WHERE r.bucket = id FOR UPDATE;
        ELSE
            SELECT * INTO b FROM toolfleet.rate_buckets r WHERE r.bucket = id FOR UPDATE SKIP LOCKED;
        END IF;
        EXIT WHEN FOUND;
        INSERT INTO toolfleet.rate_buckets (bucket, shared_by, name, tenant, tat, used_at)
        VALUES (id, take_starts.shared_by, take_starts.name, CASE take_starts.shared_by
                WHEN 'tenant' THEN split_part(take_starts.tenant, '/', 1) WHEN 'argument' THEN take_starts.tenant END,
            clock_timestamp(), clock_timestamp())
        ON CONFLICT (bucket) DO NOTHING
        RETURNING * INTO b;
        EXIT WHEN FOUND;
        -- About as long as a commit takes.
        PERFORM pg_sleep(0.002);
    END LOOP;
    IF b.bucket IS NULL THEN
        RETURN QUERY SELECT 'busy', 0::bigint, NULL::timestamptz, NULL::timestamptz, clock_timestamp();
        RETURN;
    END IF;
    -- Read once the bucket is ours, so that no two sessions hand out the same time.
    at := clock_timestamp();
    base := toolfleet.rate_base(b.tat, b.closed_until, at, take_starts.step_us, take_starts.burst);
    given := least(take_starts.wanted, toolfleet.rate_room(base, at, within_ms, take_starts.step_us, take_starts.burst));
    IF given > 0 THEN
        UPDATE toolfleet.rate_buckets r SET tat = base + take_starts.given * step, given = r.given + take_starts.given, used_at = take_starts.at
        WHERE r.bucket = id;
    END IF;
    first_at := base - (take_starts.burst - 1) * step;
    RETURN QUERY SELECT 'given', given, first_at, first_at + given * step, at;
END $$;

CREATE FUNCTION toolfleet.token_author_problem(actor text, note text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
    SELECT CASE
        WHEN coalesce(length(btrim(actor)), 0) NOT BETWEEN 1 AND 200 OR length(actor) > 200 THEN
            'actor must say who does it, in 1 to 200 characters'
        WHEN actor ~ '[[:cntrl:]]' OR toolfleet.has_invisible(actor) THEN 'actor must not have characters that cannot be seen'
        WHEN coalesce(length(btrim(note)), 0) NOT BETWEEN 1 AND 2000 OR length(note) > 2000 THEN
            'note must say why, in 1 to 2000 characters'
        WHEN toolfleet.has_invisible(note) THEN 'note must not have invisible characters' END
$$;

CREATE FUNCTION toolfleet.touches(sensitive text, pointer text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
    SELECT NOT EXISTS (
        SELECT FROM unnest(string_to_array(sensitive, '/')) WITH ORDINALITY s (segment, place)
        JOIN unnest(string_to_array(pointer, '/')) WITH ORDINALITY p (segment, place) USING (place)
        WHERE place > 1 AND s.segment <> '*' AND s.segment <> p.segment)
$$;

CREATE FUNCTION toolfleet.unknown_until(call uuid) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN (
        SELECT max(a.started_at + make_interval(secs => a.timeout_ms / 1000.0)) FROM toolfleet.ended_attempts a
        WHERE a.call_id = call AND a.outcome = 'unknown' AND NOT a.late);
END $$;

CREATE FUNCTION toolfleet.unset_control(actor text, note text, id bigint DEFAULT NULL::bigint, kind text DEFAULT NULL::text, tool text DEFAULT NULL::text, queue text DEFAULT NULL::text, tenant text DEFAULT NULL::text, pointer text DEFAULT NULL::text, value json DEFAULT NULL::json, subject text DEFAULT NULL::text, in_tenant text DEFAULT NULL::text) RETURNS TABLE(verdict text, control json)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    c toolfleet.live_controls;
    other toolfleet.live_controls;
BEGIN
    IF coalesce(length(btrim(unset_control.actor)), 0) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'actor must say who takes it away, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF coalesce(length(btrim(unset_control.note)), 0) NOT BETWEEN 1 AND 2000 THEN
        RAISE EXCEPTION 'note must say why, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF toolfleet.has_invisible(unset_control.actor) THEN
        RAISE EXCEPTION 'actor must not have invisible characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF toolfleet.has_invisible(unset_control.note) THEN
        RAISE EXCEPTION 'note must not have invisible characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF unset_control.id IS NULL AND unset_control.kind IS NULL THEN
        RAISE EXCEPTION 'name the control by its id, or by its kind and scope' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    PERFORM toolfleet.expire_controls();
    SELECT * INTO c FROM toolfleet.live_controls l
    WHERE (unset_control.in_tenant IS NULL OR l.set_in = unset_control.in_tenant)
      AND CASE WHEN unset_control.id IS NOT NULL THEN
              l.control_id = unset_control.id AND (unset_control.kind IS NULL OR l.kind = unset_control.kind)
          ELSE l.kind = unset_control.kind AND l.tool IS NOT DISTINCT FROM unset_control.tool
           AND l.queue IS NOT DISTINCT FROM unset_control.queue AND l.tenant IS NOT DISTINCT FROM unset_control.tenant
           AND l.pointer IS NOT DISTINCT FROM unset_control.pointer
           AND l.value IS NOT DISTINCT FROM toolfleet.plain_number(unset_control.value::text)
           AND l.subject IS NOT DISTINCT FROM unset_control.subject END
    ORDER BY l.expires_at NULLS FIRST LIMIT 1;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::json;
        RETURN;
    END IF;
    DELETE FROM toolfleet.live_controls l WHERE l.control_id = c.control_id;
    PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'unset', c, unset_control.actor, unset_control.note);
    IF unset_control.id IS NULL AND c.kind = 'limit' THEN
        FOR other IN DELETE FROM toolfleet.live_controls l WHERE l.kind = 'limit' AND l.subject = c.subject RETURNING l.* LOOP
            PERFORM toolfleet.log_control(toolfleet.next_control_rev(), 'unset', other, unset_control.actor, unset_control.note);
        END LOOP;
    END IF;
    RETURN QUERY SELECT 'unset', toolfleet.shown_control(c);
END $$;

CREATE FUNCTION toolfleet.uuid_floor(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

CREATE FUNCTION toolfleet.uuid_instant(id uuid) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
    SELECT to_timestamp(('x' || lpad(left(replace(id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint / 1000.0)
$$;

CREATE FUNCTION toolfleet.veiled(value json, pointers text[], word text) RETURNS json
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
    SELECT CASE WHEN octet_length(value::text) > 65536 THEN to_json(word) ELSE toolfleet.veiled_below(value, pointers, word) END
$$;

CREATE FUNCTION toolfleet.veiled_below(value json, pointers text[], word text) RETURNS json
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
BEGIN
    IF cardinality(pointers) = 0 THEN
        RETURN value;
    ELSIF '' = ANY (pointers) THEN
        RETURN to_json(word);
    ELSIF json_typeof(value) = 'object' THEN
        RETURN (
            SELECT '{' || coalesce(string_agg(to_json(m.key)::text || ':'
                || toolfleet.veiled_below(m.value, toolfleet.below(pointers, m.key), word)::text, ',' ORDER BY m.place), '') || '}'
            FROM json_each(value) WITH ORDINALITY m (key, value, place));
    ELSIF json_typeof(value) = 'array' THEN
        RETURN (
            SELECT '[' || coalesce(string_agg(
                toolfleet.veiled_below(m.value, toolfleet.below(pointers, (m.place - 1)::text), word)::text, ',' ORDER BY m.place), '')
                || ']'
            FROM json_array_elements(value) WITH ORDINALITY m (value, place));
    END IF;
    RETURN value;
END $$;

CREATE FUNCTION toolfleet.watch_tools() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
BEGIN
    IF NEW.policy IS NULL AND NOT EXISTS (
        SELECT FROM toolfleet.tool_versions v WHERE v.tool = NEW.tool AND v.policy IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    -- One at a time: the next statement sees what those before have committed.
    PERFORM FROM toolfleet.fleet FOR UPDATE;
    UPDATE toolfleet.fleet SET watched_tools = (
        SELECT array_agg(DISTINCT n.name ORDER BY n.name)
        FROM (
            SELECT DISTINCT ON (v.tool) v.tool, v.policy FROM toolfleet.tool_versions v ORDER BY v.tool, v.version DESC) newest
        CROSS JOIN LATERAL (
            SELECT json_array_elements_text(newest.policy->'after') AS name
            UNION ALL SELECT json_array_elements_text(newest.policy->'never_after')
            UNION ALL SELECT newest.tool WHERE newest.policy->'at_most' IS NOT NULL) n);
    RETURN NULL;
END $$;

CREATE FUNCTION toolfleet.write_chunk(file uuid, tenant text, at bigint, data bytea) RETURNS TABLE(verdict text, state text, received bigint, bytes bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    f toolfleet.kept_files;
    same boolean;
    came text;
BEGIN
    SELECT * INTO f FROM toolfleet.kept_files k
    WHERE k.file_id = write_chunk.file AND k.tenant = write_chunk.tenant AND k.expires_at > now()
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::text, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF write_chunk.at < f.received THEN
        SELECT c.data = write_chunk.data INTO same FROM toolfleet.file_chunks c WHERE c.file_id = f.file_id AND c.at = write_chunk.at;
        came := CASE same WHEN true THEN 'same' WHEN false THEN 'differs' ELSE 'gap' END;
    ELSIF write_chunk.at > f.received THEN
        came := 'gap';
    ELSIF f.received + octet_length(write_chunk.data) > f.bytes THEN
        came := 'beyond';
    ELSIF f.chunks >= 1024 THEN
        came := 'too_many';
    ELSE
        INSERT INTO toolfleet.file_chunks (file_id, at, data) VALUES (f.file_id, write_chunk.at, write_chunk.data);
        f.received := f.received + octet_length(write_chunk.data);
        UPDATE toolfleet.kept_files k SET received = f.received, chunks = k.chunks + 1 WHERE k.file_id = f.file_id;
        came := 'written';
    END IF;
    RETURN QUERY SELECT came, f.state, f.received, f.bytes;
END $$;

CREATE FUNCTION toolfleet.write_todos(tenant text, session text, call uuid, numbers integer[], statuses text[], titles text[]) RETURNS TABLE(added integer, unknown integer[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'toolfleet', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    list toolfleet.todo_lists;
    room integer;
BEGIN
    -- One writer of a list at a time, so that each sees those before; all else are later statements.
    INSERT INTO toolfleet.todo_lists AS l (tenant, session) VALUES (write_todos.tenant, write_todos.session)
    ON CONFLICT (tenant, session) DO UPDATE SET day = EXCLUDED.day
    RETURNING l.* INTO list;
    SELECT coalesce(array_agg(u.place::integer ORDER BY u.place), '{}') INTO unknown
    FROM unnest(write_todos.numbers) WITH ORDINALITY AS u (number, place)
    WHERE NOT EXISTS (SELECT FROM toolfleet.todo_items i WHERE i.tenant = list.tenant AND i.session = list.session AND i.number = u.number);
    SELECT count(*) INTO added FROM toolfleet.todo_items i
    WHERE i.tenant = list.tenant AND i.session = list.session AND i.added_by = write_todos.call;
    IF added > 0 OR write_todos.call = ANY (list.calls) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE toolfleet.todo_items i SET status = u.status, rev = i.rev + 1, changed_at = now(), changed_by = write_todos.call
    FROM (
        -- The last word about an item counts.
        SELECT DISTINCT ON (n.number) n.number, n.status
        FROM unnest(write_todos.numbers, write_todos.statuses) WITH ORDINALITY AS n (number, status, place)
        ORDER BY n.number, n.place DESC
    ) u
    WHERE i.tenant = list.tenant AND i.session = list.session AND i.number = u.number AND i.status <> u.status;
    SELECT 100 - count(*) INTO room FROM toolfleet.todo_items i WHERE i.tenant = list.tenant AND i.session = list.session;
    WITH finished AS MATERIALIZED (
        SELECT i.number FROM toolfleet.todo_items i
        WHERE i.tenant = list.tenant AND i.session = list.session AND i.status IN ('completed', 'cancelled')
        ORDER BY i.number LIMIT greatest(cardinality(write_todos.titles) - room, 0)
    ), gone AS (
        DELETE FROM toolfleet.todo_items i USING finished f
        WHERE i.tenant = list.tenant AND i.session = list.session AND i.number = f.number RETURNING 1
    )
    SELECT room + count(*) INTO room FROM gone;
    added := least(cardinality(write_todos.titles), room);
    INSERT INTO toolfleet.todo_items (tenant, session, number, title, added_by, changed_by)
    SELECT list.tenant, list.session, list.next_number + t.place - 1, t.title, write_todos.call, write_todos.call
    FROM unnest(write_todos.titles) WITH ORDINALITY AS t (title, place) WHERE t.place <= added;
    UPDATE toolfleet.todo_lists l
    SET next_number = list.next_number + added, calls = (array_prepend(write_todos.call, list.calls))[1:64]
    WHERE l.tenant = list.tenant AND l.session = list.session;
    RETURN NEXT;
END $$;

CREATE FUNCTION toolfleet_tool.succeed(call uuid, attempt uuid, result json) RETURNS TABLE(rev integer, moved_at timestamp with time zone, state text, tool text, tool_version integer, tenant text, session text, dispatcher_id uuid, attempts integer, coercions text, queued_ms bigint, run_ms bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET "DateStyle" TO 'ISO'
    SET row_security TO 'on'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
DECLARE
    said text := succeed.result::text;
    flaw text;
    done text;
BEGIN
    -- As large as the largest answer that a manifest can allow.
    IF pg_catalog.octet_length(said) > 8388608 THEN
        flaw := 'result must have at most 8 MiB';
    -- An escaped NUL could be stored and not be read again. What is left without pairs of backslashes begins an escape.
    ELSIF pg_catalog.strpos(said, E'\\u0000') > 0
        AND pg_catalog.strpos(pg_catalog.replace(said, E'\\\\', ''), E'\\u0000') > 0 THEN
        flaw := 'result must not hold the character NUL';
    END IF;
    -- As `toolfleet.finish` does, in one statement and without whole rows: this runs thousands of times a second.
    RETURN QUERY WITH ended AS (
        DELETE FROM toolfleet.open_calls c
        WHERE c.call_id = succeed.call AND c.attempt_id = succeed.attempt AND c.state = 'running' AND c.effect = 'transaction'
        -- By the clock once the row is ours. Each column by name: a newer schema may have one that is called `at`.
        RETURNING c.call_id, c.rev, c.state, c.tenant, c.tool, c.tool_version, c.effect, c.queue, c.priority, c.key_hash,
            c.key_retention_ms, c.args, c.kept_args, c.original_args, c.coercions, c.args_hash, c.session, c.run, c.meta,
            c.language, c.traceparent, c.dispatcher_id, c.accepted_at, c.deadline_at, c.first_started_at, c.attempts,
            c.attempt_id, c.worker_id, c.claim_rev, c.attempt_started_at, c.attempt_timeout_ms, c.probe_of,
            pg_catalog.clock_timestamp() AS at
    ), finished AS (
        INSERT INTO toolfleet.finished_calls (
            call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, priority,
            key_hash, key_retention_ms, args, original_args, coercions, args_hash, result, session, run, meta, language,
            traceparent, accepted_at, deadline_at, first_started_at, finished_at, queued_ms, run_ms, attempts, attempt_id,
            worker_id, claim_rev, attempt_started_at, attempt_timeout_ms, attempt_outcome, probe_of, actor, reason)
        SELECT o.call_id, o.rev + 1, o.state, 'succeeded', 'success', 'live', 'applied', o.tenant, o.tool, o.tool_version,
            o.effect, o.queue, o.priority, o.key_hash, o.key_retention_ms, coalesce(o.kept_args, o.args),
            CASE WHEN o.kept_args IS NULL THEN o.original_args END, o.coercions, o.args_hash,
            CASE WHEN flaw IS NOT NULL THEN NULL WHEN v.sensitive IS NULL THEN succeed.result
                ELSE toolfleet.kept(succeed.result, v.sensitive) END,
            o.session, o.run, o.meta, o.language, o.traceparent, o.accepted_at, o.deadline_at, o.first_started_at, o.at,
            (extract(epoch FROM coalesce(o.first_started_at, o.at) - o.accepted_at) * 1000)::bigint,
            (extract(epoch FROM o.at - coalesce(o.first_started_at, o.at)) * 1000)::bigint, o.attempts, o.attempt_id, o.worker_id,
            o.claim_rev, o.attempt_started_at, o.attempt_timeout_ms, 'applied', o.probe_of, 'worker ' || o.worker_id, 'applied'
        FROM ended o LEFT JOIN toolfleet.tool_versions v ON v.tool = o.tool AND v.version = o.tool_version
    )
    SELECT o.rev + 1, o.at, 'succeeded', o.tool, o.tool_version, o.tenant, o.session, o.dispatcher_id, o.attempts,
        o.coercions::text, (extract(epoch FROM coalesce(o.first_started_at, o.at) - o.accepted_at) * 1000)::bigint,
        (extract(epoch FROM o.at - coalesce(o.first_started_at, o.at)) * 1000)::bigint
    FROM ended o;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the call is not this attempt''s any more' USING ERRCODE = 'TF001';
    END IF;
    IF flaw IS NOT NULL THEN
        RAISE EXCEPTION '%', flaw USING ERRCODE = 'TF002';
    END IF;
    -- From here on only COMMIT is to come: it is as durable as any, and if it does not come, nobody waits long for the row.
    IF pg_catalog.current_setting('synchronous_commit') IN ('off', 'local') THEN
        done := pg_catalog.set_config('synchronous_commit', 'on', true);
    END IF;
    done := pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true);
END $$;

CREATE TABLE toolfleet.call_files (
    call_id uuid NOT NULL,
    "position" smallint NOT NULL,
    file_id uuid NOT NULL,
    CONSTRAINT call_files_position_check CHECK ((("position" >= 1) AND ("position" <= 16)))
);

CREATE TABLE toolfleet.call_marks (
    call_id uuid NOT NULL,
    what text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    role text NOT NULL,
    new_call_id uuid,
    note text,
    bulk_name text,
    CONSTRAINT call_marks_actor_check CHECK (((length(actor) >= 1) AND (length(actor) <= 200))),
    CONSTRAINT call_marks_bulk_name_check CHECK ((length(bulk_name) <= 128)),
    CONSTRAINT call_marks_new CHECK (((what = 'retried'::text) = (new_call_id IS NOT NULL))),
    CONSTRAINT call_marks_note_check CHECK ((length(note) <= 2000)),
    CONSTRAINT call_marks_what_check CHECK ((what = ANY ('{retried,discarded,abandoned}'::text[])))
);

CREATE TABLE toolfleet.tool_versions (
    tool text NOT NULL,
    version integer NOT NULL,
    rev bigint NOT NULL,
    manifest json NOT NULL,
    sensitive json GENERATED ALWAYS AS ((manifest -> 'sensitive'::text)) STORED,
    concurrency integer GENERATED ALWAYS AS (((manifest ->> 'concurrency'::text))::integer) STORED,
    manifest_hash bytea NOT NULL,
    schema_hash bytea NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    applied_by text NOT NULL,
    losses integer GENERATED ALWAYS AS (((manifest ->> 'losses'::text))::integer) STORED,
    rate_limit json GENERATED ALWAYS AS ((manifest -> 'rate_limit'::text)) STORED,
    policy json GENERATED ALWAYS AS ((manifest -> 'policy'::text)) STORED,
    CONSTRAINT tool_versions_concurrency_check CHECK (((concurrency >= 1) AND (concurrency <= 1000))),
    CONSTRAINT tool_versions_losses_check CHECK (((losses >= 0) AND (losses <= 100))),
    CONSTRAINT tool_versions_version_check CHECK ((version >= 1))
);

CREATE TABLE toolfleet.worker_processes (
    worker_id uuid NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    newest_migration bigint DEFAULT 0 NOT NULL,
    queues text[] NOT NULL,
    concurrency integer NOT NULL,
    state toolfleet.worker_state DEFAULT 'live'::toolfleet.worker_state NOT NULL,
    beat bigint DEFAULT 0 NOT NULL,
    beat_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    ended_by text,
    fenced_at timestamp with time zone,
    fenced_by text,
    fence_note text,
    leaving_since timestamp with time zone,
    cannot_run json,
    sandbox json,
    interceptors json,
    CONSTRAINT worker_processes_check CHECK (((state <> 'fenced'::toolfleet.worker_state) OR ((fenced_at IS NOT NULL) AND (fenced_by IS NOT NULL))))
)
WITH (fillfactor='50');

CREATE VIEW toolfleet.calls AS
 SELECT c.call_id,
    c.tenant,
    c.tool,
    c.tool_version,
    (c.effect)::text AS effect,
    (c.state)::text AS state,
    c.outcome,
    c.source,
    c.held,
    encode(c.key_hash, 'hex'::text) AS idempotency_key_hash,
        CASE
            WHEN (v.sensitive IS NULL) THEN c.args
            ELSE toolfleet.shown(c.args, v.sensitive)
        END AS args,
        CASE
            WHEN (v.sensitive IS NULL) THEN COALESCE(c.original_args, c.args)
            WHEN (c.coercions IS NULL) THEN toolfleet.shown(c.args, v.sensitive)
            ELSE toolfleet.shown('null'::json, json_build_object('pointers', ARRAY[''::text], 'mode', (v.sensitive ->> 'mode'::text)))
        END AS original_args,
    COALESCE(c.coercions, '[]'::json) AS coercions,
        CASE
            WHEN (v.sensitive IS NULL) THEN c.result
            ELSE toolfleet.shown(c.result, v.sensitive)
        END AS result,
    c.error,
    c.degraded,
    c.attempts,
    c.not_before,
    c.deadline_at,
    c.session,
    c.run,
    (ARRAY['high'::text, 'normal'::text, 'low'::text])[(c.priority + 1)] AS priority,
    c.accepted_at,
    c.started_at,
    c.finished_at,
    COALESCE(w.name, (c.worker_id)::text) AS worker,
    split_part(c.traceparent, '-'::text, 2) AS trace_id,
    c.queue,
    c.language,
    c.meta,
    c.queued_ms,
    c.run_ms,
    c.cancel_requested,
    c.queue_until,
    c.probe_of,
    (v.sensitive IS NOT NULL) AS sensitive,
    c.line,
    c.obstacle,
    toolfleet.held_why(c.held, c.line) AS held_why,
    c.effect_known,
    ( SELECT m.what
           FROM toolfleet.call_marks m
          WHERE (m.call_id = c.call_id)
          ORDER BY m.at DESC
         LIMIT 1) AS marked,
        CASE
            WHEN (c.source = 'settled'::text) THEN (c.details ->> 'settled_by'::text)
            ELSE NULL::text
        END AS settled_by,
    c.shortened,
    c.open,
    c.awaiting,
    ( SELECT array_agg(u.file_id ORDER BY u."position") AS array_agg
           FROM toolfleet.call_files u
          WHERE (u.call_id = c.call_id)) AS files
   FROM ((( SELECT open_calls.call_id,
            open_calls.tenant,
            open_calls.tool,
            open_calls.tool_version,
            open_calls.effect,
            open_calls.state,
            NULL::text AS outcome,
            NULL::text AS source,
            open_calls.held,
            open_calls.key_hash,
            open_calls.args,
            open_calls.original_args,
            open_calls.coercions,
            NULL::json AS result,
            open_calls.last_error AS error,
            NULL::json AS degraded,
            open_calls.attempts,
            open_calls.not_before,
            open_calls.deadline_at,
            open_calls.session,
            open_calls.run,
            open_calls.priority,
            open_calls.accepted_at,
            open_calls.first_started_at AS started_at,
            NULL::timestamp with time zone AS finished_at,
            open_calls.worker_id,
            open_calls.traceparent,
            open_calls.queue,
            open_calls.language,
            open_calls.meta,
            NULL::bigint AS queued_ms,
            NULL::bigint AS run_ms,
            open_calls.cancel_requested,
            open_calls.queue_until,
            open_calls.probe_of,
            open_calls.line,
                CASE
                    WHEN (open_calls.state = 'queued'::toolfleet.call_state) THEN open_calls.obstacle
                    ELSE NULL::json
                END AS obstacle,
            NULL::text AS effect_known,
            NULL::json AS details,
            NULL::boolean AS shortened,
            true AS open,
            open_calls.awaiting
           FROM toolfleet.open_calls
        UNION ALL
         SELECT finished_calls.call_id,
            finished_calls.tenant,
            finished_calls.tool,
            finished_calls.tool_version,
            finished_calls.effect,
            finished_calls.state,
            (finished_calls.outcome)::text AS outcome,
            (finished_calls.source)::text AS source,
            false,
            finished_calls.key_hash,
            finished_calls.args,
            finished_calls.original_args,
            finished_calls.coercions,
            finished_calls.result,
            finished_calls.error,
            finished_calls.degraded,
            finished_calls.attempts,
            NULL::timestamp with time zone,
            finished_calls.deadline_at,
            finished_calls.session,
            finished_calls.run,
            finished_calls.priority,
            finished_calls.accepted_at,
            finished_calls.first_started_at,
            finished_calls.finished_at,
            finished_calls.worker_id,
            finished_calls.traceparent,
            finished_calls.queue,
            finished_calls.language,
            finished_calls.meta,
            finished_calls.queued_ms,
            finished_calls.run_ms,
            false,
            NULL::timestamp with time zone,
            finished_calls.probe_of,
            NULL::text,
            NULL::json,
            (finished_calls.effect_known)::text AS effect_known,
            finished_calls.details,
            (finished_calls.preview IS NOT NULL),
            false,
            NULL::text
           FROM toolfleet.finished_calls) c
     LEFT JOIN toolfleet.worker_processes w USING (worker_id))
     LEFT JOIN toolfleet.tool_versions v ON (((v.tool = c.tool) AND (v.version = c.tool_version))));

CREATE VIEW toolfleet.abandoned AS
 SELECT c.call_id,
    c.tenant,
    c.tool,
    c.tool_version,
    c.effect,
    m.at AS abandoned_at,
    m.actor,
    m.role,
    m.note,
    c.args,
    c.error,
    c.attempts,
    c.session,
    c.run,
    c.accepted_at,
    c.worker
   FROM (toolfleet.call_marks m
     JOIN toolfleet.calls c ON ((c.call_id = m.call_id)))
  WHERE (m.what = 'abandoned'::text);

CREATE TABLE toolfleet.access_tokens (
    token_id text NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    tenant text NOT NULL,
    scopes text[] NOT NULL,
    tools text[] NOT NULL,
    note text NOT NULL,
    created_by text NOT NULL,
    role text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    for_ms bigint,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text,
    revoked_role text,
    revoke_note text,
    CONSTRAINT access_tokens_check CHECK (((for_ms IS NULL) = (expires_at IS NULL))),
    CONSTRAINT access_tokens_check1 CHECK ((num_nulls(revoked_at, revoked_by, revoked_role, revoke_note) = ANY (ARRAY[0, 4]))),
    CONSTRAINT access_tokens_created_by_check CHECK (((length(created_by) >= 1) AND (length(created_by) <= 200))),
    CONSTRAINT access_tokens_for_ms_check CHECK (((for_ms >= 1000) AND (for_ms <= '315360000000'::bigint))),
    CONSTRAINT access_tokens_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT access_tokens_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$'::text)),
    CONSTRAINT access_tokens_note_check CHECK (((length(note) >= 1) AND (length(note) <= 2000))),
    CONSTRAINT access_tokens_revoke_note_check CHECK (((length(revoke_note) >= 1) AND (length(revoke_note) <= 2000))),
    CONSTRAINT access_tokens_revoked_by_check CHECK (((length(revoked_by) >= 1) AND (length(revoked_by) <= 200))),
    CONSTRAINT access_tokens_scopes_check CHECK ((((cardinality(scopes) >= 1) AND (cardinality(scopes) <= 5)) AND (scopes <@ '{call,read,approve,settle,admin}'::text[]))),
    CONSTRAINT access_tokens_tenant_check CHECK ((tenant ~ '^(\*|[A-Za-z0-9_-]{1,64})$'::text)),
    CONSTRAINT access_tokens_token_id_check CHECK ((token_id ~ '^[0-9a-f]{12}$'::text)),
    CONSTRAINT access_tokens_tools_check CHECK ((((cardinality(tools) >= 1) AND (cardinality(tools) <= 64)) AND (array_position(tools, NULL::text) IS NULL) AND (array_to_string(tools, ','::text) ~ '^[a-z0-9_*]{1,64}(,[a-z0-9_*]{1,64})*$'::text) AND (cardinality(string_to_array(array_to_string(tools, ','::text), ','::text)) = cardinality(tools))))
);

CREATE TABLE toolfleet.call_decisions (
    call_id uuid NOT NULL,
    decision text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    role text NOT NULL,
    note text NOT NULL,
    args_hash bytea NOT NULL,
    person text,
    CONSTRAINT call_decisions_actor_check CHECK (((length(actor) >= 1) AND (length(actor) <= 200))),
    CONSTRAINT call_decisions_decision_check CHECK ((decision = ANY ('{approve,deny}'::text[]))),
    CONSTRAINT call_decisions_note_check CHECK (((length(note) >= 1) AND (length(note) <= 2000)))
);

CREATE VIEW toolfleet.approvals AS
 SELECT call_decisions.call_id,
    call_decisions.decision,
    call_decisions.at,
    call_decisions.actor,
    call_decisions.role,
    call_decisions.note,
    encode(call_decisions.args_hash, 'hex'::text) AS args_hash
   FROM toolfleet.call_decisions;

CREATE TABLE toolfleet.ended_attempts (
    call_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    number integer NOT NULL,
    claim_rev integer,
    worker_id uuid,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    timeout_ms bigint NOT NULL,
    outcome toolfleet.attempt_outcome NOT NULL,
    effect_known toolfleet.effect_known NOT NULL,
    error json,
    over boolean NOT NULL,
    late boolean DEFAULT false NOT NULL
)
PARTITION BY RANGE (call_id);

CREATE VIEW toolfleet.attempts AS
 SELECT a.call_id,
    a.attempt_id,
    a.number,
    COALESCE(w.name, (a.worker_id)::text) AS worker,
    a.started_at,
    a.finished_at,
    a.timeout_ms,
    a.outcome,
    a.error,
    a.effect,
    a.late,
    a.worker_id,
    w.fenced_at AS worker_fenced_at,
    w.fenced_by AS worker_fenced_by
   FROM (( SELECT ended_attempts.call_id,
            ended_attempts.attempt_id,
            ended_attempts.number,
            ended_attempts.worker_id,
            ended_attempts.started_at,
            ended_attempts.finished_at,
            ended_attempts.timeout_ms,
            (ended_attempts.outcome)::text AS outcome,
            ended_attempts.error,
            (ended_attempts.effect_known)::text AS effect,
            ended_attempts.late
           FROM toolfleet.ended_attempts
        UNION ALL
         SELECT finished_calls.call_id,
            finished_calls.attempt_id,
            finished_calls.attempts,
            finished_calls.worker_id,
            finished_calls.attempt_started_at,
            finished_calls.finished_at,
            finished_calls.attempt_timeout_ms,
            (finished_calls.attempt_outcome)::text AS attempt_outcome,
                CASE
                    WHEN ((finished_calls.error ->> 'code'::text) = ANY (ARRAY['retries_exhausted'::text, 'deadline_exceeded'::text, 'cancelled'::text])) THEN COALESCE(((finished_calls.error -> 'details'::text) -> 'last'::text), finished_calls.error)
                    ELSE finished_calls.error
                END AS error,
            (finished_calls.effect_known)::text AS effect_known,
            false
           FROM toolfleet.finished_calls
          WHERE ((finished_calls.attempt_id IS NOT NULL) AND (finished_calls.attempt_outcome IS NOT NULL) AND (finished_calls.from_state = ANY (ARRAY['running'::toolfleet.call_state, 'awaiting_client'::toolfleet.call_state])))
        UNION ALL
         SELECT open_calls.call_id,
            open_calls.attempt_id,
            open_calls.attempts,
            open_calls.worker_id,
            open_calls.attempt_started_at,
            NULL::timestamp with time zone,
            open_calls.attempt_timeout_ms,
            NULL::text,
            NULL::json AS json,
            NULL::text,
            false
           FROM toolfleet.open_calls
          WHERE ((open_calls.state = 'running'::toolfleet.call_state) OR (open_calls.awaiting = ANY (ARRAY['client'::text, 'completion'::text])))) a
     LEFT JOIN toolfleet.worker_processes w USING (worker_id));

CREATE UNLOGGED TABLE toolfleet.breaker_windows (
    tool text NOT NULL,
    target text NOT NULL,
    worker_id uuid NOT NULL,
    second bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    heard_at timestamp with time zone NOT NULL,
    calls integer NOT NULL,
    failures integer NOT NULL,
    slow integer NOT NULL
);

CREATE VIEW toolfleet.breakers AS
 SELECT b.breaker_id,
    b.tool,
    b.target,
    b.state,
    ( SELECT (c.setting #>> '{}'::text[])
           FROM toolfleet.live_controls c
          WHERE ((c.kind = 'breaker'::text) AND (c.tool = b.tool) AND ((c.expires_at IS NULL) OR (c.expires_at > clock_timestamp())))) AS forced,
    b.generation,
    b.opened_at,
    b.open_until,
    b.open_ms,
    b.probes_out,
    b.probes_ok,
    b.round_until,
    b.why,
    ( SELECT count(*) AS count
           FROM ( SELECT
                   FROM toolfleet.open_calls o
                  WHERE (o.held AND (o.line = ('breaker/'::text || b.breaker_id)))
                 LIMIT 100000) w) AS waiting
   FROM toolfleet.breaker_states b;

CREATE TABLE toolfleet.bulk_retries (
    name text NOT NULL,
    nonce uuid DEFAULT gen_random_uuid() NOT NULL,
    filter text NOT NULL,
    since timestamp with time zone NOT NULL,
    until timestamp with time zone NOT NULL,
    newest uuid NOT NULL,
    actor text NOT NULL,
    role text DEFAULT SESSION_USER NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT bulk_retries_actor_check CHECK (((length(actor) >= 1) AND (length(actor) <= 200))),
    CONSTRAINT bulk_retries_filter_check CHECK ((length(filter) <= 65536)),
    CONSTRAINT bulk_retries_name_check CHECK (((length(name) >= 1) AND (length(name) <= 128)))
);

CREATE TABLE toolfleet.call_notes (
    call_id uuid NOT NULL,
    rev integer NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    from_state toolfleet.call_state NOT NULL,
    to_state toolfleet.call_state NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    attempt_id uuid,
    details json
)
PARTITION BY RANGE (call_id);

CREATE VIEW toolfleet.call_events AS
 SELECT c.call_id,
    0 AS revision,
    c.accepted_at AS at,
    NULL::text AS from_state,
        CASE
            WHEN (COALESCE(first.from_state,
            CASE
                WHEN c.is_first THEN c.state
                ELSE NULL::toolfleet.call_state
            END) = 'awaiting_client'::toolfleet.call_state) THEN 'awaiting_client'::text
            ELSE 'queued'::text
        END AS to_state,
    'dispatcher'::text AS actor,
    'accepted'::text AS reason,
    NULL::uuid AS attempt_id,
    NULL::json AS details
   FROM (( SELECT open_calls.call_id,
            open_calls.accepted_at,
            open_calls.state,
            (open_calls.rev = 0) AS is_first
           FROM toolfleet.open_calls
        UNION ALL
         SELECT finished_calls.call_id,
            finished_calls.accepted_at,
            finished_calls.from_state,
            (finished_calls.rev = 1)
           FROM toolfleet.finished_calls) c
     LEFT JOIN toolfleet.call_notes first ON (((first.call_id = c.call_id) AND (first.rev = 1))))
UNION ALL
 SELECT claimed.call_id,
    claimed.claim_rev AS revision,
    claimed.started_at AS at,
    'queued'::text AS from_state,
    'running'::text AS to_state,
    ('worker '::text || claimed.worker_id) AS actor,
    'claimed'::text AS reason,
    claimed.attempt_id,
    NULL::json AS details
   FROM ( SELECT ended_attempts.call_id,
            ended_attempts.claim_rev,
            ended_attempts.started_at,
            ended_attempts.worker_id,
            ended_attempts.attempt_id
           FROM toolfleet.ended_attempts
          WHERE ((NOT ended_attempts.late) AND (ended_attempts.worker_id IS NOT NULL))
        UNION ALL
         SELECT finished_calls.call_id,
            finished_calls.claim_rev,
            finished_calls.attempt_started_at,
            finished_calls.worker_id,
            finished_calls.attempt_id
           FROM toolfleet.finished_calls
          WHERE ((finished_calls.from_state = 'running'::toolfleet.call_state) OR ((finished_calls.from_state = 'awaiting_client'::toolfleet.call_state) AND (finished_calls.claim_rev IS NOT NULL)))
        UNION ALL
         SELECT open_calls.call_id,
            open_calls.claim_rev,
            open_calls.attempt_started_at,
            open_calls.worker_id,
            open_calls.attempt_id
           FROM toolfleet.open_calls
          WHERE ((open_calls.state = 'running'::toolfleet.call_state) OR (open_calls.awaiting = 'completion'::text))) claimed
UNION ALL
 SELECT call_notes.call_id,
    call_notes.rev AS revision,
    call_notes.at,
    (call_notes.from_state)::text AS from_state,
    (call_notes.to_state)::text AS to_state,
    call_notes.actor,
    call_notes.reason,
    call_notes.attempt_id,
    call_notes.details
   FROM toolfleet.call_notes
UNION ALL
 SELECT finished_calls.call_id,
    finished_calls.rev AS revision,
    finished_calls.finished_at AS at,
    (finished_calls.from_state)::text AS from_state,
    (finished_calls.state)::text AS to_state,
    finished_calls.actor,
    finished_calls.reason,
    finished_calls.attempt_id,
    finished_calls.details
   FROM toolfleet.finished_calls;

CREATE TABLE toolfleet.call_notes_default (
    call_id uuid NOT NULL,
    rev integer NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    from_state toolfleet.call_state NOT NULL,
    to_state toolfleet.call_state NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    attempt_id uuid,
    details json
);

CREATE TABLE toolfleet.control_changes (
    rev bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    change text NOT NULL,
    control_id bigint NOT NULL,
    kind text NOT NULL,
    tool text,
    queue text,
    tenant text,
    pointer text,
    value text,
    subject text,
    setting json NOT NULL,
    told text,
    expires_at timestamp with time zone,
    actor text NOT NULL,
    note text NOT NULL,
    role text NOT NULL
);

CREATE VIEW toolfleet.control_log AS
 SELECT control_changes.rev,
    control_changes.at,
    control_changes.change,
    control_changes.control_id,
    control_changes.kind,
    control_changes.tool,
    control_changes.queue,
    control_changes.tenant,
    control_changes.pointer,
    (control_changes.value)::json AS value,
    control_changes.subject,
    control_changes.setting,
    control_changes.told,
    control_changes.expires_at,
    control_changes.actor,
    control_changes.note,
    control_changes.role
   FROM toolfleet.control_changes;

CREATE VIEW toolfleet.controls AS
 SELECT c.control_id,
    c.kind,
    c.tool,
    c.queue,
    c.tenant,
    c.pointer,
    (c.value)::json AS value,
    c.subject,
    c.setting,
    c.told,
    c.actor,
    c.note,
    c.role,
    c.set_at,
    c.expires_at,
        CASE
            WHEN (c.kind = ANY (ARRAY['pause'::text, 'breaker'::text, 'limit'::text])) THEN ( SELECT count(*) AS count
               FROM ( SELECT
                       FROM toolfleet.open_calls o
                      WHERE (o.held AND (o.line = ANY (
                            CASE c.kind
                                WHEN 'pause'::text THEN ARRAY[('pause/'::text || c.control_id)]
                                WHEN 'breaker'::text THEN ARRAY( SELECT ('breaker/'::text || b.breaker_id)
                                   FROM toolfleet.breaker_states b
                                  WHERE (b.tool = c.tool))
                                ELSE ARRAY( SELECT ('tool/'::text || v.tool)
                                   FROM (( SELECT DISTINCT t.tool
   FROM toolfleet.tool_versions t
  WHERE (t.rate_limit IS NOT NULL)) v
                                     CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r(shared_by, name, calls, per_ms, burst, step_us, control_id))
                                  WHERE (r.name = c.subject))
                            END)))
                    UNION ALL
                     SELECT
                       FROM toolfleet.open_calls o
                      WHERE ((c.kind = 'limit'::text) AND o.held AND (o.line ~~ 'tool/%/%'::text) AND (split_part(o.line, '/'::text, 2) = c.subject))
             LIMIT 100000) w)
            ELSE NULL::bigint
        END AS waiting
   FROM toolfleet.live_controls c
  WHERE ((c.expires_at IS NULL) OR (c.expires_at > clock_timestamp()));

CREATE TABLE toolfleet.timeout_looks (
    tool text NOT NULL,
    version integer NOT NULL,
    looked_at timestamp with time zone NOT NULL,
    timeout_ms bigint,
    samples bigint DEFAULT 0 NOT NULL,
    longer bigint DEFAULT 0 NOT NULL,
    p95_ms bigint DEFAULT 0 NOT NULL,
    p99_ms bigint DEFAULT 0 NOT NULL
);

CREATE VIEW toolfleet.current_timeouts AS
 SELECT timeout_looks.tool,
    timeout_looks.version,
    timeout_looks.timeout_ms,
    timeout_looks.looked_at,
    timeout_looks.samples,
    timeout_looks.longer,
    timeout_looks.p95_ms,
    timeout_looks.p99_ms
   FROM toolfleet.timeout_looks;

CREATE VIEW toolfleet.dead_letters AS
 SELECT f.call_id,
    f.tenant,
    f.tool,
    f.tool_version,
    (f.effect)::text AS effect,
    f.queue,
    (f.state)::text AS state,
    (f.outcome)::text AS outcome,
    (f.effect_known)::text AS effect_known,
    (f.error ->> 'code'::text) AS code,
    f.error,
    COALESCE(((f.error -> 'details'::text) -> 'last'::text), f.error) AS last_error,
    f.attempts,
        CASE
            WHEN (v.sensitive IS NULL) THEN f.args
            ELSE toolfleet.shown(f.args, v.sensitive)
        END AS args,
        CASE
            WHEN (v.sensitive IS NULL) THEN f.result
            ELSE toolfleet.shown(f.result, v.sensitive)
        END AS result,
    f.session,
    f.run,
    f.accepted_at,
    f.first_started_at AS started_at,
    f.finished_at,
    COALESCE(w.name, (f.worker_id)::text) AS worker
   FROM ((toolfleet.finished_calls f
     LEFT JOIN toolfleet.worker_processes w USING (worker_id))
     LEFT JOIN toolfleet.tool_versions v ON (((v.tool = f.tool) AND (v.version = f.tool_version))))
  WHERE ((f.error IS NOT NULL) AND (f.state = 'failed'::toolfleet.call_state) AND (f.outcome = 'system_error'::toolfleet.call_outcome) AND (f.effect_known = ANY (ARRAY['none'::toolfleet.effect_known, 'not_applied'::toolfleet.effect_known])) AND (f.probe_of IS NULL) AND (f.tool <> 'mcp_discover'::text) AND (f.tool !~~ 'mcp\_discover\_%'::text) AND (NOT (EXISTS ( SELECT
           FROM toolfleet.call_marks m
          WHERE (m.call_id = f.call_id)))) AND ((f.effect = 'read'::toolfleet.effect) OR (NOT (EXISTS ( SELECT
           FROM toolfleet.ended_attempts a
          WHERE ((a.call_id = f.call_id) AND a.late AND (a.outcome = 'applied'::toolfleet.attempt_outcome)))))));

CREATE TABLE toolfleet.ended_attempts_default (
    call_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    number integer NOT NULL,
    claim_rev integer,
    worker_id uuid,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    timeout_ms bigint NOT NULL,
    outcome toolfleet.attempt_outcome NOT NULL,
    effect_known toolfleet.effect_known NOT NULL,
    error json,
    over boolean NOT NULL,
    late boolean DEFAULT false NOT NULL
);

CREATE TABLE toolfleet.file_chunks (
    file_id uuid NOT NULL,
    at bigint NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT file_chunks_at_check CHECK ((at >= 0)),
    CONSTRAINT file_chunks_data_check CHECK (((octet_length(data) >= 1) AND (octet_length(data) <= 262144)))
);
ALTER TABLE ONLY toolfleet.file_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE toolfleet.file_url_keys (
    only_row boolean DEFAULT true NOT NULL,
    current bytea DEFAULT (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) NOT NULL,
    previous bytea,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT file_url_keys_current_check CHECK ((octet_length(current) = 32)),
    CONSTRAINT file_url_keys_only_row_check CHECK (only_row),
    CONSTRAINT file_url_keys_previous_check CHECK ((octet_length(previous) = 32))
);

CREATE VIEW toolfleet.file_keys AS
 SELECT k.current,
    k.previous,
    k.since
   FROM toolfleet.file_url_keys k;

CREATE TABLE toolfleet.kept_files (
    file_id uuid NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    mime text NOT NULL,
    bytes bigint NOT NULL,
    received bigint DEFAULT 0 NOT NULL,
    chunks integer DEFAULT 0 NOT NULL,
    sha256 bytea,
    state text DEFAULT 'open'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ready_at timestamp with time zone,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT kept_files_bytes_check CHECK (((bytes >= 1) AND (bytes <= 33554432))),
    CONSTRAINT kept_files_check CHECK (((received >= 0) AND (received <= bytes))),
    CONSTRAINT kept_files_check1 CHECK (((state = 'ready'::text) = (ready_at IS NOT NULL))),
    CONSTRAINT kept_files_check2 CHECK (((state = 'open'::text) OR ((sha256 IS NOT NULL) AND (received = bytes)))),
    CONSTRAINT kept_files_chunks_check CHECK (((chunks >= 0) AND (chunks <= 1024))),
    CONSTRAINT kept_files_mime_check CHECK (((octet_length(mime) >= 3) AND (octet_length(mime) <= 127))),
    CONSTRAINT kept_files_name_check CHECK ((((octet_length(name) >= 1) AND (octet_length(name) <= 255)) AND (name !~ '[/\\\u0001-\u001f\u007f-\u009f]'::text) AND (name <> ALL (ARRAY['.'::text, '..'::text])))),
    CONSTRAINT kept_files_sha256_check CHECK ((octet_length(sha256) = 32)),
    CONSTRAINT kept_files_state_check CHECK ((state = ANY (ARRAY['open'::text, 'ready'::text]))),
    CONSTRAINT kept_files_tenant_check CHECK ((tenant ~ '^[A-Za-z0-9_-]{1,64}$'::text))
);

CREATE VIEW toolfleet.files AS
 SELECT f.file_id,
    f.tenant,
    f.name,
    f.mime,
    f.bytes,
    f.received,
    f.state,
    encode(
        CASE
            WHEN (f.state = 'ready'::text) THEN f.sha256
            ELSE NULL::bytea
        END, 'hex'::text) AS sha256,
    f.created_at,
    f.ready_at,
    f.expires_at,
    toolfleet.is_named(f.file_id) AS named
   FROM toolfleet.kept_files f;

CREATE TABLE toolfleet.finished_calls_default (
    call_id uuid NOT NULL,
    rev integer NOT NULL,
    from_state toolfleet.call_state NOT NULL,
    state toolfleet.call_state NOT NULL,
    outcome toolfleet.call_outcome NOT NULL,
    source toolfleet.source NOT NULL,
    effect_known toolfleet.effect_known NOT NULL,
    tenant text NOT NULL,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    effect toolfleet.effect NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    key_hash bytea,
    key_retention_ms bigint NOT NULL,
    args json NOT NULL,
    original_args json,
    coercions json,
    args_hash bytea NOT NULL,
    result json,
    error json,
    degraded json,
    session text,
    run text,
    meta json,
    language text NOT NULL,
    traceparent text,
    accepted_at timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    first_started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    queued_ms bigint NOT NULL,
    run_ms bigint NOT NULL,
    attempts integer NOT NULL,
    attempt_id uuid,
    worker_id uuid,
    claim_rev integer,
    attempt_started_at timestamp with time zone,
    attempt_timeout_ms bigint,
    attempt_outcome toolfleet.attempt_outcome,
    probe_of uuid,
    actor text NOT NULL,
    reason text NOT NULL,
    details json,
    preview json
);

CREATE TABLE toolfleet.fleet (
    only_row boolean DEFAULT true NOT NULL,
    registry_rev bigint DEFAULT 0 NOT NULL,
    oldest_program bigint NOT NULL,
    system_identifier text,
    timeline integer,
    wal_lsn pg_lsn,
    quarantines integer DEFAULT 0 NOT NULL,
    ledger_id uuid DEFAULT gen_random_uuid() NOT NULL,
    control_rev bigint DEFAULT 0 NOT NULL,
    breaker_rev bigint DEFAULT 0 NOT NULL,
    timeout_rev bigint DEFAULT 0 NOT NULL,
    watched_tools text[],
    mcp_rev bigint DEFAULT 0 NOT NULL,
    CONSTRAINT fleet_only_row_check CHECK (only_row)
);

CREATE TABLE toolfleet.happenings (
    tenant text NOT NULL,
    scope text NOT NULL,
    label text NOT NULL,
    tool text NOT NULL,
    what text NOT NULL,
    call_id uuid NOT NULL,
    CONSTRAINT happenings_scope_check CHECK ((scope = ANY (ARRAY['run'::text, 'session'::text]))),
    CONSTRAINT happenings_what_check CHECK ((what = ANY (ARRAY['own'::text, 'seen'::text, 'asked'::text, 'succeeded'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='10000');

CREATE TABLE toolfleet.idempotency_keys (
    tenant text NOT NULL,
    key_hash bytea NOT NULL,
    call_id uuid NOT NULL,
    replaced uuid,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    args_hash bytea NOT NULL,
    original_hash bytea NOT NULL
);

CREATE VIEW toolfleet.in_doubt AS
 SELECT o.call_id,
    o.tenant,
    o.tool,
    o.tool_version,
    o.doubt_since AS since,
    o.doubt_reason AS why,
    COALESCE(w.name, (o.worker_id)::text) AS worker,
    toolfleet.is_fenced(o.call_id) AS worker_fenced,
    o.attempt_id,
    o.attempt_until,
        CASE
            WHEN (v.sensitive IS NULL) THEN o.args
            ELSE toolfleet.shown(o.args, v.sensitive)
        END AS args,
    o.last_error AS error,
    o.quarantined,
    o.probe_state,
    o.probes,
    o.probe_id,
    o.due_at AS next_probe_at
   FROM ((toolfleet.open_calls o
     LEFT JOIN toolfleet.worker_processes w USING (worker_id))
     LEFT JOIN toolfleet.tool_versions v ON (((v.tool = o.tool) AND (v.version = o.tool_version))))
  WHERE (o.state = 'in_doubt'::toolfleet.call_state);

CREATE TABLE toolfleet.interceptor_stats (
    worker_id uuid NOT NULL,
    name text NOT NULL,
    calls bigint NOT NULL,
    continued bigint NOT NULL,
    refused bigint NOT NULL,
    waited bigint NOT NULL,
    changed bigint NOT NULL,
    errors bigint NOT NULL,
    own_us bigint NOT NULL,
    last_error text,
    last_error_at timestamp with time zone,
    answered bigint DEFAULT 0 NOT NULL
);

CREATE VIEW toolfleet.interceptors AS
 WITH has AS (
         SELECT w.worker_id,
            w.name AS worker,
            w.queues,
            i.name,
            i."order",
            i.mandatory,
            i.fails,
            i.budget_ms
           FROM toolfleet.worker_processes w,
            LATERAL json_to_recordset(w.interceptors) i(name text, "order" integer, mandatory boolean, fails text, budget_ms bigint)
          WHERE (w.state = ANY (ARRAY['live'::toolfleet.worker_state, 'draining'::toolfleet.worker_state]))
        ), said AS (
         SELECT has.name,
            min(has."order") AS "order",
            bool_or(has.mandatory) AS mandatory,
            min(has.fails) AS fails,
            min(has.budget_ms) AS budget_ms,
            count(*) AS workers,
            (count(DISTINCT ROW(has."order", has.mandatory, has.fails, has.budget_ms)) > 1) AS differ
           FROM has
          GROUP BY has.name
        ), did AS (
         SELECT interceptor_stats.name,
            (sum(interceptor_stats.calls))::bigint AS calls,
            (sum(interceptor_stats.continued))::bigint AS continued,
            (sum(interceptor_stats.refused))::bigint AS refused,
            (sum(interceptor_stats.waited))::bigint AS waited,
            (sum(interceptor_stats.changed))::bigint AS changed,
            (sum(interceptor_stats.errors))::bigint AS errors,
            (sum(interceptor_stats.own_us))::bigint AS own_us,
            (sum(interceptor_stats.answered))::bigint AS answered,
            max(interceptor_stats.last_error_at) AS last_error_at,
            (array_agg(interceptor_stats.last_error ORDER BY interceptor_stats.last_error_at DESC NULLS LAST))[1] AS last_error
           FROM toolfleet.interceptor_stats
          GROUP BY interceptor_stats.name
        )
 SELECT n.name,
    s."order",
    s.mandatory,
    s.fails,
    s.budget_ms,
    COALESCE(s.workers, (0)::bigint) AS workers,
    COALESCE(s.differ, false) AS differ,
    ARRAY( SELECT o.name
           FROM toolfleet.worker_processes o
          WHERE ((o.state = 'live'::toolfleet.worker_state) AND (NOT (EXISTS ( SELECT
                   FROM has h
                  WHERE ((h.name = n.name) AND (h.worker_id = o.worker_id))))) AND (EXISTS ( SELECT
                   FROM has h
                  WHERE ((h.name = n.name) AND (h.queues && o.queues)))))
          ORDER BY o.name
         LIMIT 100) AS lacking,
    COALESCE(d.calls, (0)::bigint) AS calls,
    COALESCE(d.continued, (0)::bigint) AS continued,
    COALESCE(d.refused, (0)::bigint) AS refused,
    COALESCE(d.waited, (0)::bigint) AS waited,
    COALESCE(d.changed, (0)::bigint) AS changed,
    COALESCE(d.errors, (0)::bigint) AS errors,
    (round((((d.own_us)::numeric / 1000.0) / (NULLIF(d.calls, 0))::numeric), 3))::double precision AS mean_ms,
    d.last_error,
    d.last_error_at,
    COALESCE(( SELECT json_agg(json_build_object('control_id', c.control_id, 'mode', c.setting, 'tool', c.tool, 'tenant', c.tenant) ORDER BY c.control_id) AS json_agg
           FROM toolfleet.live_controls c
          WHERE ((c.kind = 'mode'::text) AND (c.subject = n.name) AND ((c.expires_at IS NULL) OR (c.expires_at > clock_timestamp())))), '[]'::json) AS modes,
    COALESCE(d.answered, (0)::bigint) AS answered
   FROM ((( SELECT said.name
           FROM said
        UNION
         SELECT did.name
           FROM did) n
     LEFT JOIN said s USING (name))
     LEFT JOIN did d USING (name));

CREATE TABLE toolfleet.timeout_changes (
    tool text NOT NULL,
    version integer NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    timeout_ms bigint NOT NULL,
    before_ms bigint NOT NULL,
    why text NOT NULL,
    samples bigint NOT NULL,
    longer bigint NOT NULL,
    p95_ms bigint NOT NULL,
    p99_ms bigint NOT NULL
);

CREATE VIEW toolfleet.learned_timeouts AS
 SELECT timeout_changes.tool,
    timeout_changes.version,
    timeout_changes.at,
    timeout_changes.timeout_ms,
    timeout_changes.before_ms,
    timeout_changes.why,
    timeout_changes.samples,
    timeout_changes.longer,
    timeout_changes.p95_ms,
    timeout_changes.p99_ms
   FROM toolfleet.timeout_changes;

CREATE TABLE toolfleet.rate_buckets (
    bucket text NOT NULL,
    shared_by text NOT NULL,
    name text NOT NULL,
    tenant text,
    tat timestamp with time zone NOT NULL,
    closed_until timestamp with time zone,
    given bigint DEFAULT 0 NOT NULL,
    used_at timestamp with time zone NOT NULL
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE VIEW toolfleet.limits AS
 SELECT r.name,
    r.shared_by,
    r.tools,
    NULLIF(split_part(b.tenant, '/'::text, 1), ''::text) AS tenant,
    r.calls,
    r.per_ms,
    r.burst,
    r.control_id,
        CASE
            WHEN (n.next_at > n.at) THEN n.next_at
            ELSE NULL::timestamp with time zone
        END AS next_start_at,
        CASE
            WHEN (b.closed_until > n.at) THEN b.closed_until
            ELSE NULL::timestamp with time zone
        END AS closed_until,
    COALESCE(b.given, (0)::bigint) AS starts,
    b.used_at,
    NULLIF(split_part(b.tenant, '/'::text, 2), ''::text) AS key
   FROM ((( SELECT r_1.name,
            r_1.shared_by,
            array_agg(v.tool ORDER BY v.tool) AS tools,
            min(r_1.calls) AS calls,
            min(r_1.per_ms) AS per_ms,
            min(r_1.burst) AS burst,
            min(r_1.step_us) AS step_us,
            min(r_1.control_id) AS control_id
           FROM (( SELECT DISTINCT t.tool
                   FROM toolfleet.tool_versions t
                  WHERE (t.rate_limit IS NOT NULL)) v
             CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r_1(shared_by, name, calls, per_ms, burst, step_us, control_id))
          GROUP BY r_1.name, r_1.shared_by) r
     LEFT JOIN toolfleet.rate_buckets b ON (((b.shared_by = r.shared_by) AND (b.name = r.name))))
     CROSS JOIN LATERAL ( SELECT m.at,
            (toolfleet.rate_base(b.tat, b.closed_until, m.at, r.step_us, r.burst) - ((((r.burst - 1) * r.step_us))::double precision * '00:00:00.000001'::interval)) AS next_at
           FROM ( SELECT clock_timestamp() AS at
                 OFFSET 0) m) n);

CREATE VIEW toolfleet.marks AS
 SELECT call_marks.call_id,
    call_marks.what,
    call_marks.at,
    call_marks.actor,
    call_marks.role,
    call_marks.new_call_id,
    call_marks.note,
    call_marks.bulk_name
   FROM toolfleet.call_marks;

CREATE TABLE toolfleet.mcp_server_versions (
    server text NOT NULL,
    version integer NOT NULL,
    manifest json NOT NULL,
    manifest_hash bytea NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    applied_by text NOT NULL,
    CONSTRAINT mcp_server_versions_version_check CHECK ((version > 0))
);

CREATE VIEW toolfleet.mcp_servers AS
 SELECT v.server,
    v.version,
    (v.version = max(v.version) OVER (PARTITION BY v.server)) AS current,
    ( SELECT json_object_keys((v.manifest -> 'transport'::text)) AS json_object_keys
         LIMIT 1) AS transport,
    (v.manifest ->> 'trust'::text) AS trust,
    (v.manifest ->> 'on_change'::text) AS on_change,
    (v.manifest ->> 'queue'::text) AS queue,
    v.manifest,
    v.applied_at,
    v.applied_by
   FROM toolfleet.mcp_server_versions v;

CREATE TABLE toolfleet.model_requests (
    call_id uuid NOT NULL,
    request_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    attempt integer NOT NULL,
    tenant text NOT NULL,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    session text,
    run text,
    route text NOT NULL,
    model_asked text NOT NULL,
    kind text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    model_answered text,
    first_token_ms bigint,
    run_ms bigint,
    input_tokens bigint,
    cached_input_tokens bigint,
    cache_write_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    estimated boolean,
    cost numeric,
    currency text,
    finish text,
    code text,
    misconfigured_status smallint,
    CONSTRAINT model_requests_check CHECK (((cost IS NULL) = (currency IS NULL))),
    CONSTRAINT model_requests_kind_check CHECK ((kind = ANY (ARRAY['answer'::text, 'summary'::text]))),
    CONSTRAINT model_requests_model_answered_check CHECK ((length(model_answered) <= 200))
)
PARTITION BY RANGE (call_id);

CREATE VIEW toolfleet.model_calls AS
 SELECT m.call_id,
    m.attempt_id,
    m.attempt,
    m.tenant,
    m.tool,
    m.tool_version,
    m.session,
    m.run,
    m.route,
    m.model_asked,
    m.model_answered,
    m.kind,
    m.started_at,
    m.first_token_ms,
    m.run_ms,
    m.input_tokens,
    m.cached_input_tokens,
    m.cache_write_tokens,
    m.output_tokens,
    m.reasoning_tokens,
    m.estimated,
    m.cost,
    m.currency,
    m.finish,
        CASE
            WHEN (m.run_ms IS NULL) THEN 'unknown'::text
            ELSE m.code
        END AS code,
    m.request_id,
    m.misconfigured_status
   FROM toolfleet.model_requests m;

CREATE TABLE toolfleet.model_requests_default (
    call_id uuid NOT NULL,
    request_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    attempt integer NOT NULL,
    tenant text NOT NULL,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    session text,
    run text,
    route text NOT NULL,
    model_asked text NOT NULL,
    kind text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    model_answered text,
    first_token_ms bigint,
    run_ms bigint,
    input_tokens bigint,
    cached_input_tokens bigint,
    cache_write_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    estimated boolean,
    cost numeric,
    currency text,
    finish text,
    code text,
    misconfigured_status smallint,
    CONSTRAINT model_requests_check CHECK (((cost IS NULL) = (currency IS NULL))),
    CONSTRAINT model_requests_kind_check CHECK ((kind = ANY (ARRAY['answer'::text, 'summary'::text]))),
    CONSTRAINT model_requests_model_answered_check CHECK ((length(model_answered) <= 200))
)
WITH (fillfactor='60');

CREATE TABLE toolfleet.model_spend (
    tenant text NOT NULL,
    tool text NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    currency text NOT NULL,
    backend integer NOT NULL,
    day date NOT NULL,
    calls bigint DEFAULT 0 NOT NULL,
    tokens bigint DEFAULT 0 NOT NULL,
    cost numeric DEFAULT 0 NOT NULL,
    CONSTRAINT model_spend_scope_check CHECK ((scope = ANY (ARRAY['run'::text, 'tenant_day'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE toolfleet.open_counts (
    tenant text NOT NULL,
    backend integer NOT NULL,
    n bigint NOT NULL,
    generation bigint DEFAULT (((1000)::double precision * date_part('epoch'::text, clock_timestamp())))::bigint NOT NULL,
    changes integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='40', vacuum_truncate=off, autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='-1');

CREATE TABLE toolfleet.policy_locks (
    tenant text NOT NULL,
    scope text NOT NULL,
    label text NOT NULL,
    tool text NOT NULL,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT policy_locks_scope_check CHECK ((scope = ANY (ARRAY['run'::text, 'session'::text])))
);

CREATE TABLE toolfleet.prefix_takeovers (
    takeover_id uuid DEFAULT gen_random_uuid() NOT NULL,
    asked_at timestamp with time zone DEFAULT now() NOT NULL,
    taken_at timestamp with time zone,
    prefix text NOT NULL,
    former_ledger_id uuid NOT NULL,
    former_place text,
    taken_by text NOT NULL,
    note text NOT NULL
);

CREATE TABLE toolfleet.retry_reservations (
    call_id uuid NOT NULL,
    name text,
    retry uuid NOT NULL,
    run uuid NOT NULL,
    shared boolean DEFAULT false NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT retry_reservations_name_check CHECK (((length(name) >= 1) AND (length(name) <= 128)))
);

CREATE VIEW toolfleet.retries_under_way AS
 SELECT r.call_id,
    f.tenant,
    f.tool,
    r.name,
    r.at,
        CASE
            WHEN (r.at <= (now() - '23:00:00'::interval)) THEN 'unsure'::text
            ELSE 'under_way'::text
        END AS state
   FROM (toolfleet.retry_reservations r
     JOIN toolfleet.finished_calls f ON ((f.call_id = r.call_id)))
  WHERE (NOT (EXISTS ( SELECT
           FROM toolfleet.call_marks m
          WHERE (m.call_id = r.call_id))));

CREATE TABLE toolfleet.run_times (
    tool text NOT NULL,
    version integer NOT NULL,
    hour timestamp with time zone NOT NULL,
    limit_ms bigint NOT NULL,
    took_ms bigint NOT NULL,
    cut_off boolean NOT NULL,
    count bigint NOT NULL
);

CREATE TABLE toolfleet.tool_slots (
    tool text NOT NULL,
    slot integer NOT NULL,
    call_id uuid,
    attempt_id uuid,
    CONSTRAINT tool_slots_slot_check CHECK (((slot >= 1) AND (slot <= 1000)))
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE VIEW toolfleet.slots AS
 SELECT s.tool,
    s.slot,
    s.call_id,
    s.attempt_id,
    (o.state)::text AS state,
    COALESCE(w.name, (o.worker_id)::text) AS worker,
    o.attempt_started_at AS since,
    o.attempt_until
   FROM ((toolfleet.tool_slots s
     JOIN toolfleet.open_calls o ON (((o.call_id = s.call_id) AND (o.attempt_id = s.attempt_id))))
     LEFT JOIN toolfleet.worker_processes w USING (worker_id))
  WHERE ((o.state = 'running'::toolfleet.call_state) OR ((o.state = 'in_doubt'::toolfleet.call_state) AND (o.attempt_until > now())));

CREATE TABLE toolfleet.summaries (
    tenant text NOT NULL,
    tool text NOT NULL,
    hash bytea NOT NULL,
    text text NOT NULL,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT summaries_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT summaries_text_check CHECK (((text <> ''::text) AND (octet_length(text) <= 65536)))
);

CREATE TABLE toolfleet.todo_items (
    tenant text NOT NULL,
    session text NOT NULL,
    number integer NOT NULL,
    title text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    rev integer DEFAULT 0 NOT NULL,
    added_at timestamp with time zone DEFAULT now() NOT NULL,
    added_by uuid NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    changed_by uuid NOT NULL,
    CONSTRAINT todo_items_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'in_progress'::text, 'completed'::text, 'cancelled'::text]))),
    CONSTRAINT todo_items_title_check CHECK (((char_length(title) >= 1) AND (char_length(title) <= 500)))
)
WITH (fillfactor='80');

CREATE TABLE toolfleet.todo_lists (
    tenant text NOT NULL,
    session text NOT NULL,
    next_number integer DEFAULT 1 NOT NULL,
    calls uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'UTC'::text))::date NOT NULL
)
WITH (fillfactor='50');

CREATE VIEW toolfleet.todos AS
 SELECT i.tenant,
    i.session,
    ('t'::text || i.number) AS id,
    i.title,
    i.status,
    i.rev,
    i.added_at,
    i.added_by,
    i.changed_at,
    i.changed_by,
    i.number
   FROM toolfleet.todo_items i;

CREATE VIEW toolfleet.token_hashes AS
 SELECT t.token_id,
    t.name,
    t.hash,
    t.tenant,
    t.scopes,
    t.tools,
    t.expires_at
   FROM toolfleet.access_tokens t
  WHERE ((t.revoked_at IS NULL) AND ((t.expires_at IS NULL) OR (t.expires_at > clock_timestamp())));

CREATE TABLE toolfleet.token_secret (
    only_row boolean DEFAULT true NOT NULL,
    secret bytea DEFAULT (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) NOT NULL,
    completion bytea DEFAULT (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) NOT NULL,
    CONSTRAINT token_secret_only_row_check CHECK (only_row)
);

CREATE VIEW toolfleet.tokens AS
 SELECT t.token_id,
    t.name,
    t.tenant,
    t.scopes,
    t.tools,
        CASE
            WHEN (t.revoked_at IS NOT NULL) THEN 'revoked'::text
            WHEN (t.expires_at <= clock_timestamp()) THEN 'expired'::text
            ELSE 'live'::text
        END AS state,
    t.note,
    t.created_by,
    t.role,
    t.created_at,
    t.expires_at,
    t.revoked_at,
    t.revoked_by,
    t.revoked_role,
    t.revoke_note
   FROM toolfleet.access_tokens t;

CREATE TABLE toolfleet.tool_retirements (
    tool text NOT NULL,
    version integer NOT NULL,
    rev bigint NOT NULL,
    retired_at timestamp with time zone DEFAULT now() NOT NULL,
    retired_by text NOT NULL,
    note text NOT NULL
);

CREATE VIEW toolfleet.tools AS
 SELECT v.tool,
    v.version,
    (v.version = max(v.version) OVER (PARTITION BY v.tool)) AS current,
    (v.manifest ->> 'effect'::text) AS effect,
    (v.manifest ->> 'queue'::text) AS queue,
    v.manifest,
    encode(v.schema_hash, 'hex'::text) AS schema_hash,
    v.applied_at,
    v.applied_by,
    v.concurrency,
    r.retired_at,
    r.retired_by,
    r.note AS retired_note
   FROM (toolfleet.tool_versions v
     LEFT JOIN LATERAL ( SELECT t.retired_at,
            t.retired_by,
            t.note
           FROM toolfleet.tool_retirements t
          WHERE ((t.tool = v.tool) AND (t.version >= v.version))
          ORDER BY t.version
         LIMIT 1) r ON (true));

CREATE VIEW toolfleet.waiting AS
 SELECT o.call_id,
    o.tenant,
    o.tool,
    o.tool_version,
    (o.effect)::text AS effect,
    o.awaiting,
    COALESCE(
        CASE
            WHEN (o.awaiting = ANY (ARRAY['completion'::text, 'input'::text])) THEN ( SELECT n.at
               FROM toolfleet.call_notes n
              WHERE ((n.call_id = o.call_id) AND (n.to_state = 'awaiting_client'::toolfleet.call_state))
              ORDER BY n.rev DESC
             LIMIT 1)
            ELSE NULL::timestamp with time zone
        END, o.attempt_started_at, o.accepted_at) AS since,
    o.due_at AS until,
    o.session,
    o.run,
        CASE
            WHEN (v.sensitive IS NULL) THEN o.args
            ELSE toolfleet.shown(o.args, v.sensitive)
        END AS args,
        CASE
            WHEN (o.awaiting = 'approval'::text) THEN toolfleet.shown_hash(o.args_hash, o.approval)
            ELSE NULL::text
        END AS args_hash,
        CASE
            WHEN (o.awaiting = 'approval'::text) THEN (o.approval ->> 'by'::text)
            ELSE NULL::text
        END AS approval_by,
        CASE
            WHEN (o.awaiting = 'approval'::text) THEN ((o.approval ->> 'count'::text))::integer
            ELSE NULL::integer
        END AS approvals_needed,
        CASE
            WHEN (o.awaiting = 'approval'::text) THEN (( SELECT count(*) AS count
               FROM toolfleet.call_decisions d
              WHERE ((d.call_id = o.call_id) AND (d.decision = 'approve'::text))))::integer
            ELSE NULL::integer
        END AS approvals,
        CASE
            WHEN (o.awaiting = 'approval'::text) THEN (o.approval ->> 'reason'::text)
            ELSE NULL::text
        END AS approval_reason,
        CASE
            WHEN ((o.awaiting = 'input'::text) AND (v.sensitive IS NULL)) THEN (o.asked -> 'requests'::text)
            ELSE NULL::json
        END AS requests
   FROM (toolfleet.open_calls o
     LEFT JOIN toolfleet.tool_versions v ON (((v.tool = o.tool) AND (v.version = o.tool_version))))
  WHERE (o.state = 'awaiting_client'::toolfleet.call_state);

CREATE VIEW toolfleet.workers AS
 SELECT w.worker_id,
    w.name,
    w.host,
    w.pid,
    w.version,
    (w.state)::text AS state,
    w.queues,
    w.concurrency,
    w.beat_at,
    w.started_at,
    w.ended_at,
    w.ended_by,
    w.fenced_at,
    w.fenced_by,
    w.fence_note,
    ( SELECT count(*) AS count
           FROM toolfleet.open_calls o
          WHERE ((o.worker_id = w.worker_id) AND (o.state = 'running'::toolfleet.call_state))) AS running,
    COALESCE(w.cannot_run, '[]'::json) AS cannot_run,
    w.sandbox,
    COALESCE(w.interceptors, '[]'::json) AS interceptors
   FROM toolfleet.worker_processes w;
ALTER TABLE ONLY toolfleet.call_notes ATTACH PARTITION toolfleet.call_notes_default DEFAULT;
ALTER TABLE ONLY toolfleet.ended_attempts ATTACH PARTITION toolfleet.ended_attempts_default DEFAULT;
ALTER TABLE ONLY toolfleet.finished_calls ATTACH PARTITION toolfleet.finished_calls_default DEFAULT;
ALTER TABLE ONLY toolfleet.model_requests ATTACH PARTITION toolfleet.model_requests_default DEFAULT;
ALTER TABLE ONLY toolfleet.access_tokens
    ADD CONSTRAINT access_tokens_hash_key UNIQUE (hash);
ALTER TABLE ONLY toolfleet.access_tokens
    ADD CONSTRAINT access_tokens_pkey PRIMARY KEY (token_id);
ALTER TABLE ONLY toolfleet.breaker_states
    ADD CONSTRAINT breaker_states_pkey PRIMARY KEY (breaker_id);
ALTER TABLE ONLY toolfleet.breaker_states
    ADD CONSTRAINT breaker_states_tool_target_key UNIQUE (tool, target);
ALTER TABLE ONLY toolfleet.breaker_windows
    ADD CONSTRAINT breaker_windows_pkey PRIMARY KEY (tool, target, worker_id, second);
ALTER TABLE ONLY toolfleet.bulk_retries
    ADD CONSTRAINT bulk_retries_pkey PRIMARY KEY (name);
ALTER TABLE ONLY toolfleet.call_files
    ADD CONSTRAINT call_files_pkey PRIMARY KEY (call_id, "position");
ALTER TABLE ONLY toolfleet.call_marks
    ADD CONSTRAINT call_marks_once UNIQUE NULLS NOT DISTINCT (call_id, what, new_call_id);
ALTER TABLE ONLY toolfleet.call_notes
    ADD CONSTRAINT call_notes_pkey PRIMARY KEY (call_id, rev);
ALTER TABLE ONLY toolfleet.call_notes_default
    ADD CONSTRAINT call_notes_default_pkey PRIMARY KEY (call_id, rev);
ALTER TABLE ONLY toolfleet.control_changes
    ADD CONSTRAINT control_changes_pkey PRIMARY KEY (rev);
ALTER TABLE ONLY toolfleet.ended_attempts
    ADD CONSTRAINT ended_attempts_pkey PRIMARY KEY (call_id, attempt_id, late);
ALTER TABLE ONLY toolfleet.ended_attempts_default
    ADD CONSTRAINT ended_attempts_default_pkey PRIMARY KEY (call_id, attempt_id, late);
ALTER TABLE ONLY toolfleet.file_chunks
    ADD CONSTRAINT file_chunks_pkey PRIMARY KEY (file_id, at);
ALTER TABLE ONLY toolfleet.file_url_keys
    ADD CONSTRAINT file_url_keys_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY toolfleet.finished_calls
    ADD CONSTRAINT finished_calls_pkey PRIMARY KEY (call_id);
ALTER TABLE ONLY toolfleet.finished_calls_default
    ADD CONSTRAINT finished_calls_default_pkey PRIMARY KEY (call_id);
ALTER TABLE toolfleet.finished_calls
    ADD CONSTRAINT finished_calls_legal_move CHECK (((from_state = ANY ('{queued,running,in_doubt,awaiting_client}'::toolfleet.call_state[])) AND (state = ANY ('{succeeded,failed,cancelled,expired}'::toolfleet.call_state[])) AND ((from_state <> 'in_doubt'::toolfleet.call_state) OR (state = ANY ('{succeeded,failed}'::toolfleet.call_state[]))))) NOT VALID;
ALTER TABLE ONLY toolfleet.fleet
    ADD CONSTRAINT fleet_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY toolfleet.happenings
    ADD CONSTRAINT happenings_pkey PRIMARY KEY (tenant, scope, label, tool, what, call_id);
ALTER TABLE ONLY toolfleet.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (key_hash, tenant);
ALTER TABLE ONLY toolfleet.interceptor_stats
    ADD CONSTRAINT interceptor_stats_pkey PRIMARY KEY (worker_id, name);
ALTER TABLE ONLY toolfleet.kept_answers
    ADD CONSTRAINT kept_answers_pkey PRIMARY KEY (key);
ALTER TABLE ONLY toolfleet.kept_files
    ADD CONSTRAINT kept_files_pkey PRIMARY KEY (file_id);
ALTER TABLE ONLY toolfleet.live_controls
    ADD CONSTRAINT live_controls_pkey PRIMARY KEY (control_id);
ALTER TABLE ONLY toolfleet.mcp_server_versions
    ADD CONSTRAINT mcp_server_versions_pkey PRIMARY KEY (server, version);
ALTER TABLE ONLY toolfleet.model_requests
    ADD CONSTRAINT model_requests_pkey PRIMARY KEY (call_id, request_id);
ALTER TABLE ONLY toolfleet.model_requests_default
    ADD CONSTRAINT model_requests_default_pkey PRIMARY KEY (call_id, request_id);
ALTER TABLE ONLY toolfleet.model_spend
    ADD CONSTRAINT model_spend_pkey PRIMARY KEY (tenant, tool, scope, key, currency, backend);
ALTER TABLE toolfleet.open_calls
    ADD CONSTRAINT open_calls_approval CHECK (((awaiting <> 'approval'::text) OR (approval IS NOT NULL))) NOT VALID;
ALTER TABLE toolfleet.open_calls
    ADD CONSTRAINT open_calls_awaiting CHECK (((state = 'awaiting_client'::toolfleet.call_state) = (awaiting IS NOT NULL))) NOT VALID;
ALTER TABLE ONLY toolfleet.open_calls
    ADD CONSTRAINT open_calls_pkey PRIMARY KEY (call_id);
ALTER TABLE ONLY toolfleet.open_counts
    ADD CONSTRAINT open_counts_pkey PRIMARY KEY (tenant, backend, generation);
ALTER TABLE ONLY toolfleet.policy_locks
    ADD CONSTRAINT policy_locks_pkey PRIMARY KEY (tenant, scope, label, tool);
ALTER TABLE ONLY toolfleet.prefix_takeovers
    ADD CONSTRAINT prefix_takeovers_pkey PRIMARY KEY (takeover_id);
ALTER TABLE ONLY toolfleet.rate_buckets
    ADD CONSTRAINT rate_buckets_pkey PRIMARY KEY (bucket);
ALTER TABLE ONLY toolfleet.retry_reservations
    ADD CONSTRAINT retry_reservations_pkey PRIMARY KEY (call_id);
ALTER TABLE ONLY toolfleet.run_times
    ADD CONSTRAINT run_times_pkey PRIMARY KEY (tool, version, hour, limit_ms, took_ms, cut_off);
ALTER TABLE ONLY toolfleet.summaries
    ADD CONSTRAINT summaries_pkey PRIMARY KEY (tenant, tool, hash);
ALTER TABLE ONLY toolfleet.timeout_changes
    ADD CONSTRAINT timeout_changes_pkey PRIMARY KEY (tool, version, at);
ALTER TABLE ONLY toolfleet.timeout_looks
    ADD CONSTRAINT timeout_looks_pkey PRIMARY KEY (tool, version);
ALTER TABLE ONLY toolfleet.todo_items
    ADD CONSTRAINT todo_items_pkey PRIMARY KEY (tenant, session, number);
ALTER TABLE ONLY toolfleet.todo_lists
    ADD CONSTRAINT todo_lists_pkey PRIMARY KEY (tenant, session);
ALTER TABLE ONLY toolfleet.token_secret
    ADD CONSTRAINT token_secret_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY toolfleet.tool_retirements
    ADD CONSTRAINT tool_retirements_pkey PRIMARY KEY (tool, version);
ALTER TABLE ONLY toolfleet.tool_retirements
    ADD CONSTRAINT tool_retirements_rev_key UNIQUE (rev);
ALTER TABLE ONLY toolfleet.tool_slots
    ADD CONSTRAINT tool_slots_pkey PRIMARY KEY (tool, slot);
ALTER TABLE ONLY toolfleet.tool_versions
    ADD CONSTRAINT tool_versions_pkey PRIMARY KEY (tool, version);
ALTER TABLE ONLY toolfleet.tool_versions
    ADD CONSTRAINT tool_versions_rev_key UNIQUE (rev);
ALTER TABLE ONLY toolfleet.worker_processes
    ADD CONSTRAINT worker_processes_pkey PRIMARY KEY (worker_id);

CREATE UNIQUE INDEX call_decisions_once ON toolfleet.call_decisions USING btree (call_id, person, decision);

CREATE INDEX call_files_of_file ON toolfleet.call_files USING btree (file_id, call_id);

CREATE INDEX call_marks_abandoned ON toolfleet.call_marks USING btree (call_id) WHERE (what = 'abandoned'::text);

CREATE INDEX call_marks_new_call ON toolfleet.call_marks USING btree (new_call_id) WHERE (new_call_id IS NOT NULL);

CREATE INDEX finished_calls_code ON ONLY toolfleet.finished_calls USING btree (((error ->> 'code'::text)), call_id) WHERE (error IS NOT NULL);

CREATE INDEX finished_calls_default_code ON toolfleet.finished_calls_default USING btree (((error ->> 'code'::text)), call_id) WHERE (error IS NOT NULL);

CREATE INDEX finished_calls_run ON ONLY toolfleet.finished_calls USING btree (run, call_id) WHERE (run IS NOT NULL);

CREATE INDEX finished_calls_default_run ON toolfleet.finished_calls_default USING btree (run, call_id) WHERE (run IS NOT NULL);

CREATE INDEX finished_calls_session ON ONLY toolfleet.finished_calls USING btree (session, call_id) WHERE (session IS NOT NULL);

CREATE INDEX finished_calls_default_session ON toolfleet.finished_calls_default USING btree (session, call_id) WHERE (session IS NOT NULL);

CREATE INDEX happenings_call ON toolfleet.happenings USING btree (call_id);

CREATE INDEX idempotency_keys_call ON toolfleet.idempotency_keys USING brin (call_id) WITH (pages_per_range='32', autosummarize='on');

CREATE INDEX kept_answers_of_tool ON toolfleet.kept_answers USING btree (tool, tenant);

CREATE INDEX kept_answers_over ON toolfleet.kept_answers USING btree (keep_until);

CREATE INDEX kept_files_expiry ON toolfleet.kept_files USING btree (expires_at);

CREATE INDEX kept_files_of_tenant ON toolfleet.kept_files USING btree (tenant, file_id) INCLUDE (bytes);

CREATE UNIQUE INDEX live_controls_scope ON toolfleet.live_controls USING btree (kind, tool, queue, tenant, pointer, value, subject, (((kind = 'limit'::text) AND (for_ms IS NOT NULL)))) NULLS NOT DISTINCT;

CREATE INDEX model_spend_day ON toolfleet.model_spend USING btree (scope, day);

CREATE INDEX open_calls_admitted ON toolfleet.open_calls USING btree (line) WHERE ((NOT held) AND (line ~~ 'tool/%'::text));

CREATE INDEX open_calls_due ON toolfleet.open_calls USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX open_calls_held ON toolfleet.open_calls USING btree (line, tenant, priority, accepted_at, call_id) WHERE held;

CREATE INDEX open_calls_probes ON toolfleet.open_calls USING btree (probe_of) WHERE (probe_of IS NOT NULL);

CREATE INDEX open_calls_under_way ON toolfleet.open_calls USING btree (line, tenant) WHERE ((NOT held) AND (line ~~ 'slots/%'::text));

CREATE INDEX summaries_used ON toolfleet.summaries USING btree (used_at);

CREATE INDEX todo_lists_day ON toolfleet.todo_lists USING btree (day);
ALTER INDEX toolfleet.call_notes_pkey ATTACH PARTITION toolfleet.call_notes_default_pkey;
ALTER INDEX toolfleet.ended_attempts_pkey ATTACH PARTITION toolfleet.ended_attempts_default_pkey;
ALTER INDEX toolfleet.finished_calls_code ATTACH PARTITION toolfleet.finished_calls_default_code;
ALTER INDEX toolfleet.finished_calls_pkey ATTACH PARTITION toolfleet.finished_calls_default_pkey;
ALTER INDEX toolfleet.finished_calls_run ATTACH PARTITION toolfleet.finished_calls_default_run;
ALTER INDEX toolfleet.finished_calls_session ATTACH PARTITION toolfleet.finished_calls_default_session;
ALTER INDEX toolfleet.model_requests_pkey ATTACH PARTITION toolfleet.model_requests_default_pkey;

CREATE TRIGGER approvals_are_given AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW WHEN (((old.awaiting = 'approval'::text) AND (new.state <> 'in_doubt'::toolfleet.call_state) AND (new.awaiting IS DISTINCT FROM 'approval'::text))) EXECUTE FUNCTION toolfleet.require_approval();

CREATE TRIGGER close_breakers_let_go AFTER DELETE ON toolfleet.live_controls FOR EACH ROW WHEN ((old.kind = 'breaker'::text)) EXECUTE FUNCTION toolfleet.close_forced_breakers();

CREATE TRIGGER close_forced_breakers AFTER INSERT ON toolfleet.live_controls FOR EACH ROW WHEN ((new.kind = 'breaker'::text)) EXECUTE FUNCTION toolfleet.close_forced_breakers();

CREATE TRIGGER count_closed AFTER DELETE ON toolfleet.open_calls REFERENCING OLD TABLE AS closed FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.count_closed();

CREATE TRIGGER count_opened AFTER INSERT ON toolfleet.open_calls REFERENCING NEW TABLE AS opened FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.count_opened();

CREATE TRIGGER doubts_are_settled AFTER DELETE ON toolfleet.open_calls FOR EACH ROW WHEN ((old.state = 'in_doubt'::toolfleet.call_state)) EXECUTE FUNCTION toolfleet.refuse_settling();

CREATE TRIGGER filled_once BEFORE UPDATE ON toolfleet.model_requests FOR EACH ROW WHEN ((old.run_ms IS NOT NULL)) EXECUTE FUNCTION toolfleet.refuse_change_of_history();

CREATE TRIGGER insert_only BEFORE DELETE OR UPDATE ON toolfleet.call_decisions FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_decisions();

CREATE TRIGGER insert_only BEFORE DELETE OR UPDATE ON toolfleet.call_marks FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_marks();

CREATE TRIGGER insert_only BEFORE DELETE OR UPDATE ON toolfleet.call_notes FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_history();

CREATE TRIGGER insert_only BEFORE DELETE OR UPDATE ON toolfleet.control_changes FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_controls();

CREATE TRIGGER insert_only BEFORE DELETE OR UPDATE ON toolfleet.ended_attempts FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_history();

CREATE TRIGGER insert_only BEFORE DELETE OR UPDATE ON toolfleet.finished_calls FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_history();

CREATE TRIGGER legal_moves AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW WHEN (((old.state <> new.state) AND ((old.state <> ALL ('{queued,running,awaiting_client}'::toolfleet.call_state[])) OR (new.state <> ALL ('{queued,running,in_doubt,awaiting_client}'::toolfleet.call_state[])) OR ((new.state = 'awaiting_client'::toolfleet.call_state) AND ((old.state <> 'running'::toolfleet.call_state) OR (new.awaiting <> ALL ('{completion,input}'::text[])))) OR ((old.state = 'awaiting_client'::toolfleet.call_state) AND (new.state <> 'in_doubt'::toolfleet.call_state) AND ((new.state <> 'queued'::toolfleet.call_state) OR (old.awaiting = 'client'::text)))))) EXECUTE FUNCTION toolfleet.refuse_illegal_move();

CREATE TRIGGER not_deleted BEFORE DELETE ON toolfleet.model_requests FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_history();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.access_tokens FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.call_decisions FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.call_marks FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.call_notes FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.call_notes_default FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.control_changes FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.ended_attempts FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.ended_attempts_default FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.finished_calls FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.finished_calls_default FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.model_requests FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER not_emptied BEFORE TRUNCATE ON toolfleet.model_requests_default FOR EACH STATEMENT EXECUTE FUNCTION toolfleet.refuse_truncation();

CREATE TRIGGER notes_accepted AFTER INSERT ON toolfleet.open_calls FOR EACH ROW WHEN ((new.watched AND (new.awaiting = 'client'::text))) EXECUTE FUNCTION toolfleet.note_happening();

CREATE TRIGGER notes_ended AFTER DELETE ON toolfleet.open_calls FOR EACH ROW WHEN (old.watched) EXECUTE FUNCTION toolfleet.note_happening();

CREATE TRIGGER notes_moved AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW WHEN (((new.watched IS TRUE) AND ((old.watched IS NOT TRUE) OR ((((old.state = ANY (ARRAY['running'::toolfleet.call_state, 'in_doubt'::toolfleet.call_state])) OR (old.awaiting = ANY (ARRAY['client'::text, 'completion'::text])) OR old.effect_unknown) IS TRUE) <> (((new.state = ANY (ARRAY['running'::toolfleet.call_state, 'in_doubt'::toolfleet.call_state])) OR (new.awaiting = ANY (ARRAY['client'::text, 'completion'::text])) OR new.effect_unknown) IS TRUE))))) EXECUTE FUNCTION toolfleet.note_happening();

CREATE TRIGGER opens_buckets AFTER INSERT OR UPDATE ON toolfleet.live_controls FOR EACH ROW WHEN ((new.kind = 'limit'::text)) EXECUTE FUNCTION toolfleet.open_buckets_of_limit();

CREATE TRIGGER person_is_named BEFORE INSERT ON toolfleet.call_decisions FOR EACH ROW EXECUTE FUNCTION toolfleet.name_person();

CREATE TRIGGER refuses_lost_breaker AFTER INSERT ON toolfleet.tool_versions FOR EACH ROW WHEN (((new.manifest -> 'breaker'::text) IS NULL)) EXECUTE FUNCTION toolfleet.refuse_lost_breaker();

CREATE TRIGGER refuses_second_name AFTER INSERT ON toolfleet.tool_versions FOR EACH ROW WHEN ((new.rate_limit IS NOT NULL)) EXECUTE FUNCTION toolfleet.refuse_second_limit();

CREATE TRIGGER renews_buckets AFTER INSERT ON toolfleet.live_controls FOR EACH ROW WHEN ((new.kind = 'limit'::text)) EXECUTE FUNCTION toolfleet.renew_buckets_of_limit();

CREATE TRIGGER renews_buckets AFTER INSERT ON toolfleet.tool_versions FOR EACH ROW WHEN ((new.rate_limit IS NOT NULL)) EXECUTE FUNCTION toolfleet.renew_buckets_of_version();

CREATE TRIGGER renews_buckets_again AFTER DELETE ON toolfleet.live_controls FOR EACH ROW WHEN ((old.kind = 'limit'::text)) EXECUTE FUNCTION toolfleet.renew_buckets_of_limit();

CREATE TRIGGER renews_buckets_on_change AFTER UPDATE ON toolfleet.live_controls FOR EACH ROW WHEN ((new.kind = 'limit'::text)) EXECUTE FUNCTION toolfleet.renew_buckets_of_limit();

CREATE TRIGGER revoked_only BEFORE DELETE OR UPDATE ON toolfleet.access_tokens FOR EACH ROW EXECUTE FUNCTION toolfleet.refuse_change_of_tokens();

CREATE TRIGGER watches_tools AFTER INSERT ON toolfleet.tool_versions FOR EACH ROW EXECUTE FUNCTION toolfleet.watch_tools();
ALTER TABLE ONLY toolfleet.file_chunks
    ADD CONSTRAINT file_chunks_file_id_fkey FOREIGN KEY (file_id) REFERENCES toolfleet.kept_files(file_id) ON DELETE CASCADE;
ALTER TABLE ONLY toolfleet.interceptor_stats
    ADD CONSTRAINT interceptor_stats_worker_id_fkey FOREIGN KEY (worker_id) REFERENCES toolfleet.worker_processes(worker_id) ON DELETE CASCADE;
ALTER TABLE ONLY toolfleet.todo_items
    ADD CONSTRAINT todo_items_tenant_session_fkey FOREIGN KEY (tenant, session) REFERENCES toolfleet.todo_lists(tenant, session) ON DELETE CASCADE;
