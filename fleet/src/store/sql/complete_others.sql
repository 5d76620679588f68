-- Calls that are not over, and the answer for all.
, again AS (
    UPDATE toolfleet.open_calls o
    SET state = 'queued', rev = o.rev + 1, attempt_id = NULL, worker_id = NULL, claim_rev = NULL,
        attempt_started_at = NULL, attempt_until = NULL, attempt_timeout_ms = NULL,
        not_before = now() + m.pause_ms * interval '1 millisecond',
        due_at = now() + m.pause_ms * interval '1 millisecond',
        publish_n = o.publish_n + 1, lost_attempts = o.lost_attempts + m.lost,
        unspent_attempts = o.unspent_attempts + m.unspent,
        -- Only the tool's own answer settles what an earlier attempt may have done, for the tool recognises the key.
        effect_unknown = CASE m.attempt_outcome
            WHEN 'unknown' THEN true
            WHEN 'definite_failure' THEN toolfleet.applied_late(o.call_id)
            ELSE o.effect_unknown END,
        last_error = m.error::json, obstacle = NULL
    FROM mine m
    WHERE o.call_id = ANY($1) AND o.call_id = m.call_id AND m.kind = 'again'
    RETURNING o.*
), doubted AS (
    UPDATE toolfleet.open_calls o
    SET state = 'in_doubt', held = false, rev = o.rev + 1, doubt_since = now(), doubt_reason = m.reason, attempt_until = u.until,
        -- From here on a probe may ask.
        due_at = greatest(now(), u.until), last_error = m.error::json
    FROM mine m
    -- A queued call has no attempt; the doubt is about one that ended earlier, perhaps long before its time was over.
    CROSS JOIN LATERAL (SELECT coalesce(m.attempt_until, toolfleet.unknown_until(m.call_id)) AS until) u
    WHERE o.call_id = ANY($1) AND o.call_id = m.call_id AND m.kind = 'doubt'
    RETURNING o.*
), ended_attempts AS (
    INSERT INTO toolfleet.ended_attempts (
        call_id, attempt_id, number, claim_rev, worker_id, started_at, timeout_ms, outcome, effect_known, error, over)
    SELECT call_id, by_attempt, attempts, claim_rev, worker_id, attempt_started_at, attempt_timeout_ms,
        attempt_outcome::toolfleet.attempt_outcome, attempt_effect::toolfleet.effect_known, attempt_error::json, over
    FROM mine
    WHERE kind IN ('again', 'doubt') AND by_attempt IS NOT NULL
), notes AS (
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, attempt_id, details)
    SELECT call_id, rev + 1, state, CASE kind WHEN 'again' THEN 'queued' ELSE 'in_doubt' END::toolfleet.call_state,
        actor, reason, by_attempt,
        CASE kind WHEN 'again' THEN json_build_object('pause_ms', pause_ms, 'spent', unspent = 0) END
    FROM mine
    WHERE kind IN ('again', 'doubt')
)
SELECT call_id, rev, now() AS moved_at, state, tool, tool_version, tenant, session, dispatcher_id, attempts, coercions::text AS coercions,
    (date_part('epoch', coalesce(first_started_at, now()) - accepted_at) * 1000)::bigint AS queued_ms,
    (date_part('epoch', now() - coalesce(first_started_at, now())) * 1000)::bigint AS run_ms
FROM (
    -- Not joined with the inserted rows: two lists without an index are compared row by row.
    SELECT call_id, rev + 1 AS rev, new_state AS state, tool, tool_version, tenant, session, dispatcher_id, attempts, coercions,
        first_started_at, accepted_at
    FROM ended
    UNION ALL
    SELECT call_id, rev, state::text, tool, tool_version, tenant, session, dispatcher_id, attempts, coercions, first_started_at, accepted_at
    FROM again
    UNION ALL
    SELECT call_id, rev, state::text, tool, tool_version, tenant, session, dispatcher_id, attempts, coercions, first_started_at, accepted_at
    FROM doubted
) moved
