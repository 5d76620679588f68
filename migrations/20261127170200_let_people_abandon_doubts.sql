-- Why: of some doubts nobody will ever know whether they were carried out, and they stood in the inbox of doubts for good. A person
-- may abandon one: it is over, failed, with an effect that is unknown. It is never made again, its key gives this answer for ever,
-- and it is counted and listed apart: a mark says so. The day of the history that has it stays, as it does for a doubt.
-- Settled calls say who settled them, a person or a probe, in `details` of the move.
-- Locks: none. The release before survives it: the functions have the parameters that they had and answer what they answered;
-- `failed` with the effect `unknown` are words that it reads.

CREATE OR REPLACE FUNCTION toolfleet.settle(
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
    by_probe boolean;
    details json;
BEGIN
    IF settle.outcome IS NULL OR settle.outcome NOT IN ('applied', 'not_applied', 'abandoned') THEN
        RAISE EXCEPTION 'outcome must be applied, not_applied or abandoned' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(btrim(settle.actor), '') = '' OR length(settle.actor) > 200 THEN
        RAISE EXCEPTION 'actor must say who settles it, in 1 to 200 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(btrim(settle.note), '') = '' OR length(settle.note) > 2000 THEN
        RAISE EXCEPTION 'note must say how that is known, in 1 to 2000 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF settle.result IS NOT NULL AND settle.outcome <> 'applied' THEN
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
        ELSIF f.source = 'settled'
              AND f.effect_known::text = (CASE settle.outcome WHEN 'abandoned' THEN 'unknown' ELSE settle.outcome END)
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
    by_probe := settle.actor = 'probe ' || o.probe_id;
    IF by_probe AND settle.outcome = 'abandoned' THEN
        RAISE EXCEPTION 'only a person abandons a call' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    details := json_build_object('note', settle.note, 'settled_by', CASE WHEN by_probe THEN 'probe' ELSE 'person' END,
        'worker_fenced', fenced, 'by_time_only',
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
    IF settle.outcome = 'not_applied' AND NOT fenced AND NOT settle.by_time_only THEN
        RETURN QUERY SELECT 'worker_not_fenced', o.state::text, NULL::text, NULL::timestamptz, NULL::uuid;
        RETURN;
    END IF;
    IF o.attempt_until > clock_timestamp() THEN
        RETURN QUERY SELECT 'too_early', o.state::text, NULL::text, o.attempt_until, NULL::uuid;
        RETURN;
    END IF;
    IF settle.outcome = 'abandoned' THEN
        PERFORM toolfleet.finish(o, 'failed', 'system_error', 'settled', 'unknown', NULL,
            json_build_object('code', 'in_doubt', 'message', CASE o.language
                WHEN 'zh' THEN '操作是否已经生效，永远无法查明，已不再追查。不要重复这次调用，换用新的幂等键也不行；请告知用户结果不确定。'
                ELSE 'Whether the action was carried out will never be known, and nobody looks into it any more. Do not repeat the call, not with a new idempotency key either; tell the user that it is not certain.'
                END,
                'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'do_not_repeat',
                'details', json_build_object('abandoned', true, 'cause', coalesce(o.last_error->'details'->'cause', o.last_error))),
            settle.actor, 'settled_abandoned', details);
        INSERT INTO toolfleet.call_marks (call_id, what, actor, role, note)
        VALUES (o.call_id, 'abandoned', settle.actor, session_user, settle.note);
        RETURN QUERY SELECT 'settled', 'failed', settle.actor, now(), o.dispatcher_id;
        RETURN;
    END IF;
    PERFORM toolfleet.finish(o, 'failed', 'system_error', 'settled', 'not_applied', NULL,
        json_build_object('code', 'not_applied', 'message', CASE o.language
            WHEN 'zh' THEN '已查明操作没有生效。请询问用户；如果仍然需要，请再次发送；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。'
            ELSE 'It was found out that the action was not carried out. Ask the user; if it is still wanted, send it again, with a new idempotency key if there was one: the same one repeats this answer.'
            END,
            'retryable', false, 'retry_after_ms', NULL, 'suggestion', 'ask_user'),
        settle.actor, 'settled_not_applied', details);
    RETURN QUERY SELECT 'settled', 'failed', settle.actor, now(), o.dispatcher_id;
END $$;

CREATE OR REPLACE FUNCTION toolfleet.key_lapsed(call uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM toolfleet.finished_calls f
        WHERE f.call_id = call AND f.finished_at + make_interval(secs => f.key_retention_ms / 1000.0) < now()
          -- One that was abandoned may have been carried out: its key never makes a second call.
          AND NOT (f.source = 'settled' AND f.effect_known = 'unknown'));
END $$;

DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.drop_history'::regproc);
    changed text := replace(body, '        CONTINUE WHEN EXISTS (SELECT FROM toolfleet.open_calls',
        E'        CONTINUE WHEN EXISTS (\n'
        '            SELECT FROM toolfleet.call_marks m WHERE m.call_id >= low AND m.call_id < high AND m.what = ''abandoned'');\n'
        '        CONTINUE WHEN EXISTS (SELECT FROM toolfleet.open_calls');
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'drop_history does not look at open calls';
    END IF;
    EXECUTE changed;
END $$;

CREATE INDEX call_marks_abandoned ON toolfleet.call_marks (call_id) WHERE what = 'abandoned';

-- What nobody will ever know.
CREATE VIEW toolfleet.abandoned AS
SELECT c.call_id, c.tenant, c.tool, c.tool_version, c.effect, m.at AS abandoned_at, m.actor, m.role, m.note, c.args, c.error,
       c.attempts, c.session, c.run, c.accepted_at, c.worker
FROM toolfleet.call_marks m
JOIN toolfleet.calls c ON c.call_id = m.call_id
WHERE m.what = 'abandoned';
