WITH wanted AS MATERIALIZED (
    SELECT w.place - 1 AS place, w.calls, r.shared_by, r.name, r.step_us, r.burst
    FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS w (tool, calls, place)
    CROSS JOIN LATERAL toolfleet.rate_of(w.tool) r
    -- In the order in which claims lock them.
    ORDER BY r.shared_by, r.name, w.place
)
SELECT w.place, coalesce(s.given, 0) AS given,
       greatest(1, ceil(extract(epoch FROM s.next_at - s.at) * 1000))::float8 AS next_ms
FROM wanted w
LEFT JOIN LATERAL toolfleet.take_starts(w.shared_by, w.name, $1, w.step_us, w.burst, w.calls, 0, true) s ON w.step_us IS NOT NULL
