WITH me AS MATERIALIZED (
    -- A fence of this worker takes the row FOR UPDATE. So either the fence sees this claim, or this claim sees the fence.
    SELECT worker_id
    FROM toolfleet.worker_processes
    WHERE worker_id = $1 AND state IN ('live', 'draining')
    FOR KEY SHARE
)
