SELECT call_id, tenant, session, tool, tool_version, rev, accepted_at, attempts, language, coercions::text AS coercions,
    state::text AS state, attempt_id, doubt_since AS decided_at, last_error::text AS error,
    (date_part('epoch', coalesce(first_started_at, doubt_since) - accepted_at) * 1000)::bigint AS queued_ms,
    (date_part('epoch', doubt_since - coalesce(first_started_at, doubt_since)) * 1000)::bigint AS run_ms,
    -- Of open calls alone.
    done_secret, held, /* left ms */ AS left_ms, cancel_requested, effect_unknown, toolfleet.applied_late(o.call_id) AS applied_late, quarantined,
    probe_of IS NOT NULL AS is_probe,
    -- Of those alone that wait for somebody.
    awaiting, due_at, CASE WHEN awaiting = 'client' AND coercions IS NOT NULL
        OR awaiting = 'approval' AND (coercions IS NOT NULL OR approval->>'by' = 'caller') THEN args::text END AS shown_args,
    CASE WHEN awaiting = 'approval' THEN approval::text END AS approval,
    CASE WHEN awaiting = 'approval' THEN toolfleet.shown_hash(args_hash, approval) END AS args_hash,
    (asked->'requests')::text AS requests, (asked->'input')::text AS input,
    CASE WHEN awaiting IS NOT NULL THEN meta->>'principal' END AS principal,
    -- Of those alone that are over.
    NULL AS actor, NULL AS outcome, NULL AS source, NULL AS effect_known, NULL AS result, NULL AS degraded,
    NULL AS settled_by
FROM toolfleet.open_calls o
WHERE call_id = ANY($1) AND ($4::text IS NULL OR tenant = $4) /* which */
UNION ALL
SELECT call_id, tenant, session, tool, tool_version, rev, accepted_at, attempts, language, coercions::text,
    state::text, attempt_id, finished_at, error::text, queued_ms, run_ms,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    actor, outcome::text, source::text, effect_known::text, coalesce(preview, result)::text, degraded::text,
    CASE WHEN source = 'settled' THEN details->>'settled_by' END
FROM toolfleet.finished_calls
-- Between them: the days that hold none of these are not opened.
WHERE call_id = ANY($1) AND call_id BETWEEN $2 AND $3 AND ($4::text IS NULL OR tenant = $4)
