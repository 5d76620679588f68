/* claiming worker */, input AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::bigint[]) AS input (call_id, attempt_id, timeout_ms)
), due AS MATERIALIZED (
    SELECT o.call_id, o.tool, i.attempt_id, i.timeout_ms
    FROM input i
    JOIN toolfleet.open_calls o USING (call_id)
    CROSS JOIN me
    -- Repeated: the list makes Postgres use the index, whatever the statistics of an emptied table are.
    WHERE o.call_id = ANY($2)
      AND /* claimable */
    ORDER BY o.call_id
    FOR UPDATE OF o /* locks */
), tools AS MATERIALIZED (
    SELECT d.tool, count(*) AS wanted, (
        SELECT v.concurrency FROM toolfleet.tool_versions v WHERE v.tool = d.tool ORDER BY v.version DESC LIMIT 1) AS places
    FROM due d
    GROUP BY d.tool
), seen AS MATERIALIZED (
    SELECT s.tool, s.slot, s.attempt_id, t.places, EXISTS (
        SELECT FROM toolfleet.open_calls o
        WHERE o.call_id = s.call_id AND o.attempt_id = s.attempt_id
          AND (o.state = 'running' OR o.state = 'in_doubt' AND o.attempt_until > now())) AS live
    FROM tools t
    JOIN toolfleet.tool_slots s USING (tool)
    WHERE t.places IS NOT NULL
), free AS MATERIALIZED (
    -- Taken places beyond the limit stem from a larger one; they count until they are free.
    SELECT tool, slot, attempt_id
    FROM (
        SELECT s.*, count(*) FILTER (WHERE live) OVER (
            PARTITION BY tool ORDER BY slot DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS taken_behind
        FROM seen s) s
    WHERE NOT live AND slot + taken_behind <= places
), taken AS MATERIALIZED (
    SELECT t.tool, t.places, ARRAY(
        SELECT s.slot
        FROM free f
        JOIN toolfleet.tool_slots s USING (tool, slot)
        -- The same attempt as when the place was found free: a place that another claim has taken since is locked in its newest
        -- version, and this statement sees an older version of that call.
        WHERE f.tool = t.tool AND s.attempt_id IS NOT DISTINCT FROM f.attempt_id
        ORDER BY f.slot
        LIMIT t.wanted
        FOR UPDATE OF s SKIP LOCKED) AS slots
    FROM tools t
), decided AS MATERIALIZED (
    SELECT d.*, t.places IS NULL OR d.place <= cardinality(t.slots) AS admitted, t.slots[d.place] AS slot
    FROM (SELECT due.*, row_number() OVER (PARTITION BY tool ORDER BY call_id) AS place FROM due) d
    JOIN taken t USING (tool)
), places AS (
    UPDATE toolfleet.tool_slots s
    SET call_id = d.call_id, attempt_id = d.attempt_id
    FROM decided d
    WHERE s.tool = d.tool AND s.slot = d.slot
), held AS (
    -- Its message is acknowledged; a dispatcher releases the call again when there is room.
    UPDATE toolfleet.open_calls o
    SET held = true, line = 'tool/' || d.tool
    FROM decided d
    WHERE o.call_id = ANY($2) AND o.call_id = d.call_id AND NOT d.admitted AND o.state = 'queued'
), claimed AS (
    UPDATE toolfleet.open_calls o
    /* claim set */
    FROM decided i
    WHERE o.call_id = ANY($2) AND o.call_id = i.call_id AND i.admitted AND /* claimable */
    RETURNING /* claimed */
)
SELECT c.*, d.call_id AS asked, true AS admitted, d.slot IS NOT NULL AS took_place
FROM claimed c
JOIN decided d ON d.call_id = c.call_id
UNION ALL
SELECT c.*, d.call_id, false, false
FROM decided d
LEFT JOIN claimed c ON false
WHERE NOT d.admitted
