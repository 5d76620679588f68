-- Why: what a call comes to whose tool answers later, or asks for something: how it begins to wait and goes on, when it is cancelled, and
-- when the ledger has lost writes. And the views that show such calls.
-- Locks: ACCESS EXCLUSIVE on the views for a moment.
-- The release before survives it: the functions do for other calls what they did.

-- Puts a call into waiting whose attempt runs: for its tool (`completion`), at most so long, or for its caller (`input`), to its deadline.
-- A question ends the attempt, which has begun nothing and is not counted. The verdict:
--   waits     it waits now, or this attempt has let it wait before
--   over      it was answered for before it could wait
--   not_now   the attempt does not have it any more, or it is to be cancelled
CREATE FUNCTION toolfleet.park(call uuid, attempt uuid, awaiting text, wait_ms bigint, asked json, actor text)
RETURNS TABLE (verdict text, rev integer, at timestamptz, until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
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

-- Gives a call what its tool asked for, which it asked when the call had moved so often. No row: it does not wait for that any more.
CREATE FUNCTION toolfleet.give_input(call uuid, seen integer, input json, actor text) RETURNS TABLE (rev integer)
LANGUAGE sql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
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

REVOKE EXECUTE ON FUNCTION toolfleet.park, toolfleet.give_input FROM PUBLIC;

CREATE OR REPLACE FUNCTION toolfleet.cancel(call uuid, actor text, reason text DEFAULT NULL, in_tenant text DEFAULT NULL)
RETURNS TABLE (verdict text, state text, worker_id uuid, dispatcher_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION toolfleet.quarantine(
    seen integer, next integer, system_identifier text, timeline integer, standing text, errors json
) RETURNS TABLE (done boolean, doubted bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
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

CREATE OR REPLACE VIEW toolfleet.waiting AS
SELECT o.call_id, o.tenant, o.tool, o.tool_version, o.effect::text AS effect, o.awaiting,
       coalesce(CASE WHEN o.awaiting IN ('completion', 'input') THEN (
           SELECT n.at FROM toolfleet.call_notes n WHERE n.call_id = o.call_id AND n.to_state = 'awaiting_client' ORDER BY n.rev DESC LIMIT 1)
           END, o.attempt_started_at, o.accepted_at) AS since, o.due_at AS until, o.session, o.run,
       CASE WHEN v.sensitive IS NULL THEN o.args ELSE toolfleet.shown(o.args, v.sensitive) END AS args,
       CASE WHEN o.awaiting = 'approval' THEN toolfleet.shown_hash(o.args_hash, o.approval) END AS args_hash,
       CASE WHEN o.awaiting = 'approval' THEN o.approval->>'by' END AS approval_by,
       CASE WHEN o.awaiting = 'approval' THEN (o.approval->>'count')::integer END AS approvals_needed,
       CASE WHEN o.awaiting = 'approval' THEN (
           SELECT count(*) FROM toolfleet.call_decisions d WHERE d.call_id = o.call_id AND d.decision = 'approve')::integer END AS approvals,
       CASE WHEN o.awaiting = 'approval' THEN o.approval->>'reason' END AS approval_reason,
       CASE WHEN o.awaiting = 'input' AND v.sensitive IS NULL THEN o.asked->'requests' END AS requests
FROM toolfleet.open_calls o
LEFT JOIN toolfleet.tool_versions v ON v.tool = o.tool AND v.version = o.tool_version
WHERE o.state = 'awaiting_client';

-- An attempt without a worker is one by the caller's own program.
CREATE OR REPLACE VIEW toolfleet.attempts AS
SELECT a.call_id, a.attempt_id, a.number, coalesce(w.name, a.worker_id::text) AS worker, a.started_at, a.finished_at,
       a.timeout_ms, a.outcome, a.error, a.effect, a.late, a.worker_id, w.fenced_at AS worker_fenced_at,
       w.fenced_by AS worker_fenced_by
FROM (
    SELECT call_id, attempt_id, number, worker_id, started_at, finished_at, timeout_ms, outcome::text AS outcome, error,
           effect_known::text AS effect, late
    FROM toolfleet.ended_attempts
    UNION ALL
    -- A call that failed because its attempts did carries the last one's own error inside.
    SELECT call_id, attempt_id, attempts, worker_id, attempt_started_at, finished_at, attempt_timeout_ms,
           attempt_outcome::text,
           CASE WHEN error->>'code' IN ('retries_exhausted', 'deadline_exceeded', 'cancelled')
                THEN coalesce(error->'details'->'last', error) ELSE error END,
           effect_known::text, false
    FROM toolfleet.finished_calls
    WHERE attempt_id IS NOT NULL AND attempt_outcome IS NOT NULL AND from_state IN ('running', 'awaiting_client')
    UNION ALL
    SELECT call_id, attempt_id, attempts, worker_id, attempt_started_at, NULL, attempt_timeout_ms,
           NULL, NULL::json, NULL, false
    FROM toolfleet.open_calls
    WHERE state = 'running' OR awaiting IN ('client', 'completion')
) a
LEFT JOIN toolfleet.worker_processes w USING (worker_id);

-- A call that waited from the beginning is there, or its first move led out of there.
CREATE OR REPLACE VIEW toolfleet.call_events AS
SELECT c.call_id, 0 AS revision, c.accepted_at AS at, NULL::text AS from_state,
       CASE WHEN coalesce(first.from_state, CASE WHEN c.is_first THEN c.state END) = 'awaiting_client' THEN 'awaiting_client'
            ELSE 'queued' END AS to_state,
       'dispatcher'::text AS actor, 'accepted'::text AS reason, NULL::uuid AS attempt_id, NULL::json AS details
FROM (SELECT call_id, accepted_at, state, rev = 0 AS is_first FROM toolfleet.open_calls
      UNION ALL SELECT call_id, accepted_at, from_state, rev = 1 FROM toolfleet.finished_calls) c
LEFT JOIN toolfleet.call_notes first ON first.call_id = c.call_id AND first.rev = 1
UNION ALL
SELECT call_id, claim_rev, started_at, 'queued', 'running', 'worker ' || worker_id, 'claimed', attempt_id, NULL
FROM (SELECT call_id, claim_rev, started_at, worker_id, attempt_id FROM toolfleet.ended_attempts
      WHERE NOT late AND worker_id IS NOT NULL
      UNION ALL
      SELECT call_id, claim_rev, attempt_started_at, worker_id, attempt_id FROM toolfleet.finished_calls
      WHERE from_state = 'running' OR from_state = 'awaiting_client' AND claim_rev IS NOT NULL
      UNION ALL
      SELECT call_id, claim_rev, attempt_started_at, worker_id, attempt_id FROM toolfleet.open_calls
      WHERE state = 'running' OR awaiting = 'completion') claimed
UNION ALL
SELECT call_id, rev, at, from_state::text, to_state::text, actor, reason, attempt_id, details
FROM toolfleet.call_notes
UNION ALL
SELECT call_id, rev, finished_at, from_state::text, state::text, actor, reason, attempt_id, details
FROM toolfleet.finished_calls;
