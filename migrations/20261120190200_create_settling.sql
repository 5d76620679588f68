-- Why: what people and the sweep decide about a call, each decision in one function, race-safe by the row's lock.
-- Locks: none. Old code: there is none.
-- `settle` and `cancel` are documented in docs/history.md and may be called with psql; `finish` is ours.

-- Moves an open call, which the caller of this function has locked, to the history. `attempt_outcome`: what the call's own
-- attempt came to, where that decided it. Otherwise the row names no attempt: a late completion must not take the decision
-- for its own.
CREATE FUNCTION toolfleet.finish(
    o toolfleet.open_calls, state toolfleet.call_state, outcome toolfleet.call_outcome, source toolfleet.source,
    effect_known toolfleet.effect_known, result json, error json, actor text, reason text, details json,
    attempt_outcome toolfleet.attempt_outcome DEFAULT NULL, at timestamptz DEFAULT now()
) RETURNS toolfleet.finished_calls LANGUAGE plpgsql SET search_path = toolfleet, pg_temp AS $$
DECLARE
    f toolfleet.finished_calls;
    hidden json := (SELECT v.sensitive FROM toolfleet.tool_versions v WHERE v.tool = o.tool AND v.version = o.tool_version);
BEGIN
    DELETE FROM toolfleet.open_calls c WHERE c.call_id = o.call_id;
    INSERT INTO toolfleet.finished_calls (
        call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, priority,
        key_hash, key_retention_ms, args, original_args, coercions, args_hash, result, error, session, run, meta, language,
        traceparent, accepted_at, deadline_at, first_started_at, finished_at, queued_ms, run_ms, attempts, attempt_id,
        worker_id, claim_rev, attempt_started_at, attempt_timeout_ms, attempt_outcome, probe_of, actor, reason, details)
    VALUES (
        o.call_id, o.rev + 1, o.state, finish.state, finish.outcome, finish.source, finish.effect_known, o.tenant, o.tool,
        o.tool_version, o.effect, o.queue, o.priority, o.key_hash, o.key_retention_ms, coalesce(o.kept_args, o.args),
        CASE WHEN o.kept_args IS NULL THEN o.original_args END, o.coercions, o.args_hash, toolfleet.kept(finish.result, hidden), finish.error,
        o.session, o.run, o.meta, o.language, o.traceparent, o.accepted_at,
        o.deadline_at, o.first_started_at, finish.at,
        (extract(epoch FROM coalesce(o.first_started_at, finish.at) - o.accepted_at) * 1000)::bigint,
        (extract(epoch FROM finish.at - coalesce(o.first_started_at, finish.at)) * 1000)::bigint, o.attempts,
        CASE WHEN finish.attempt_outcome IS NOT NULL THEN o.attempt_id END,
        o.worker_id, o.claim_rev, o.attempt_started_at, o.attempt_timeout_ms, finish.attempt_outcome, o.probe_of,
        finish.actor, finish.reason, finish.details)
    RETURNING * INTO f;
    RETURN f;
END $$;

-- Records what a call in doubt turned out to be. One answer:
--   settled            it was in doubt and is terminal now; or it had been settled just like this before
--   conflict           it is not in doubt, or was settled differently, or an attempt has said since that it did it:
--                      `state`, `decided_by` and `decided_at` say how
--   worker_not_fenced  "not applied" cannot be known while something that was started for the call may still act
--   too_early          "not applied" cannot be known before `decided_at`, when the attempt's own time is over
--   not_found          there is no such call (of this tenant)
-- `dispatcher_id` is whom to tell, and is there only when it was settled just now.
-- Waits for whoever else moves the call; then whoever comes second is told what the first one decided.
CREATE FUNCTION toolfleet.settle(
    call uuid, outcome text, actor text, note text, result json DEFAULT NULL, by_time_only boolean DEFAULT false,
    in_tenant text DEFAULT NULL
) RETURNS TABLE (verdict text, state text, decided_by text, decided_at timestamptz, dispatcher_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o toolfleet.open_calls;
    f toolfleet.finished_calls;
    evidence toolfleet.ended_attempts;
    fenced boolean;
    details json;
BEGIN
    IF settle.outcome IS NULL OR settle.outcome NOT IN ('applied', 'not_applied') THEN
        RAISE EXCEPTION 'outcome must be applied or not_applied' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(btrim(settle.actor), '') = '' OR length(settle.actor) > 200 THEN
        RAISE EXCEPTION 'actor must say who settles it, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(btrim(settle.note), '') = '' OR length(settle.note) > 2000 THEN
        RAISE EXCEPTION 'note must say how that is known, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF settle.result IS NOT NULL AND settle.outcome = 'not_applied' THEN
        RAISE EXCEPTION 'what was not applied has no result' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- As large as the largest answer that a manifest can allow.
    IF octet_length(settle.result::text) > 8388608 THEN
        RAISE EXCEPTION 'result must have at most 8 MiB' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Refuses what could be stored and not be read again: NUL and half surrogate pairs.
    PERFORM settle.result::jsonb;

    SELECT * INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = settle.call AND (settle.in_tenant IS NULL OR c.tenant = settle.in_tenant) FOR UPDATE;
    IF NOT FOUND THEN
        -- In a statement of its own: whoever we waited for may have moved it.
        SELECT * INTO f FROM toolfleet.finished_calls c
        WHERE c.call_id = settle.call AND (settle.in_tenant IS NULL OR c.tenant = settle.in_tenant);
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'not_found', NULL::text, NULL::text, NULL::timestamptz, NULL::uuid;
        ELSIF f.source = 'settled' AND f.effect_known::text = settle.outcome
              AND (settle.result IS NULL OR f.result::jsonb IS NOT DISTINCT FROM toolfleet.kept(settle.result, (
                  SELECT v.sensitive FROM toolfleet.tool_versions v
                  WHERE v.tool = f.tool AND v.version = f.tool_version))::jsonb) THEN
            RETURN QUERY SELECT 'settled', f.state::text, f.actor, f.finished_at, NULL::uuid;
        ELSE
            RETURN QUERY SELECT 'conflict', f.state::text, f.actor, f.finished_at, NULL::uuid;
        END IF;
        RETURN;
    END IF;
    IF o.state <> 'in_doubt' THEN
        RETURN QUERY SELECT 'conflict', o.state::text, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;

    fenced := toolfleet.is_fenced(o.call_id);
    details := json_build_object('note', settle.note, 'worker_fenced', fenced, 'by_time_only',
        settle.outcome = 'not_applied' AND NOT fenced);
    IF settle.outcome = 'applied' THEN
        PERFORM toolfleet.finish(o, 'succeeded', 'success', 'settled', 'applied', settle.result, NULL, settle.actor,
            'settled_applied', details);
        RETURN QUERY SELECT 'settled', 'succeeded', settle.actor, now(), o.dispatcher_id;
        RETURN;
    END IF;
    SELECT * INTO evidence FROM toolfleet.ended_attempts a
    WHERE a.call_id = o.call_id AND a.late AND a.outcome = 'applied' LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'conflict', o.state::text, 'late answer of attempt ' || evidence.number, evidence.finished_at, NULL::uuid;
        RETURN;
    END IF;
    IF NOT fenced AND NOT settle.by_time_only THEN
        RETURN QUERY SELECT 'worker_not_fenced', o.state::text, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;
    IF o.attempt_until > clock_timestamp() THEN
        RETURN QUERY SELECT 'too_early', o.state::text, NULL::text, o.attempt_until, NULL::uuid;
        RETURN;
    END IF;
    PERFORM toolfleet.finish(o, 'failed', 'system_error', 'settled', 'not_applied', NULL,
        json_build_object('code', 'not_applied', 'message', CASE o.language
            WHEN 'zh' THEN '已查明操作没有生效。再次尝试之前请先询问用户，并使用新的幂等键。'
            ELSE 'It was found out that the action was not carried out. Ask the user before it is tried again, with a new key.'
            END,
            'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'ask_user'),
        settle.actor, 'settled_not_applied', details);
    RETURN QUERY SELECT 'settled', 'failed', settle.actor, now(), o.dispatcher_id;
END $$;

-- Takes a call back. One answer:
--   cancelled         it had not run and never will
--   cancel_requested  it runs; `worker_id` is to be told, and how it ends is the attempt's
--   in_doubt          it is in doubt; or it waited for another attempt, and what the one before did is unknown
--   already_terminal  it is over: `state` says how
--   not_found         there is no such call (of this tenant)
CREATE FUNCTION toolfleet.cancel(call uuid, actor text, reason text DEFAULT NULL, in_tenant text DEFAULT NULL)
RETURNS TABLE (verdict text, state text, worker_id uuid, dispatcher_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o toolfleet.open_calls;
    f toolfleet.finished_calls;
    details json := CASE WHEN cancel.reason IS NOT NULL THEN json_build_object('reason', left(cancel.reason, 2000)) END;
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
    ELSIF o.effect_unknown AND o.effect IN ('idempotent', 'once') THEN
        SELECT max(a.started_at + make_interval(secs => a.timeout_ms / 1000.0)) INTO until
        FROM toolfleet.ended_attempts a
        WHERE a.call_id = o.call_id AND a.outcome = 'unknown' AND NOT a.late;
        UPDATE toolfleet.open_calls c
        SET state = 'in_doubt', held = false, rev = c.rev + 1, doubt_since = now(), doubt_reason = 'cancelled', attempt_until = until,
            due_at = greatest(now(), until),
            last_error = json_build_object('code', 'in_doubt', 'message', CASE o.language
                WHEN 'zh' THEN '这次调用在一次效果未知的尝试之后被取消。操作可能已经生效，也可能没有生效。不要重复这次调用；请交由人工查明结果。'
                ELSE 'The call was cancelled after an attempt whose effect is unknown. The action may or may not have been '
                    'carried out. Do not repeat the call; ask a person to find out.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'do_not_repeat',
                'details', json_build_object('cause', o.last_error))
        WHERE c.call_id = o.call_id;
        INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
        VALUES (o.call_id, o.rev + 1, 'queued', 'in_doubt', cancel.actor, 'cancelled', details);
        RETURN QUERY SELECT 'in_doubt', 'in_doubt', NULL::uuid, o.dispatcher_id;
    ELSE
        PERFORM toolfleet.finish(o, 'cancelled', 'system_error', 'error',
            CASE WHEN o.effect = 'read' THEN 'none' ELSE 'not_applied' END::toolfleet.effect_known, NULL,
            json_build_object('code', 'cancelled', 'message', CASE o.language
                WHEN 'zh' THEN
                    CASE WHEN o.attempts = 0 THEN '这次调用在执行之前被取消。' ELSE '这次调用在下一次尝试之前被取消。' END
                    || '没有做任何更改。只有仍然需要时才再次调用。'
                ELSE
                    CASE WHEN o.attempts = 0 THEN 'The call was cancelled before it ran.'
                         ELSE 'The call was cancelled before its next attempt.' END
                    || ' Nothing was changed. Call again only if it is wanted after all.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'ask_user'),
            cancel.actor, 'cancelled', details);
        RETURN QUERY SELECT 'cancelled', 'cancelled', NULL::uuid, o.dispatcher_id;
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.finish, toolfleet.settle, toolfleet.cancel FROM PUBLIC;
