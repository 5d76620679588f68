-- Why: where an old answer may stand in for a week, each question whose tool failed left a row of kept_answers for a week, although
-- there was no answer to keep. Now a row lives as long as its leader may run and its answer counts; when that is over, it is kept for
-- longer if the leader has a good answer.
-- Locks: ACCESS EXCLUSIVE on kept_answers for a moment; the new column is null in the rows that are there, which live as long as they were to.
-- The release before survives it: it knows nothing of the column.

-- How long an old answer may be needed after it was got, in milliseconds; 0 or null: not.
ALTER TABLE toolfleet.kept_answers ADD COLUMN keep_ms bigint;

-- What becomes of calls of tools with a cache, at the gate; `ttls_ms`: how long answers of their tools count; `observes`: the call is
-- not put aside behind another one; `keeps_ms`: how long an old answer may be needed, 0 where it is
-- not. Verdicts: `hit`, with the call that has the answer and its size; `follow`, with the call that fetches it: the call is held in that one's line now; `lead`: it fetches the answer; `alone`: it has no part in any of that. A call that
-- is not in the answer is not queued, is held, or is locked: its row says what becomes of it.
-- Whatever it reads is one row by its key, so a tenant with many equal calls slows nobody. Only who may have to fetch locks a row, in the
-- order of the keys; so two of these never wait for each other in turn.
CREATE OR REPLACE FUNCTION toolfleet.look(calls uuid[], ttls_ms bigint[], observes boolean[], keeps_ms bigint[])
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

-- Deletes rows that say nothing any more, at most 5000; returns their number. A row whose leader has a good answer that nobody has asked
-- for since is kept for as long as that may be needed.
CREATE OR REPLACE FUNCTION toolfleet.drop_old_answers() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
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
    ), longer AS (
        UPDATE toolfleet.kept_answers a SET keep_until = n.keep_until FROM needed n WHERE a.key = n.key
    ), gone AS (
        DELETE FROM toolfleet.kept_answers a WHERE a.key IN (SELECT o.key FROM over o EXCEPT SELECT n.key FROM needed n)
        RETURNING 1
    )
    SELECT count(*) INTO n FROM gone;
    RETURN n;
END $$;
