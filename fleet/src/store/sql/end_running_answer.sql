SELECT call_id, rev + 1 AS rev, now() AS moved_at, new_state AS state, tool, tool_version, tenant, session, dispatcher_id, attempts,
    coercions::text AS coercions,
    (date_part('epoch', coalesce(first_started_at, now()) - accepted_at) * 1000)::bigint AS queued_ms,
    (date_part('epoch', now() - coalesce(first_started_at, now())) * 1000)::bigint AS run_ms
FROM ended
