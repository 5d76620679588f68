-- Why: when Postgres has lost writes, calls may have been run of which the ledger knows nothing.
-- Locks: none. Old code: there is none.

-- Puts in doubt whatever may have been run without the ledger knowing, in one statement, before anybody else writes.
--
-- `seen` is the number of quarantines that the caller has judged by: whoever comes second waits here, and then finds that
-- it is done. `next` is above every number that anybody remembers. The table of open calls is closed to writers meanwhile.
--   once, transaction    queued or running: in doubt. An attempt may have been lost with the writes.
--   idempotent           may be run again, with the same key; but if it comes to nothing that is not known to be nothing,
--                        and the tool may have seen its key for the first time as early as it was accepted.
--   read                 as it was
-- Returns whether it did it, and how many calls went in doubt.
CREATE FUNCTION toolfleet.quarantine(
    seen integer, next integer, system_identifier text, timeline integer, standing text, error json
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
        quarantine.error, false
    FROM toolfleet.open_calls
    WHERE state = 'running' AND effect IN ('once', 'transaction');

    -- What stays where it is has a remark: its revision tells whoever judged it before that it has changed.
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details)
    SELECT call_id, rev + 1, state, CASE WHEN effect = 'idempotent' THEN state ELSE 'in_doubt' END, 'ground', 'quarantine',
        attempt_id, details
    FROM toolfleet.open_calls
    WHERE state IN ('queued', 'running') AND effect IN ('idempotent', 'once', 'transaction');

    UPDATE toolfleet.open_calls
    SET rev = rev + 1, effect_unknown = true, quarantined = true, first_started_at = coalesce(first_started_at, accepted_at)
    WHERE state IN ('queued', 'running') AND effect = 'idempotent';

    UPDATE toolfleet.open_calls
    SET state = 'in_doubt', rev = rev + 1, quarantined = true, doubt_since = now(), doubt_reason = 'lost_writes',
        due_at = now(), last_error = quarantine.error
    WHERE state IN ('queued', 'running') AND effect IN ('once', 'transaction');
    GET DIAGNOSTICS doubted = ROW_COUNT;

    UPDATE toolfleet.fleet
    SET system_identifier = quarantine.system_identifier, timeline = quarantine.timeline,
        wal_lsn = pg_current_wal_flush_lsn(), quarantines = quarantine.next;
    RETURN QUERY SELECT true, doubted;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.quarantine FROM PUBLIC;
