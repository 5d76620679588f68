WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                $9::text[], $10::text[], $11::bigint[], $12::int[], $18::int[], $13::text[], $14::text[], $15::text[],
                $16::text[], $17::text[], $19::boolean[], $20::text[])
        AS input (call_id, by_attempt, by_rev, kind, new_state, outcome, source, effect_known, result, error, pause_ms,
                  lost, unspent, attempt_outcome, attempt_effect, attempt_error, actor, reason, over, degraded)
), mine AS MATERIALIZED (
    SELECT i.*, o.state, o.rev, o.attempts, o.worker_id, o.claim_rev, o.attempt_started_at, o.attempt_until,
        o.attempt_timeout_ms
    FROM input i
    JOIN toolfleet.open_calls o USING (call_id)
    WHERE o.call_id = ANY($1)
      AND ((i.by_attempt = o.attempt_id AND o.state IN ('running', 'in_doubt'))
           OR (i.by_rev = o.rev AND o.state = 'queued'))
      AND (i.kind <> 'again' OR (o.state = 'running' AND NOT o.cancel_requested))
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
