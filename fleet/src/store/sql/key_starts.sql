WITH RECURSIVE waiting AS (
    -- One index entry for each line.
    (SELECT o.line, o.tenant, o.accepted_at, 1 AS place FROM toolfleet.open_calls o
     WHERE o.held AND o.line > $2 ORDER BY o.line, o.tenant, o.priority, o.accepted_at LIMIT 1)
    UNION ALL
    SELECT n.line, n.tenant, n.accepted_at, w.place + 1
    FROM waiting w
    CROSS JOIN LATERAL (
        SELECT o.line, o.tenant, o.accepted_at FROM toolfleet.open_calls o
        WHERE o.held AND o.line > w.line ORDER BY o.line, o.tenant, o.priority, o.accepted_at LIMIT 1) n
    WHERE starts_with(w.line, $3) AND w.place < $4
), rate AS MATERIALIZED (
    SELECT r.*, clock_timestamp() AS at FROM toolfleet.rate_of($1) r
)
SELECT split_part(w.line, '/', 3), w.tenant, w.accepted_at,
       -- Null: the tool has no such limit any more.
       CASE WHEN r.shared_by = 'argument' THEN greatest(0, coalesce(toolfleet.rate_room(
               toolfleet.rate_base(b.tat, b.closed_until, r.at, r.step_us, r.burst), r.at, $5, r.step_us, r.burst), 0)
           - released.calls)::bigint END AS free
FROM waiting w
LEFT JOIN rate r ON true
LEFT JOIN toolfleet.rate_buckets b
  ON b.bucket = toolfleet.bucket_of('argument', r.name, w.tenant || '/' || split_part(w.line, '/', 3))
CROSS JOIN LATERAL (
    -- As in free_starts.sql: they will ask for a start time.
    SELECT count(*) AS calls FROM (
        SELECT FROM toolfleet.open_calls o
        WHERE o.line = w.line AND NOT o.held AND o.line LIKE 'tool/%' AND o.state = 'queued' AND o.due_at IS NULL
          AND (o.rate_at IS NULL OR o.rate_at < clock_timestamp() - interval '1 second')
          AND o.not_before > clock_timestamp() - interval '2 seconds'
        LIMIT 10000) o) released
WHERE starts_with(w.line, $3)
ORDER BY w.place
