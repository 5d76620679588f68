-- Why: two commands that made one call again at once, or one after the other had been killed, could both make it. Kept rows that were
-- given more time stopped the clean-up of a minute, and a row whose leader had ended and was not recorded yet, as after an outage, was
-- deleted with the answer that was on its way.
-- Locks: none beside the catalog's.
-- The release before survives it: it asks both functions as before.

CREATE OR REPLACE FUNCTION toolfleet.reserve_retries(calls uuid[], name text, retry uuid, run uuid)
RETURNS TABLE (call_id uuid, verdict text, holder text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
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

-- Looks at rows whose time is over, at most 5000, and deletes those that say nothing any more; returns how many it looked at. A row
-- whose leader has a good answer that nobody has asked for since is kept for as long as that may be needed, and one whose leader is still
-- open, as after an outage, for another minute.
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
