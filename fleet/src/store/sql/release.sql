WITH turn AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[]) AS turn (tenant, share)
), next AS MATERIALIZED (
    SELECT o.call_id
    FROM turn t
    CROSS JOIN LATERAL (
        -- By when they came and what their priority makes of that: the first of each priority, read in the order of the index.
        SELECT call_id
        FROM (
            (SELECT call_id, accepted_at + make_interval(secs => $5) AS turn_at FROM toolfleet.open_calls
             WHERE held AND line = $1 AND tenant = t.tenant AND priority = 0 /* may run */
             ORDER BY accepted_at, call_id LIMIT t.share)
            UNION ALL
            (SELECT call_id, accepted_at + make_interval(secs => $6) FROM toolfleet.open_calls
             WHERE held AND line = $1 AND tenant = t.tenant AND priority = 1 /* may run */
             ORDER BY accepted_at, call_id LIMIT t.share)
            UNION ALL
            (SELECT call_id, accepted_at + make_interval(secs => $7) FROM toolfleet.open_calls
             WHERE held AND line = $1 AND tenant = t.tenant AND priority = 2 /* may run */
             ORDER BY accepted_at, call_id LIMIT t.share)
        ) first
        ORDER BY turn_at, call_id
        LIMIT t.share
    ) o
), mine AS MATERIALIZED (
    -- Looked at once more under the lock: another dispatcher may have released it, somebody may have taken it back.
    SELECT o.call_id AS id, greatest(o.accepted_at, o.not_before) AS held_since
    FROM next
    JOIN toolfleet.open_calls o USING (call_id)
    WHERE o.held AND o.state = 'queued'
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE toolfleet.open_calls
-- From now on it may run: a pointer that is lost is looked for from this moment.
SET held = false, publish_n = publish_n + 1, not_before = now()
FROM mine
WHERE call_id = mine.id AND held AND state = 'queued'
RETURNING (date_part('epoch', now() - mine.held_since) * 1000)::bigint AS held_ms, /* pointer */
