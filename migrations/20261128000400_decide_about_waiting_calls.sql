-- Why: what a call that waits for its caller's program comes to when it is cancelled, and when the ledger has lost writes: a write may
-- have happened, for that program has it. And the views that show such calls.
-- Locks: ACCESS EXCLUSIVE on the view for a moment.
-- The release before survives it: the functions do for other calls what they did.

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
    IF o.state = 'in_doubt' THEN
        RETURN QUERY SELECT 'in_doubt', o.state::text, NULL::uuid, o.dispatcher_id;
    ELSIF o.state = 'running' THEN
        IF NOT o.cancel_requested THEN
            UPDATE toolfleet.open_calls c SET cancel_requested = true, rev = c.rev + 1 WHERE c.call_id = o.call_id;
            INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details)
            VALUES (o.call_id, o.rev + 1, 'running', 'running', cancel.actor, 'cancel_requested', o.attempt_id, details);
        END IF;
        RETURN QUERY SELECT 'cancel_requested', o.state::text, o.worker_id, o.dispatcher_id;
    ELSIF (o.effect_unknown OR o.awaiting = 'client') AND o.effect IN ('idempotent', 'once') THEN
        SELECT max(a.started_at + make_interval(secs => a.timeout_ms / 1000.0)) INTO until
        FROM toolfleet.ended_attempts a
        WHERE a.call_id = o.call_id AND a.outcome = 'unknown' AND NOT a.late;
        IF o.awaiting = 'client' THEN
            -- Whoever has it may do it until its time is over.
            until := o.attempt_until;
            INSERT INTO toolfleet.ended_attempts (
                call_id, attempt_id, number, started_at, timeout_ms, outcome, effect_known, error, over)
            VALUES (o.call_id, o.attempt_id, o.attempts, o.attempt_started_at, o.attempt_timeout_ms, 'unknown', 'unknown', NULL, false);
        END IF;
        UPDATE toolfleet.open_calls c
        SET state = 'in_doubt', awaiting = NULL, held = false, rev = c.rev + 1, doubt_since = now(), doubt_reason = 'cancelled', attempt_until = until,
            due_at = greatest(now(), until),
            last_error = json_build_object('code', 'in_doubt', 'message', CASE o.language
                WHEN 'zh' THEN CASE WHEN o.awaiting = 'client' THEN '这次调用在交给调用方的程序之后被取消。'
                    ELSE '这次调用在一次效果未知的尝试之后被取消。' END
                    || '操作可能已经生效，也可能没有生效。不要重复这次调用，换用新的幂等键也不行；请交由人工查明结果。'
                ELSE CASE WHEN o.awaiting = 'client' THEN 'The call was cancelled after the caller''s program had got it.'
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
                         WHEN o.attempts = 0 THEN '这次调用在执行之前被取消。' ELSE '这次调用在下一次尝试之前被取消。' END
                    || '没有做任何更改。请询问用户；如果仍然需要，请再次发送；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。'
                ELSE
                    CASE WHEN o.awaiting = 'client' THEN 'The call was cancelled before the caller''s program answered.'
                         WHEN o.attempts = 0 THEN 'The call was cancelled before it ran.'
                         ELSE 'The call was cancelled before its next attempt.' END
                    || ' Nothing was changed. Ask the user; if it is still wanted, send it again, with a new idempotency key if there was one: the same one repeats this answer.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'ask_user'),
            cancel.actor, 'cancelled', details,
            -- Whoever has it may look all the same; what comes of that is not known.
            CASE WHEN o.awaiting = 'client' THEN 'unknown' END::toolfleet.attempt_outcome);
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
    WHERE (state = 'running' OR awaiting = 'client') AND effect IN ('idempotent', 'once');
    -- What stays where it is has a remark: its revision tells whoever judged it before that it has changed.
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details)
    SELECT call_id, rev + 1, state, (CASE WHEN effect = 'idempotent' AND NOT cancel_requested AND awaiting IS NULL THEN 'queued' ELSE 'in_doubt' END)::toolfleet.call_state, 'ground', 'quarantine',
        attempt_id, details
    FROM toolfleet.open_calls
    WHERE state IN ('queued', 'running', 'awaiting_client') AND effect IN ('idempotent', 'once');
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
    SET state = 'in_doubt', awaiting = NULL, held = false, rev = rev + 1, quarantined = true, doubt_since = now(), doubt_reason = 'lost_writes',
        -- A claim that was lost with the writes ends by the call's deadline.
        attempt_until = deadline_at, due_at = greatest(now(), deadline_at), last_error = quarantine.errors->language
    -- What the caller's program has is handed out once: its answer may be among what was lost.
    WHERE state IN ('queued', 'running', 'awaiting_client')
      AND (effect = 'once' OR effect = 'idempotent' AND (cancel_requested OR awaiting IS NOT NULL));
    GET DIAGNOSTICS doubted = ROW_COUNT;
    UPDATE toolfleet.fleet
    SET system_identifier = quarantine.system_identifier, timeline = quarantine.timeline,
        wal_lsn = pg_current_wal_flush_lsn(), quarantines = quarantine.next;
    RETURN QUERY SELECT true, doubted;
END $$;

CREATE OR REPLACE VIEW toolfleet.calls AS
SELECT c.call_id, c.tenant, c.tool, c.tool_version, c.effect::text AS effect, c.state::text AS state,
       c.outcome, c.source, c.held, encode(c.key_hash, 'hex') AS idempotency_key_hash,
       CASE WHEN v.sensitive IS NULL THEN c.args ELSE toolfleet.shown(c.args, v.sensitive) END AS args,
       -- What was sent in another shape has its values elsewhere.
       CASE WHEN v.sensitive IS NULL THEN coalesce(c.original_args, c.args)
            WHEN c.coercions IS NULL THEN toolfleet.shown(c.args, v.sensitive)
            ELSE toolfleet.shown('null', json_build_object('pointers', ARRAY[''], 'mode', v.sensitive->>'mode')) END AS original_args,
       coalesce(c.coercions, '[]'::json) AS coercions,
       CASE WHEN v.sensitive IS NULL THEN c.result ELSE toolfleet.shown(c.result, v.sensitive) END AS result,
       c.error, c.degraded, c.attempts, c.not_before, c.deadline_at, c.session, c.run,
       (ARRAY['high', 'normal', 'low'])[c.priority + 1] AS priority,
       c.accepted_at, c.started_at, c.finished_at, coalesce(w.name, c.worker_id::text) AS worker,
       split_part(c.traceparent, '-', 2) AS trace_id, c.queue, c.language, c.meta, c.queued_ms, c.run_ms,
       c.cancel_requested, c.queue_until, c.probe_of, v.sensitive IS NOT NULL AS sensitive, c.line, c.obstacle,
       toolfleet.held_why(c.held, c.line) AS held_why, c.effect_known,
       (SELECT m.what FROM toolfleet.call_marks m WHERE m.call_id = c.call_id ORDER BY m.at DESC LIMIT 1) AS marked,
       CASE WHEN c.source = 'settled' THEN c.details->>'settled_by' END AS settled_by,
       c.shortened, c.open, c.awaiting
FROM (
    SELECT call_id, tenant, tool, tool_version, effect, state, NULL::text AS outcome, NULL::text AS source, held, key_hash,
           args, original_args, coercions, NULL::json AS result, last_error AS error, NULL::json AS degraded, attempts,
           not_before, deadline_at, session, run, priority, accepted_at, first_started_at AS started_at,
           NULL::timestamptz AS finished_at, worker_id, traceparent, queue, language, meta,
           NULL::bigint AS queued_ms, NULL::bigint AS run_ms, cancel_requested, queue_until, probe_of, line,
           CASE WHEN state = 'queued' THEN obstacle END AS obstacle, NULL::text AS effect_known, NULL::json AS details,
           NULL::boolean AS shortened, true AS open, awaiting
    FROM toolfleet.open_calls
    UNION ALL
    SELECT call_id, tenant, tool, tool_version, effect, state, outcome::text, source::text, false, key_hash,
           args, original_args, coercions, result, error, degraded, attempts,
           NULL, deadline_at, session, run, priority, accepted_at, first_started_at,
           finished_at, worker_id, traceparent, queue, language, meta, queued_ms, run_ms, false, NULL, probe_of, NULL, NULL,
           effect_known::text, details, preview IS NOT NULL, false, NULL
    FROM toolfleet.finished_calls
) c
LEFT JOIN toolfleet.worker_processes w USING (worker_id)
LEFT JOIN toolfleet.tool_versions v ON v.tool = c.tool AND v.version = c.tool_version;

-- Calls that wait for somebody, the oldest first to end.
CREATE VIEW toolfleet.waiting AS
SELECT o.call_id, o.tenant, o.tool, o.tool_version, o.effect::text AS effect, o.awaiting,
       coalesce(o.attempt_started_at, o.accepted_at) AS since, o.due_at AS until, o.session, o.run,
       CASE WHEN v.sensitive IS NULL THEN o.args ELSE toolfleet.shown(o.args, v.sensitive) END AS args
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
    WHERE state = 'running' OR awaiting = 'client'
) a
LEFT JOIN toolfleet.worker_processes w USING (worker_id);

-- A call that was handed to its caller's program has a last attempt without a worker, and waited for it from the beginning.
CREATE OR REPLACE VIEW toolfleet.call_events AS
SELECT call_id, 0 AS revision, accepted_at AS at, NULL::text AS from_state,
       CASE WHEN attempt_started_at IS NOT NULL AND worker_id IS NULL THEN 'awaiting_client' ELSE 'queued' END AS to_state,
       'dispatcher'::text AS actor, 'accepted'::text AS reason, NULL::uuid AS attempt_id, NULL::json AS details
FROM (SELECT call_id, accepted_at, attempt_started_at, worker_id FROM toolfleet.open_calls
      UNION ALL SELECT call_id, accepted_at, attempt_started_at, worker_id FROM toolfleet.finished_calls) accepted
UNION ALL
SELECT call_id, claim_rev, started_at, 'queued', 'running', 'worker ' || worker_id, 'claimed', attempt_id, NULL
FROM (SELECT call_id, claim_rev, started_at, worker_id, attempt_id FROM toolfleet.ended_attempts
      WHERE NOT late AND worker_id IS NOT NULL
      UNION ALL
      SELECT call_id, claim_rev, attempt_started_at, worker_id, attempt_id FROM toolfleet.finished_calls
      WHERE from_state = 'running'
      UNION ALL
      SELECT call_id, claim_rev, attempt_started_at, worker_id, attempt_id FROM toolfleet.open_calls
      WHERE state = 'running') claimed
UNION ALL
SELECT call_id, rev, at, from_state::text, to_state::text, actor, reason, attempt_id, details
FROM toolfleet.call_notes
UNION ALL
SELECT call_id, rev, finished_at, from_state::text, state::text, actor, reason, attempt_id, details
FROM toolfleet.finished_calls;
