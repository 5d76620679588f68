WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                $9::text[], $10::text[], $11::bigint[], $12::int[], $18::int[], $13::text[], $14::text[], $15::text[],
                $16::text[], $17::text[], $19::boolean[], $20::text[], $21::text[])
        AS input (call_id, by_attempt, by_rev, kind, new_state, outcome, source, effect_known, result, error, pause_ms,
                  lost, unspent, attempt_outcome, attempt_effect, attempt_error, actor, reason, over, degraded, preview)
), mine AS MATERIALIZED (
    SELECT i.*, o.state, o.rev, o.attempts, o.worker_id, o.claim_rev, o.attempt_started_at, o.attempt_until,
        o.attempt_timeout_ms
    FROM input i
    JOIN toolfleet.open_calls o USING (call_id)
    WHERE o.call_id = ANY($1)
      AND ((i.by_attempt = o.attempt_id AND o.state IN ('running', 'in_doubt', 'awaiting_client'))
           OR (i.by_rev = o.rev AND (o.state = 'queued' OR o.awaiting IN ('approval', 'input'))))
      AND (i.kind <> 'again' OR (o.state = 'running' AND NOT o.cancel_requested) OR o.awaiting = 'completion')
      AND (i.kind <> 'doubt' OR o.state <> 'in_doubt')
      -- A doubt ends by evidence, not by a cancellation. Where attempts may have been forgotten, only success is evidence.
      AND (i.kind <> 'end' OR o.state <> 'in_doubt'
           OR i.new_state <> 'cancelled' AND (NOT o.quarantined OR i.new_state = 'succeeded'))
      -- That this attempt never started, or that there is none, proves nothing about an earlier one.
      AND NOT (i.kind = 'end' AND i.effect_known = 'not_applied' AND coalesce(i.attempt_outcome, 'not_started') = 'not_started'
               AND o.effect_unknown AND o.effect IN ('idempotent', 'once'))
      -- Nor can a call end as not applied when one of its attempts has reported its effect, even late.
      AND NOT (i.kind = 'end' AND i.effect_known = 'not_applied' AND toolfleet.applied_late(o.call_id))
    ORDER BY o.call_id
    FOR UPDATE OF o /* locks */
), ended AS (
    DELETE FROM toolfleet.open_calls o
    USING mine m
    WHERE o.call_id = ANY($1) AND o.call_id = m.call_id AND m.kind = 'end'
    /* finish */
), again AS (
    UPDATE toolfleet.open_calls o
    SET state = 'queued', awaiting = NULL, rev = o.rev + 1, attempt_id = NULL, worker_id = NULL, claim_rev = NULL,
        attempt_started_at = NULL, attempt_until = NULL, attempt_timeout_ms = NULL,
        not_before = now() + m.pause_ms * interval '1 millisecond',
        due_at = now() + m.pause_ms * interval '1 millisecond',
        publish_n = o.publish_n + 1, lost_attempts = o.lost_attempts + m.lost,
        unspent_attempts = o.unspent_attempts + m.unspent,
        -- What an attempt before may have done is settled only by the tool's own answer, which recognises the key.
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
    SET state = 'in_doubt', awaiting = NULL, held = false, rev = o.rev + 1, doubt_since = now(), doubt_reason = m.reason, attempt_until = u.until,
        -- From here on a probe may ask.
        due_at = greatest(now(), u.until), last_error = m.error::json
    FROM mine m
    -- A queued call has no attempt; what is in doubt is one that ended before, perhaps long before its time was over.
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
-- Not joined with what was inserted: two lists without an index meet row by row.
SELECT /* moved */ FROM ended
UNION ALL
SELECT /* moved */ FROM again
UNION ALL
SELECT /* moved */ FROM doubted
