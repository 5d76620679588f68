WITH me AS MATERIALIZED (
    -- Whoever fences this worker takes the row FOR UPDATE: then either it sees this claim, or this claim sees the fence.
    SELECT worker_id
    FROM toolfleet.worker_processes
    WHERE worker_id = $1 AND state IN ('live', 'draining')
    FOR KEY SHARE
)
