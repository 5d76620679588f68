o.call_id, o.claim_rev AS rev, o.attempts, o.unspent_attempts, o.effect_unknown, o.cancel_requested, o.effect::text AS effect,
    o.tool, o.tool_version, o.args_hash, o.attempt_timeout_ms,
    (date_part('epoch', o.deadline_at - now()) * 1000)::bigint AS remaining_ms,
    (date_part('epoch', now() - o.first_started_at) * 1000)::bigint AS since_first_start_ms, o.attempt_until,
    (date_part('epoch', now() - o.accepted_at) * 1000)::bigint AS queued_ms,
    o.tenant, o.session, o.run, o.meta::text AS meta, o.language, o.dispatcher_id, o.done_secret, o.traceparent, o.tracestate, o.baggage,
    o.probe_of IS NOT NULL AS is_probe, o.asked::text AS asked
