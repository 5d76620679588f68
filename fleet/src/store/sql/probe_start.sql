WITH doubted AS (
    UPDATE toolfleet.open_calls
    SET probe_id = $3, probes = probes + 1, probe_state = 'asking', due_at = now() + interval '1 second'
    WHERE call_id = $1 AND rev = $2 AND state = 'in_doubt' AND probe_id IS NULL
    RETURNING call_id, tenant, session, run, language, traceparent, tracestate
)
INSERT INTO toolfleet.open_calls (
    call_id, tenant, tool, tool_version, effect, queue, priority, key_retention_ms, args, kept_args, original_args,
    coercions, args_hash, session, run, language, traceparent, tracestate, dispatcher_id, accepted_at, deadline_at, not_before, line, probe_of, rate_key)
SELECT $3, tenant, $4, $5, 'read', $6, 0, 0, $7::json, $11::json, $12::json, $13::json, $8, session, run, language,
    traceparent, tracestate, $9, now(), now() + $10::bigint * interval '1 millisecond', now(), $6, call_id, $14
FROM doubted
RETURNING tenant, language, traceparent, tracestate
