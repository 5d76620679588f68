WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::int[], $5::text[], $6::text[], $7::smallint[], $8::bytea[],
                $9::bytea[], $10::uuid[], $11::bigint[], $12::text[], $13::bytea[], $14::text[], $15::text[], $16::text[],
                $17::text[], $18::text[], $19::text[], $20::text[], $21::uuid[], $22::bigint[], $23::timestamptz[], $24::bigint[],
                $25::text[], $26::text[], $27::text[], $28::text[], $29::boolean[])
        AS input (call_id, tenant, tool, tool_version, effect, queue, priority, key_hash,
                  original_hash, replaces, key_retention_ms, args, args_hash, session, run, meta,
                  language, traceparent, tracestate, baggage, dispatcher_id, deadline_ms, run_deadline, queue_wait_ms, kept_args,
                  original_args, coercions, line, held)
), keyed AS (
    -- A lapsed key is taken over only while it still names the call that was seen to have lapsed.
    INSERT INTO toolfleet.idempotency_keys AS taken (tenant, key_hash, call_id, replaced, tool, tool_version, args_hash, original_hash)
    SELECT tenant, key_hash, call_id, replaces, tool, tool_version, args_hash, original_hash
    FROM input
    WHERE key_hash IS NOT NULL
    ORDER BY key_hash, tenant
    ON CONFLICT (tenant, key_hash) DO UPDATE
    SET call_id = EXCLUDED.call_id, replaced = EXCLUDED.replaced, tool = EXCLUDED.tool, tool_version = EXCLUDED.tool_version,
        args_hash = EXCLUDED.args_hash, original_hash = EXCLUDED.original_hash
    WHERE taken.call_id = EXCLUDED.replaced
    RETURNING call_id
)
INSERT INTO toolfleet.open_calls (
    call_id, tenant, tool, tool_version, effect, queue, priority, key_hash, key_retention_ms, args, kept_args, original_args, coercions,
    args_hash, session, run, meta, language, traceparent, tracestate, baggage, dispatcher_id,
    accepted_at, deadline_at, queue_until, not_before, line, held)
SELECT call_id, tenant, tool, tool_version, effect::toolfleet.effect, queue, priority, key_hash, key_retention_ms,
       args::json, kept_args::json, original_args::json, coercions::json, args_hash, session, run, meta::json, language, traceparent, tracestate, baggage, dispatcher_id,
       now(), least(now() + deadline_ms * interval '1 millisecond', run_deadline),
       now() + queue_wait_ms * interval '1 millisecond', now(), line, held
FROM input
WHERE key_hash IS NULL OR call_id IN (SELECT call_id FROM keyed)
RETURNING call_id, accepted_at
