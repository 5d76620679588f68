-- The same as claim.sql, but without rows that another statement has locked.
WITH me AS MATERIALIZED (
    -- A fence of this worker takes the row FOR UPDATE. So either the fence sees this claim, or this claim sees the fence.
    SELECT worker_id
    FROM toolfleet.worker_processes
    WHERE worker_id = $1 AND state IN ('live', 'draining')
    FOR KEY SHARE
), input AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::bigint[]) AS input (call_id, attempt_id, timeout_ms)
), due AS MATERIALIZED (
    SELECT o.call_id, i.attempt_id, i.timeout_ms
    FROM input i
    JOIN toolfleet.open_calls o USING (call_id)
    CROSS JOIN me
    WHERE o.call_id = ANY($2) AND o.state = 'queued' AND NOT o.held AND NOT o.cancel_requested AND o.not_before <= now() AND o.deadline_at > now()
      AND (o.attempts > 0 OR o.queue_until IS NULL OR o.queue_until > now())
    ORDER BY o.call_id
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE toolfleet.open_calls o
SET state = 'running', rev = o.rev + 1, attempts = o.attempts + 1, attempt_id = d.attempt_id, worker_id = $1,
    claim_rev = o.rev + 1, attempt_started_at = now(), first_started_at = coalesce(o.first_started_at, now()),
    attempt_timeout_ms = least(d.timeout_ms, (date_part('epoch', o.deadline_at - now()) * 1000)::bigint),
    attempt_until = least(now() + d.timeout_ms * interval '1 millisecond', o.deadline_at)
FROM due d
WHERE o.call_id = ANY($2) AND o.call_id = d.call_id AND o.state = 'queued' AND NOT o.held AND NOT o.cancel_requested AND o.not_before <= now()
RETURNING o.call_id, o.rev, o.attempts, o.unspent_attempts, o.effect_unknown, o.cancel_requested, o.effect::text AS effect, o.tool, o.tool_version, o.args_hash,
    o.attempt_timeout_ms, (date_part('epoch', o.deadline_at - now()) * 1000)::bigint AS remaining_ms,
    (date_part('epoch', now() - o.first_started_at) * 1000)::bigint AS since_first_start_ms,
    o.attempt_until, (date_part('epoch', now() - o.accepted_at) * 1000)::bigint AS queued_ms,
    o.tenant, o.session, o.run, o.meta::text AS meta, o.language, o.dispatcher_id,
    o.traceparent, o.tracestate, o.baggage
