-- Why: a bulk retry has a name, and its new calls have keys of that name and the old call, so sent twice it doubles nothing. That
-- holds for one set of calls: the row remembers the filter, its moments as they were fixed at the first time, and the newest call
-- that it covers. It goes with that call's day. Keys know nothing of other names, and lapse: so each call is reserved first.
-- Locks: none. The release before survives it: it does not know the table, and `drop_history` does what it did.
CREATE TABLE toolfleet.bulk_retries (
    name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    -- In the keys of its new calls, which no tenant can guess and send first.
    nonce uuid NOT NULL DEFAULT gen_random_uuid(),
    filter text NOT NULL CHECK (length(filter) <= 65536),
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    newest uuid NOT NULL,
    actor text NOT NULL CHECK (length(actor) BETWEEN 1 AND 200),
    role text NOT NULL DEFAULT session_user,
    at timestamptz NOT NULL DEFAULT now()
);

DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.drop_history'::regproc);
    changed text := replace(body, '        RETURN part.day;',
        E'        DELETE FROM toolfleet.bulk_retries WHERE newest >= low AND newest < high;\n        RETURN part.day;');
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'drop_history does not return the day';
    END IF;
    EXECUTE changed;
END $$;

-- Reserves calls for one retry, at most 1,000 at a time, before anything is sent. One answer for each:
--   held              it is this retry's: its new call may be sent, under the retry's key for it
--   effect_happened   an attempt says late that it did it
--   retried_before, discarded_before, effect_unknown  it has that mark
--   under_way         another retry has it, `holder` says the name of which
--   unsure            it was reserved 23 hours ago or earlier and has no mark: its new call may have been made, and the key that
--                     would find that call may have lapsed since
--   not_over          it is open, or in doubt
--   not_found         there is no such call
-- Keys hold for a day at least; the hour is for a sender that is slow.
CREATE FUNCTION toolfleet.reserve_retries(calls uuid[], name text, retry uuid, run uuid)
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
    WHERE r.run <> excluded.run
      -- Who makes one call again under its own name decides that alone.
      AND (r.retry = excluded.retry OR r.name IS NULL AND excluded.name IS NULL);
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

-- Takes reservations of a process back, where it knows that no new call was made of them. What another process of the same retry
-- has had too stays.
CREATE FUNCTION toolfleet.release_retries(calls uuid[], retry uuid, run uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    DELETE FROM toolfleet.retry_reservations r
    WHERE r.call_id = ANY (release_retries.calls) AND r.retry = release_retries.retry AND r.run = release_retries.run
      AND NOT r.shared
$$;

REVOKE EXECUTE ON FUNCTION toolfleet.reserve_retries, toolfleet.release_retries FROM PUBLIC;
