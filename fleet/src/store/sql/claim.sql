WITH me AS MATERIALIZED (
    -- A fence of this worker takes the row FOR UPDATE. So either the fence sees this claim, or this claim sees the fence.
    SELECT worker_id
    FROM toolfleet.worker_processes
    WHERE worker_id = $1 AND state IN ('live', 'draining')
    FOR KEY SHARE
)
UPDATE toolfleet.open_calls o
SET state = 'running', rev = o.rev + 1, attempts = o.attempts + 1, attempt_id = i.attempt_id, worker_id = $1,
    claim_rev = o.rev + 1, attempt_started_at = now(), first_started_at = coalesce(o.first_started_at, now()),
    attempt_timeout_ms = least(i.timeout_ms, (date_part('epoch', o.deadline_at - now()) * 1000)::bigint),
    attempt_until = least(now() + i.timeout_ms * interval '1 millisecond', o.deadline_at)
FROM (SELECT unnest($2::uuid[]) AS call_id, unnest($3::uuid[]) AS attempt_id, unnest($4::bigint[]) AS timeout_ms) AS i
WHERE EXISTS (SELECT FROM me)
  -- Repeated: the list makes Postgres use the index, whatever the statistics of an emptied table are.
  AND o.call_id = ANY($2) AND o.call_id = i.call_id
  AND o.state = 'queued' AND NOT o.held AND NOT o.cancel_requested AND o.not_before <= now() AND o.deadline_at > now()
  AND (o.attempts > 0 OR o.queue_until IS NULL OR o.queue_until > now())
RETURNING o.call_id, o.rev, o.attempts, o.unspent_attempts, o.effect_unknown, o.cancel_requested, o.effect::text AS effect, o.tool, o.tool_version, o.args_hash,
    o.attempt_timeout_ms, (date_part('epoch', o.deadline_at - now()) * 1000)::bigint AS remaining_ms,
    (date_part('epoch', now() - o.first_started_at) * 1000)::bigint AS since_first_start_ms,
    o.attempt_until, (date_part('epoch', now() - o.accepted_at) * 1000)::bigint AS queued_ms,
    o.tenant, o.session, o.run, o.meta::text AS meta, o.language, o.dispatcher_id,
    o.traceparent, o.tracestate, o.baggage
