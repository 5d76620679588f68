WITH wanted AS MATERIALIZED (
    SELECT w.place - 1 AS place, w.calls, $1 || coalesce('/' || w.key, '') AS owner, r.shared_by, r.name, r.step_us, r.burst
    FROM unnest($2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY AS w (tool, calls, key, place)
    CROSS JOIN LATERAL toolfleet.rate_of(w.tool) r
    -- In the order in which claims lock them.
    ORDER BY r.shared_by, r.name, owner, w.place
), seen AS MATERIALIZED (
    -- A look without a lock: start times only move on, so where none is free none will be, and nobody waits for the row to hear it.
    SELECT w.*, m.at, b.bucket IS NULL OR toolfleet.rate_room(m.base, m.at, 0, w.step_us, w.burst) > 0 AS may_be_free,
        m.base - (w.burst - 1) * w.step_us * interval '1 microsecond' AS next_at
    FROM wanted w
    LEFT JOIN toolfleet.rate_buckets b ON b.bucket = toolfleet.bucket_of(w.shared_by, w.name, w.owner)
    CROSS JOIN LATERAL (
        SELECT c.at, toolfleet.rate_base(b.tat, b.closed_until, c.at, w.step_us, w.burst) AS base
        FROM (SELECT clock_timestamp() AS at OFFSET 0) c) m
)
SELECT w.place, coalesce(s.given, 0) AS given,
       -- Null: a shared limit has no numbers, so that nothing starts.
       CASE WHEN w.step_us IS NOT NULL THEN
           greatest(1, ceil(extract(epoch FROM coalesce(s.next_at, w.next_at) - coalesce(s.at, w.at)) * 1000))::float8 END AS next_ms
FROM seen w
LEFT JOIN LATERAL (
    -- A condition of the join would be asked after the function; here nothing is called unless it holds.
    SELECT t.* FROM toolfleet.take_starts(w.shared_by, w.name, w.owner, w.step_us, w.burst, w.calls, 0, true) t
    WHERE w.step_us IS NOT NULL AND w.may_be_free
    OFFSET 0
) s ON true
