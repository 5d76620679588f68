-- Why: a call that an equal one answers cost more than one that runs: a look, a read of its row, an ending of the general kind and a
-- read for its caller, each for itself. Here calls that come together are answered together, by one statement. And who asks a question
-- first is told so without another look at the row that it has just made.
-- Locks: none that a statement waits for.
-- The release before survives it: it knows none of these functions, and no answers are kept for its calls.

-- Inlined where it is used: what it calls is stable, so it may not be called immutable.
CREATE OR REPLACE FUNCTION toolfleet.answer_key(tenant text, tool text, version integer, language text, args_hash bytea) RETURNS bytea
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT sha256(convert_to(tenant || E'\n' || tool || E'\n' || version::text || E'\n' || language || E'\n', 'UTF8') || args_hash)
$$;

-- Ends those of these calls for which an answer of at most so many bytes counts now, and returns what their callers are told; of an
-- answer of which they get more than 64 KiB without it. Calls that have begun, that are probes or that want no answer of others are left alone, and so is a row that another
-- statement has.
--
-- The answer's row is not locked for that: what it says of an answer that is there stays true. Nor is it waited for to remember a new
-- one: whoever asks next finds it again. The settings keep the history's
-- partitions, of which the statistics may say that they are empty, from being read from one end to the other.
CREATE FUNCTION toolfleet.answer_calls(calls uuid[], ttls_ms bigint[], keeps_ms bigint[], bytes_max integer, actor text)
RETURNS TABLE (call_id uuid, rev integer, moved_at timestamptz, state text, tool text, tool_version integer, tenant text,
               session text, dispatcher_id uuid, attempts integer, coercions text, queued_ms bigint, run_ms bigint,
               copied uuid, done_secret uuid, shown text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
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

REVOKE EXECUTE ON FUNCTION toolfleet.answer_calls FROM PUBLIC;

CREATE OR REPLACE FUNCTION toolfleet.look(calls uuid[], ttls_ms bigint[], observes boolean[], keeps_ms bigint[]) RETURNS TABLE(call_id uuid, verdict text, other uuid, bytes integer)
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

-- The statement that ends calls of all kinds does not copy answers any more.
DROP FUNCTION toolfleet.answer_of;
