-- A call that this worker cannot run waits. Its history says why, each reason once: workers that lack different things may take
-- turns with it for days.
WITH found AS MATERIALIZED (
    SELECT call_id, now() + make_interval(secs => least(greatest($3, extract(epoch FROM now() - accepted_at) / 8), $5)) AS again_at,
        obstacle->>'why' IS DISTINCT FROM $4::text::json->>'why' AND NOT EXISTS (
        SELECT FROM toolfleet.call_notes n
        WHERE n.call_id = $1 AND n.reason = 'cannot_run' AND n.details->>'why' = $4::text::json->>'why') AS is_news
    FROM toolfleet.open_calls
    WHERE call_id = $1 AND rev = $2 AND state = 'queued' AND NOT held AND due_at IS NULL
    FOR UPDATE
), postponed AS (
    UPDATE toolfleet.open_calls o
    SET not_before = f.again_at, due_at = f.again_at, publish_n = o.publish_n + 1, rev = o.rev + f.is_news::integer, obstacle = $4::text::json
    FROM found f
    WHERE o.call_id = $1 AND o.call_id = f.call_id AND o.state = 'queued'
    RETURNING o.call_id, o.rev, f.is_news
), told AS (
    INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason, details)
    SELECT call_id, rev, 'queued', 'queued', $6, 'cannot_run', json_build_object(
        'why', $4::text::json->>'why', 'worker', $4::text::json->>'worker', 'lack', $4::text::json->>'lack',
        'secret', $4::text::json->>'secret')
    FROM postponed
    WHERE is_news
)
SELECT call_id FROM postponed
