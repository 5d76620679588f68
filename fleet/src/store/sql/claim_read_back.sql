WITH call AS MATERIALIZED (
    -- Waits for the lock: a claim under way holds the row, and only its end shows which attempt has the call.
    SELECT *
    FROM toolfleet.open_calls
    WHERE call_id = $1
    FOR UPDATE
)
SELECT /* claimed */
FROM call o
WHERE o.attempt_id = $2 AND o.state = 'running'
