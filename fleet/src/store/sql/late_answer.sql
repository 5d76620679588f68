WITH over AS MATERIALIZED (
    SELECT effect_known::text AS settled_as FROM toolfleet.finished_calls WHERE call_id = $1
), attempt AS (
    SELECT number, worker_id, started_at, timeout_ms FROM toolfleet.ended_attempts WHERE call_id = $1 AND attempt_id = $2 AND NOT late
    UNION ALL
    -- The call ended with it, by another answer.
    SELECT attempts, worker_id, attempt_started_at, attempt_timeout_ms FROM toolfleet.finished_calls WHERE call_id = $1 AND attempt_id = $2
    LIMIT 1
), stored AS (
    INSERT INTO toolfleet.ended_attempts (
        call_id, attempt_id, number, worker_id, started_at, timeout_ms, outcome, effect_known, over, late)
    SELECT $1, $2, number, worker_id, started_at, timeout_ms, 'applied', 'applied', true, true
    FROM attempt WHERE EXISTS (SELECT FROM over WHERE settled_as <> 'applied')
    ON CONFLICT DO NOTHING
)
SELECT EXISTS (SELECT FROM attempt) AS known, settled_as FROM over
