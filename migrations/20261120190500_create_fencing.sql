-- Why: how a worker's row ends. Each takes the row FOR UPDATE, which a claim's FOR KEY SHARE excludes, and looks around in
-- later statements: what a claim committed before is seen, and none can follow.
-- Locks: none. Old code: there is none. Both functions are ours to change.

-- Declares a worker gone, with everything it had started. `proven`: its lock was taken; otherwise somebody says so, and a
-- worker that has beaten within its lease is alive. Its calls are moved by a later statement, the sweep's. One answer:
--   fenced     it is fenced now
--   already    it had been fenced before
--   left       it had left in order: nothing of it lives
--   alive      it beats
--   not_found  there is no such worker
CREATE FUNCTION toolfleet.fence(worker uuid, actor text, note text, proven boolean, lease_ms bigint) RETURNS text
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
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

-- Ends the row of a worker that is about to exit; answers with the state it is in then. `clean`: every attempt has ended and
-- nothing that it started lives. Then it has left; or is fenced, if it was taken for dead or a call still runs under its
-- name. Otherwise it is dead, and others have to prove more. What it leaves behind is for the sweep to decide about.
CREATE FUNCTION toolfleet.leave(worker uuid, clean boolean) RETURNS text
LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
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

REVOKE EXECUTE ON FUNCTION toolfleet.fence, toolfleet.leave FROM PUBLIC;
