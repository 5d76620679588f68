WITH rate AS MATERIALIZED (
    SELECT r.*, clock_timestamp() AS at FROM toolfleet.rate_of($1) r
), asked AS MATERIALIZED (
    SELECT toolfleet.bucket_of(r.shared_by, r.name, a.tenant) AS bucket, a.tenant
    FROM rate r
    CROSS JOIN LATERAL (
        -- Where each value has its own line, calls without a key share the bucket of their tenant.
        SELECT t.tenant FROM unnest($2::text[]) AS t (tenant) WHERE r.shared_by IN ('tenant', 'argument')
        UNION ALL
        SELECT NULL WHERE r.shared_by NOT IN ('tenant', 'argument')) a
), lines AS MATERIALIZED (
    -- Of a shared limit, the lines of all its tools.
    SELECT 'tool/' || v.tool AS line
    FROM rate r
    CROSS JOIN LATERAL (SELECT DISTINCT ON (t.tool) t.tool, t.rate_limit FROM toolfleet.tool_versions t ORDER BY t.tool, t.version DESC) v
    WHERE r.shared_by = 'share' AND v.rate_limit->>'share' = r.name
    UNION ALL
    SELECT 'tool/' || $1 FROM rate r WHERE r.shared_by <> 'share'
), released AS MATERIALIZED (
    -- They will ask for a start time. Those that have one are in the bucket's account already, and those that nobody has claimed
    -- for seconds stand in nobody's way: they may be in a queue whose workers are busy or gone. The claim is exact.
    SELECT CASE WHEN r.shared_by IN ('tenant', 'argument') THEN o.tenant END AS tenant, count(*) AS calls
    FROM rate r
    CROSS JOIN lines l
    CROSS JOIN LATERAL (
        SELECT o.tenant FROM toolfleet.open_calls o
        WHERE o.line = l.line AND NOT o.held AND o.line LIKE 'tool/%' AND o.state = 'queued' AND o.due_at IS NULL
          AND (o.rate_at IS NULL OR o.rate_at < r.at - interval '1 second') AND o.not_before > r.at - interval '2 seconds'
        -- As many as one look releases.
        LIMIT 10000) o
    GROUP BY 1
)
SELECT a.tenant, greatest(0, coalesce(toolfleet.rate_room(
           toolfleet.rate_base(b.tat, b.closed_until, r.at, r.step_us, r.burst), r.at, $3, r.step_us, r.burst), 0)
       - coalesce(n.calls, 0))::bigint AS free
FROM rate r
CROSS JOIN asked a
LEFT JOIN toolfleet.rate_buckets b ON b.bucket = a.bucket
LEFT JOIN released n ON n.tenant IS NOT DISTINCT FROM a.tenant
