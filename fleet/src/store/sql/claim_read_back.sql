WITH call AS MATERIALIZED (
    -- Locked whoever has it: a claim under way holds the row, and only its end tells whose the call is.
    SELECT *
    FROM toolfleet.open_calls
    WHERE call_id = $1
    FOR UPDATE
)
SELECT /* claimed */
FROM call o
WHERE o.attempt_id = $2 AND o.state = 'running'
