-- Why: equal calls of a read tool with a `cache` are one run: while one call fetches an answer the others follow it, and for the
-- tool's ttl the answer ends later ones without an attempt. The history is the store: a row here names the finished call that has the
-- answer, and no answer stands here. `look` alone decides which call fetches, under the lock of its row.
-- Locks: none beside the catalog's.
-- The release before survives it and does not know it: its workers do not read manifests with a `cache`, and its dispatchers leave calls
-- in the lines of leaders alone. Apply such manifests after every dispatcher and worker is upgraded; before the release before is taken
-- again, wait until no call has held_why = 'follows'.

-- One row for each answer that is fetched or counts. Its key is of tenant, tool, version, language and arguments: a tool is told the
-- language.
CREATE TABLE toolfleet.kept_answers (
    key bytea PRIMARY KEY,
    tenant text NOT NULL,
    tool text NOT NULL,
    version integer NOT NULL,
    -- The call that fetches the answer, or was the last to do so.
    leader uuid NOT NULL,
    -- The finished call that has the answer, its size, and until when it counts.
    call_id uuid,
    bytes integer,
    fresh_until timestamptz,
    -- How many leaders in turn have ended without an answer; until when equal calls are runs of their own, because two have, or because
    -- the answer is too large to be kept.
    failures integer NOT NULL DEFAULT 0,
    apart_until timestamptz,
    -- From then on the row says nothing any more.
    keep_until timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX kept_answers_of_tool ON toolfleet.kept_answers (tool, tenant);
CREATE INDEX kept_answers_over ON toolfleet.kept_answers (keep_until);

-- Names have no line breaks, so no two calls that differ have one key.
CREATE FUNCTION toolfleet.answer_key(tenant text, tool text, version integer, language text, args_hash bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT sha256(convert_to(tenant || E'\n' || tool || E'\n' || version || E'\n' || language || E'\n', 'UTF8') || args_hash)
$$;

-- The answer of a call that succeeded, for another call to copy, with what callers get in its place; no row: the history does not have it.
CREATE FUNCTION toolfleet.answer_of(call uuid) RETURNS TABLE (result text, preview text) LANGUAGE plpgsql STABLE STRICT ROWS 1 AS $$
BEGIN
    RETURN QUERY SELECT f.result::text, f.preview::text FROM toolfleet.finished_calls f
        WHERE f.call_id = answer_of.call AND f.state = 'succeeded' AND f.result IS NOT NULL;
END $$;

-- What a row says to a call: `hit`; `follow`, its leader is open; `alone`, it is, and equal calls are runs of their own for now; `lead`, that is the
-- call itself; `found`, its leader has ended with an answer that counts, and the row does not say so yet; `large`, with one that is too
-- large to be kept; `failed`, with none; `free`.
CREATE FUNCTION toolfleet.answer_verdict(k toolfleet.kept_answers, call uuid, ttl_ms bigint, OUT verdict text, OUT ended_at timestamptz, OUT size integer)
LANGUAGE plpgsql STABLE SET search_path = toolfleet, pg_temp AS $$
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
            WHEN ended_at + answer_verdict.ttl_ms * interval '1 millisecond' <= clock_timestamp() THEN 'free'
            WHEN size > 262144 THEN 'large'
            ELSE 'found' END;
    END IF;
END $$;

-- What becomes of calls of tools with a cache, at the gate; `ttls_ms`: how long answers of their tools count; `observes`: the call is
-- not put aside behind another one. Verdicts: `hit`, with the call that has the answer and its size; `follow`, with the call that
-- fetches it: the call is held in that one's line now; `lead`: it fetches the answer; `alone`: it has no part in any of that. A call that
-- is not in the answer is not queued, is held, or is locked: its row says what becomes of it.
-- Whatever it reads is one row by its key, so a tenant with many equal calls slows nobody. Only who may have to fetch locks a row, in the
-- order of the keys; so two of these never wait for each other in turn.
CREATE FUNCTION toolfleet.look(calls uuid[], ttls_ms bigint[], observes boolean[])
RETURNS TABLE (call_id uuid, verdict text, other uuid, bytes integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    q record;
    k toolfleet.kept_answers;
    v record;
    aside uuid[] := '{}';
    leaders uuid[] := '{}';
BEGIN
    FOR q IN
        SELECT o.call_id, o.tenant, o.tool, o.tool_version, o.deadline_at, o.attempts, i.ttl_ms, i.observes,
               o.no_store IS TRUE OR o.probe_of IS NOT NULL OR o.effect <> 'read' AS is_alone,
               toolfleet.answer_key(o.tenant, o.tool, o.tool_version, o.language, o.args_hash) AS key
        FROM unnest(look.calls, look.ttls_ms, look.observes) AS i (call_id, ttl_ms, observes)
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
        IF v.verdict IN ('free', 'found', 'large', 'failed') THEN
            INSERT INTO toolfleet.kept_answers (key, tenant, tool, version, leader, keep_until)
            VALUES (q.key, q.tenant, q.tool, q.tool_version, q.call_id,
                    q.deadline_at + q.ttl_ms * interval '1 millisecond' + interval '1 minute')
            ON CONFLICT DO NOTHING;
            -- Whoever looks second sees what the first one decided; a statement of its own, for the leader may have ended while this
            -- one waited for the lock.
            SELECT * INTO k FROM toolfleet.kept_answers a WHERE a.key = q.key FOR UPDATE;
            CONTINUE WHEN NOT FOUND;
            v := toolfleet.answer_verdict(k, q.call_id, q.ttl_ms);
            IF v.verdict = 'found' THEN
                k.call_id := k.leader;
                k.bytes := v.size;
                UPDATE toolfleet.kept_answers a
                SET call_id = k.call_id, bytes = k.bytes, failures = 0, apart_until = NULL, fresh_until = v.ended_at + q.ttl_ms * interval '1 millisecond',
                    keep_until = v.ended_at + q.ttl_ms * interval '1 millisecond'
                WHERE a.key = q.key;
                v.verdict := 'hit';
            ELSIF v.verdict IN ('free', 'large', 'failed') THEN
                -- Behind an answer that cannot be kept, and when two in turn have failed, one at a time would take as long as all of them
                -- together. What keeps a target that fails from being asked is a breaker.
                UPDATE toolfleet.kept_answers a
                SET leader = q.call_id,
                    failures = CASE WHEN v.verdict = 'failed' AND a.failures = 0 THEN 1 ELSE 0 END,
                    apart_until = CASE
                        WHEN v.verdict = 'large' THEN v.ended_at + q.ttl_ms * interval '1 millisecond'
                        WHEN v.verdict = 'failed' AND a.failures > 0 THEN clock_timestamp() + interval '10 seconds'
                        ELSE a.apart_until END,
                    keep_until = q.deadline_at + q.ttl_ms * interval '1 millisecond' + interval '1 minute'
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

-- Deletes at most 5000 rows of the answers of a tool, or of a tenant's of them, and returns their number: fewer than 5000, and there
-- are no more. An answer that is fetched meanwhile is not kept, either. `goes_on`: a further step of a purge, which is in the log already.
CREATE FUNCTION toolfleet.purge_answers(tool text, actor text, note text, tenant text DEFAULT NULL, in_tenant text DEFAULT NULL,
    goes_on boolean DEFAULT false)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    n bigint;
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
        WHEN purge_answers.tool IS NULL OR NOT EXISTS (
            SELECT FROM toolfleet.tool_versions v WHERE v.tool = purge_answers.tool) THEN 'there is no such tool' END;
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH gone AS (
        DELETE FROM toolfleet.kept_answers a WHERE a.key IN (
            SELECT k.key FROM toolfleet.kept_answers k
            WHERE k.tool = purge_answers.tool AND (purge_answers.tenant IS NULL OR k.tenant = purge_answers.tenant)
            ORDER BY k.key LIMIT 5000 FOR UPDATE)
        RETURNING 1
    )
    SELECT count(*) INTO n FROM gone;
    IF NOT purge_answers.goes_on THEN
        WITH next AS (SELECT toolfleet.next_control_rev() AS rev)
        INSERT INTO toolfleet.control_changes (rev, change, control_id, kind, tool, tenant, setting, actor, note, role)
        SELECT rev, 'purged', rev, 'purge', purge_answers.tool, purge_answers.tenant, '"answers"', purge_answers.actor, purge_answers.note,
               session_user
        FROM next;
    END IF;
    RETURN n;
END $$;

-- Deletes rows that say nothing any more, at most 5000; returns their number.
CREATE FUNCTION toolfleet.drop_old_answers() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    n bigint;
BEGIN
    WITH gone AS (
        DELETE FROM toolfleet.kept_answers a WHERE a.key IN (
            SELECT k.key FROM toolfleet.kept_answers k WHERE k.keep_until < clock_timestamp()
            ORDER BY k.keep_until LIMIT 5000 FOR UPDATE SKIP LOCKED)
        RETURNING 1
    )
    SELECT count(*) INTO n FROM gone;
    RETURN n;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.answer_key, toolfleet.answer_of, toolfleet.answer_verdict, toolfleet.look, toolfleet.purge_answers,
    toolfleet.drop_old_answers FROM PUBLIC;

CREATE OR REPLACE FUNCTION toolfleet.held_why(held boolean, line text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN NOT held THEN NULL
                WHEN line NOT LIKE '%/%' THEN 'room'
                WHEN line LIKE 'slots/%' THEN 'slots'
                WHEN line LIKE 'tool/%' THEN 'limit'
                WHEN line LIKE 'pause/%' THEN 'pause'
                WHEN line LIKE 'breaker/%' THEN 'breaker'
                WHEN line LIKE 'after/%' THEN 'follows' END
$$;
