-- Why: a tool whose target fails may answer with what it answered last, marked as old. That is the answer that its cache keeps, so a
-- row of kept_answers lives as long as an old answer may count, and remembers the last good one when its time is over: an answer that
-- nobody asked for within its ttl was forgotten with the next leader.
-- Locks: none beside the catalog's.
-- The release before survives it: it does not know `look`. Programs between the two releases ask for a `look` that is gone, and ask
-- again until they are upgraded.

CREATE OR REPLACE FUNCTION toolfleet.answer_verdict(k toolfleet.kept_answers, call uuid, ttl_ms bigint, OUT verdict text, OUT ended_at timestamptz, OUT size integer)
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
            WHEN ended_at + answer_verdict.ttl_ms * interval '1 millisecond' <= clock_timestamp() THEN
                -- It counts no more, and is the last good one.
                CASE WHEN size > 262144 THEN 'free' ELSE 'old' END
            WHEN size > 262144 THEN 'large'
            ELSE 'found' END;
    END IF;
END $$;

DROP FUNCTION toolfleet.look(uuid[], bigint[], boolean[]);

-- What becomes of calls of tools with a cache, at the gate; `ttls_ms`: how long answers of their tools count; `observes`: the call is
-- not put aside behind another one; `keeps_ms`: how long an old answer may be needed, 0 where it is
-- not. Verdicts: `hit`, with the call that has the answer and its size; `follow`, with the call that fetches it: the call is held in that one's line now; `lead`: it fetches the answer; `alone`: it has no part in any of that. A call that
-- is not in the answer is not queued, is held, or is locked: its row says what becomes of it.
-- Whatever it reads is one row by its key, so a tenant with many equal calls slows nobody. Only who may have to fetch locks a row, in the
-- order of the keys; so two of these never wait for each other in turn.
CREATE FUNCTION toolfleet.look(calls uuid[], ttls_ms bigint[], observes boolean[], keeps_ms bigint[])
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
            INSERT INTO toolfleet.kept_answers (key, tenant, tool, version, leader, keep_until)
            VALUES (q.key, q.tenant, q.tool, q.tool_version, q.call_id, q.deadline_at + q.kept + interval '1 minute')
            ON CONFLICT DO NOTHING;
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
                    keep_until = v.ended_at + q.kept
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
                    keep_until = q.deadline_at + q.kept + interval '1 minute'
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

-- The last good answer to calls equal to an open one, no older than so many milliseconds; no row: there is none, or its caller wants
-- none of another call. The last leader may have got it, and no look has found that yet.
CREATE FUNCTION toolfleet.stale_answer(call uuid, max_age_ms bigint) RETURNS TABLE (age_ms bigint, result text)
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path = toolfleet, pg_temp ROWS 1 AS $$
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

REVOKE EXECUTE ON FUNCTION toolfleet.look, toolfleet.stale_answer FROM PUBLIC;
