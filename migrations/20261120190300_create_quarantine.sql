-- Why: when Postgres has lost writes, calls may have been run of which the ledger knows nothing.
-- Locks: none. Old code: there is none.

-- Puts in doubt whatever may have been run without the ledger knowing, in one statement, before anybody else writes.
--
-- `seen` is the number of quarantines that the caller has judged by: whoever comes second waits here, and then finds that
-- it is done. `next` is above every number that anybody remembers. The table of open calls is closed to writers meanwhile.
--   once                 queued or running: in doubt. An attempt may have been lost with the writes.
--   idempotent           queued again, with the same key, whatever its attempts were; but what they did is unknown, and
--                        the tool may have seen its key for the first time as early as it was accepted. If it comes to a
--                        doubt, nobody can prove any more that nothing acts for it. One that is to stop is in doubt at once.
--   transaction          as it was: what was lost of it was lost effect and outcome together
--   read                 as it was
-- `errors` has what callers read of it by their calls' language.
-- Returns whether it did it, and how many calls went in doubt.
CREATE FUNCTION toolfleet.quarantine(
    seen integer, next integer, system_identifier text, timeline integer, standing text, errors json
) RETURNS TABLE (done boolean, doubted bigint)
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
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
    WHERE state = 'running' AND effect IN ('idempotent', 'once');

    -- What stays where it is has a remark: its revision tells whoever judged it before that it has changed.
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details)
    SELECT call_id, rev + 1, state, (CASE WHEN effect = 'idempotent' AND NOT cancel_requested THEN 'queued' ELSE 'in_doubt' END)::toolfleet.call_state, 'ground', 'quarantine',
        attempt_id, details
    FROM toolfleet.open_calls
    WHERE state IN ('queued', 'running') AND effect IN ('idempotent', 'once');

    UPDATE toolfleet.open_calls
    SET rev = rev + 1, quarantined = true, effect_unknown = true, first_started_at = coalesce(first_started_at, accepted_at)
    WHERE state IN ('queued', 'running') AND effect = 'idempotent' AND NOT cancel_requested;

    -- The attempt that the ledger remembers may not have been the last one, so what it says decides nothing any more.
    UPDATE toolfleet.open_calls
    SET state = 'queued', attempt_id = NULL, worker_id = NULL, claim_rev = NULL, attempt_started_at = NULL,
        attempt_until = NULL, attempt_timeout_ms = NULL, not_before = now(), due_at = now(), publish_n = publish_n + 1,
        unspent_attempts = unspent_attempts + 1
    WHERE state = 'running' AND effect = 'idempotent' AND NOT cancel_requested;

    UPDATE toolfleet.open_calls
    SET state = 'in_doubt', held = false, rev = rev + 1, quarantined = true, doubt_since = now(), doubt_reason = 'lost_writes',
        -- A claim that was lost with the writes ends by the call's deadline.
        attempt_until = deadline_at, due_at = greatest(now(), deadline_at), last_error = quarantine.errors->language
    WHERE state IN ('queued', 'running') AND (effect = 'once' OR effect = 'idempotent' AND cancel_requested);
    GET DIAGNOSTICS doubted = ROW_COUNT;

    UPDATE toolfleet.fleet
    SET system_identifier = quarantine.system_identifier, timeline = quarantine.timeline,
        wal_lsn = pg_current_wal_flush_lsn(), quarantines = quarantine.next;
    RETURN QUERY SELECT true, doubted;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.quarantine FROM PUBLIC;
