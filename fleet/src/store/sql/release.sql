WITH turn AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[]) AS turn (line, tenant, share)
), next AS MATERIALIZED (
    SELECT o.place
    FROM turn t
    CROSS JOIN LATERAL (
        -- By their time and their priority's penalty: the first of each priority, read in the order of the index. The walk over
        -- open calls ends those that cannot run any more; until then they must not delay any call.
        SELECT place
        FROM (
            (SELECT ctid AS place, call_id, accepted_at + make_interval(secs => $5) AS turn_at FROM toolfleet.open_calls
             WHERE held AND line = t.line AND tenant = t.tenant AND priority = 0 AND /* expires at */ > now()
             ORDER BY accepted_at, call_id LIMIT t.share)
            UNION ALL
            (SELECT ctid, call_id, accepted_at + make_interval(secs => $6) FROM toolfleet.open_calls
             WHERE held AND line = t.line AND tenant = t.tenant AND priority = 1 AND /* expires at */ > now()
             ORDER BY accepted_at, call_id LIMIT t.share)
            UNION ALL
            (SELECT ctid, call_id, accepted_at + make_interval(secs => $7) FROM toolfleet.open_calls
             WHERE held AND line = t.line AND tenant = t.tenant AND priority = 2 AND /* expires at */ > now()
             ORDER BY accepted_at, call_id LIMIT t.share)
        ) first
        ORDER BY turn_at, call_id
        LIMIT t.share
    ) o
), mine AS MATERIALIZED (
    -- Checked again under the lock: another dispatcher may have released it, a client may have cancelled it.
    -- Row by row and by ctid: a join by id reads the whole line for each row where the last vacuum saw an empty table.
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
    -- From now on it may run: the sweep counts its age, for a lost pointer, from this moment.
    SET held = false, publish_n = publish_n + 1, not_before = now()
    -- A row that was changed before it was locked has another ctid, which this statement does not see: the next turn finds it.
    WHERE ctid = ANY(ARRAY(SELECT place FROM mine)) AND state = 'queued'
    RETURNING /* pointer */
)
SELECT released.*, (date_part('epoch', now() - mine.held_since) * 1000)::bigint AS held_ms
FROM released
JOIN mine ON mine.id = released.call_id
