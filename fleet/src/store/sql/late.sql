WITH open AS MATERIALIZED (
    -- A settlement locks the call too. So either it sees this evidence, or this statement sees its decision.
    SELECT FROM toolfleet.open_calls WHERE call_id = $1 FOR KEY SHARE
), place AS MATERIALIZED (
    SELECT NULL::text AS settled_as FROM open
    UNION ALL
    SELECT effect_known::text FROM toolfleet.finished_calls WHERE call_id = $1
), recorded AS MATERIALIZED (
    -- This worker's own record of how the attempt ended: with one, nothing was late.
    SELECT FROM toolfleet.call_notes
    WHERE call_id = $1 AND attempt_id = $2 AND actor = $11 AND from_state <> to_state
    UNION ALL
    SELECT FROM toolfleet.finished_calls WHERE call_id = $1 AND attempt_id = $2 AND actor = $11
), stored AS (
    INSERT INTO toolfleet.ended_attempts (
        call_id, attempt_id, number, worker_id, started_at, timeout_ms, outcome, effect_known, error, over, late)
    SELECT $1, $2, $3, $4, coalesce(
            (SELECT started_at FROM toolfleet.ended_attempts WHERE call_id = $1 AND attempt_id = $2 AND NOT late),
            $5 - $6 * interval '1 millisecond'),
        $6, $7::toolfleet.attempt_outcome, $8::toolfleet.effect_known, $9::json, $10, true
    FROM place
    WHERE NOT EXISTS (SELECT FROM recorded)
    ON CONFLICT DO NOTHING
    RETURNING outcome
), marked AS (
    -- A statement that ends the waiting call reads this: a reported effect must not end as if it had not happened.
    UPDATE toolfleet.open_calls SET effect_unknown = true
    WHERE call_id = $1 AND state IN ('queued', 'running') AND effect <> 'transaction' AND EXISTS (SELECT FROM stored WHERE outcome = 'applied')
)
SELECT EXISTS (SELECT FROM place) AS known, EXISTS (SELECT FROM recorded) AS recorded,
    (SELECT settled_as FROM place) AS settled_as
