WITH input AS NOT MATERIALIZED (
    -- Beside each other, not in FROM, which would store each list before it reads a row.
    SELECT
        unnest($1::uuid[]) AS call_id, unnest($2::text[]) AS tenant, unnest($3::text[]) AS tool,
        unnest($4::int[]) AS tool_version, unnest($5::text[]) AS effect, unnest($6::text[]) AS queue,
        unnest($7::smallint[]) AS priority, unnest($8::bytea[]) AS key_hash, unnest($9::bytea[]) AS original_hash,
        unnest($10::uuid[]) AS replaces, unnest($11::bigint[]) AS key_retention_ms, unnest($12::text[]) AS args,
        unnest($13::bytea[]) AS args_hash, unnest($14::text[]) AS session, unnest($15::text[]) AS run,
        unnest($16::text[]) AS meta, unnest($17::text[]) AS language, unnest($18::text[]) AS traceparent,
        unnest($19::text[]) AS tracestate, unnest($20::text[]) AS baggage, unnest($21::uuid[]) AS dispatcher_id,
        unnest($22::bigint[]) AS deadline_ms, unnest($23::timestamptz[]) AS run_deadline,
        unnest($24::bigint[]) AS queue_wait_ms, unnest($25::text[]) AS kept_args, unnest($26::text[]) AS original_args,
        unnest($27::text[]) AS coercions, unnest($28::text[]) AS line, unnest($29::boolean[]) AS held,
        unnest($30::uuid[]) AS done_secret, unnest($31::boolean[]) AS no_store,
        -- Of calls that wait for somebody: those that are handed to their callers' programs have their only attempt at once.
        unnest($32::text[]) AS awaiting, unnest($33::uuid[]) AS attempt_id, unnest($34::bigint[]) AS wait_ms,
        unnest($35::text[]) AS rate_key, unnest($36::text[]) AS approval/* files of input */
)/* with files */, keyed AS (
    -- A lapsed key is taken over only while it still names the call that was seen to have lapsed.
    INSERT INTO toolfleet.idempotency_keys AS taken (tenant, key_hash, call_id, replaced, tool, tool_version, args_hash, original_hash)
    SELECT tenant, key_hash, call_id, replaces, tool, tool_version, args_hash, original_hash
    FROM /* fit */
    WHERE key_hash IS NOT NULL
    ORDER BY key_hash, tenant
    ON CONFLICT (tenant, key_hash) DO UPDATE
    SET call_id = EXCLUDED.call_id, replaced = EXCLUDED.replaced, tool = EXCLUDED.tool, tool_version = EXCLUDED.tool_version,
        args_hash = EXCLUDED.args_hash, original_hash = EXCLUDED.original_hash
    WHERE taken.call_id = EXCLUDED.replaced
    RETURNING call_id
)/* named by calls */
INSERT INTO toolfleet.open_calls (
    call_id, tenant, tool, tool_version, effect, queue, priority, key_hash, key_retention_ms, args, kept_args, original_args, coercions,
    args_hash, session, run, meta, language, traceparent, tracestate, baggage, dispatcher_id,
    accepted_at, deadline_at, queue_until, not_before, line, held, done_secret, no_store, rate_key,
    state, awaiting, attempts, attempt_id, first_started_at, attempt_started_at, attempt_timeout_ms, attempt_until, due_at, approval, watched)
SELECT call_id, tenant, tool, tool_version, effect::toolfleet.effect, queue, priority, key_hash, key_retention_ms,
       args::json, kept_args::json, original_args::json, coercions::json, args_hash, session, run, meta::json, language, traceparent, tracestate, baggage, dispatcher_id,
       -- The clocks of a call that waits for a yes begin with it.
       now(), CASE WHEN approval IS NULL THEN least(now() + deadline_ms * interval '1 millisecond', run_deadline) ELSE until END,
       CASE WHEN approval IS NULL THEN now() + queue_wait_ms * interval '1 millisecond' END, now(), line, held, done_secret, no_store, rate_key,
       CASE WHEN awaiting IS NULL THEN 'queued' ELSE 'awaiting_client' END::toolfleet.call_state, awaiting,
       CASE WHEN attempt_id IS NULL THEN 0 ELSE 1 END, attempt_id, CASE WHEN attempt_id IS NOT NULL THEN now() END,
       CASE WHEN attempt_id IS NOT NULL THEN now() END,
       CASE WHEN attempt_id IS NOT NULL THEN wait_ms END, CASE WHEN attempt_id IS NOT NULL THEN until END, until, approval::json,
       -- Whether a policy wants to know what happens to it. The list is read only for calls with a run or a session.
       CASE WHEN run IS NOT NULL OR session IS NOT NULL THEN tool = ANY ((SELECT f.watched_tools FROM toolfleet.fleet f)::text[]) END
FROM /* fit */
CROSS JOIN LATERAL (
    SELECT CASE WHEN awaiting IS NOT NULL
                THEN least(now() + CASE WHEN approval IS NULL THEN least(wait_ms, deadline_ms) ELSE wait_ms END
                               * interval '1 millisecond', run_deadline) END AS until) u
WHERE key_hash IS NULL OR call_id IN (SELECT call_id FROM keyed)
RETURNING call_id, accepted_at
