WITH turn AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::bigint[]) AS turn (tenant, share)
), next AS MATERIALIZED (
    SELECT o.place
    FROM turn t
    CROSS JOIN LATERAL (
        -- By when they came and what their priority makes of that: the first of each priority, read in the order of the index.
        -- What cannot run any more is ended by the walk over open calls and must not be in the way of others until then.
        SELECT place
        FROM (
            (SELECT ctid AS place, call_id, accepted_at + make_interval(secs => $5) AS turn_at FROM toolfleet.open_calls
             WHERE held AND line = $2 AND tenant = t.tenant AND priority = 0 AND /* over at */ > now()
             ORDER BY accepted_at, call_id LIMIT t.share)
            UNION ALL
            (SELECT ctid, call_id, accepted_at + make_interval(secs => $6) FROM toolfleet.open_calls
             WHERE held AND line = $2 AND tenant = t.tenant AND priority = 1 AND /* over at */ > now()
             ORDER BY accepted_at, call_id LIMIT t.share)
            UNION ALL
            (SELECT ctid, call_id, accepted_at + make_interval(secs => $7) FROM toolfleet.open_calls
             WHERE held AND line = $2 AND tenant = t.tenant AND priority = 2 AND /* over at */ > now()
             ORDER BY accepted_at, call_id LIMIT t.share)
        ) first
        ORDER BY turn_at, call_id
        LIMIT t.share
    ) o
), mine AS MATERIALIZED (
    -- Looked at once more under the lock: another dispatcher may have released it, somebody may have taken it back.
    -- Row by row and by its place: joined by their ids, all of the line is read for each where a vacuum saw an empty table last.
    SELECT o.*
    FROM next
    CROSS JOIN LATERAL (
        SELECT o.ctid AS place, o.call_id AS id, greatest(o.accepted_at, o.not_before) AS held_since
        FROM toolfleet.open_calls o
        WHERE o.ctid = next.place AND o.held AND o.state = 'queued'
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) o
), released AS (
    UPDATE toolfleet.open_calls
    -- From now on it may run: a pointer that is lost is looked for from this moment.
    SET held = false, publish_n = publish_n + 1, not_before = now()
    -- Who was changed before it was locked has another place, which this statement does not see: its turn is the next one.
    WHERE ctid = ANY(ARRAY(SELECT place FROM mine)) AND state = 'queued'
    RETURNING /* pointer */
)
SELECT released.*, (date_part('epoch', now() - mine.held_since) * 1000)::bigint AS held_ms
FROM released
JOIN mine ON mine.id = released.call_id
