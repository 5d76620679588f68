/* claiming worker */, input AS MATERIALIZED (
    -- `rate_mode`: what the rate limit may do.
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $6::text[]) AS input (call_id, attempt_id, timeout_ms, rate_mode)
), due AS MATERIALIZED (
    SELECT o.call_id, o.tool, o.tenant, o.run, o.session, o.effect_unknown, o.probe_of, o.rate_key, i.attempt_id, i.timeout_ms, i.rate_mode, coalesce(o.rate_at, CASE
            -- Its start time was taken at the door: no probe comes through it, and what has waited since has none, or a void one.
            -- For the second in which a dispatcher does not know of a new limit its calls start without.
            WHEN o.attempts = 0 AND o.probe_of IS NULL AND o.not_before = o.accepted_at AND (
                SELECT v.rate_limit IS NOT NULL AND v.manifest->>'on_limit' = 'refuse' AND v.applied_at <= o.accepted_at
                FROM toolfleet.tool_versions v WHERE v.tool = o.tool ORDER BY v.version DESC LIMIT 1) THEN o.accepted_at
            END) AS rate_at
    FROM input i
    JOIN toolfleet.open_calls o USING (call_id)
    CROSS JOIN me
    -- Repeated: the list makes Postgres use the index, whatever the statistics of an emptied table are.
    WHERE o.call_id = ANY($2)
      AND /* claimable */
    ORDER BY o.call_id
    FOR UPDATE OF o /* locks */
), newest AS MATERIALIZED (
    SELECT d.tool, v.concurrency, v.has_policy
    FROM (SELECT DISTINCT tool FROM due) d
    LEFT JOIN LATERAL (
        SELECT t.concurrency, t.policy IS NOT NULL AS has_policy
        FROM toolfleet.tool_versions t WHERE t.tool = d.tool ORDER BY t.version DESC LIMIT 1) v ON true
), ruled AS MATERIALIZED (
    -- Those with a policy; `kind`: of which it says the same.
    SELECT d.call_id, d.tenant, d.tool, d.run, d.session, d.effect_unknown,
           dense_rank() OVER (ORDER BY d.tenant, d.tool, d.run, d.session, d.effect_unknown) AS kind
    FROM due d
    JOIN newest n USING (tool)
    WHERE n.has_policy AND d.probe_of IS NULL
), said AS MATERIALIZED (
    -- It is asked once for each kind, and waits for nobody: calls of all tenants are here.
    SELECT k.kind, p.verdict, p.places, p.among
    FROM (SELECT DISTINCT ON (r.kind) r.* FROM ruled r ORDER BY r.kind) k
    CROSS JOIN LATERAL toolfleet.policy_says(k.tenant, k.tool, k.run, k.session, k.effect_unknown, true) p
), judged AS MATERIALIZED (
    SELECT d.*, s.stopped
    FROM due d
    LEFT JOIN (
        -- Refused is who comes when as many as may have happened. Of more calls than may happen yet the others come again, for those
        -- before them may not start.
        SELECT r.call_id, CASE
                WHEN p.verdict = 'busy' THEN 'busy'
                WHEN p.verdict <> 'passes' THEN 'forbidden'
                WHEN row_number() OVER (PARTITION BY p.verdict, p.among ORDER BY r.call_id) > p.places THEN 'busy'
            END AS stopped
        FROM ruled r
        JOIN said p USING (kind)) s USING (call_id)
), tools AS MATERIALIZED (
    SELECT j.tool, count(*) AS wanted, n.concurrency AS places
    FROM judged j
    JOIN newest n USING (tool)
    WHERE j.stopped IS NULL
    GROUP BY j.tool, n.concurrency
), seen AS MATERIALIZED (
    SELECT s.tool, s.slot, s.attempt_id, t.places, EXISTS (
        SELECT FROM toolfleet.open_calls o
        WHERE o.call_id = s.call_id AND o.attempt_id = s.attempt_id
          AND (o.state = 'running' OR o.awaiting = 'completion' OR o.state = 'in_doubt' AND o.attempt_until > now())) AS live
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
    FROM (
        SELECT j.*, row_number() OVER (PARTITION BY tool ORDER BY call_id) AS place FROM judged j WHERE j.stopped IS NULL) d
    JOIN taken t USING (tool)
), rates AS MATERIALIZED (
    SELECT t.tool, r.shared_by, r.name, r.step_us, r.burst FROM tools t CROSS JOIN LATERAL toolfleet.rate_of(t.tool) r
), asking AS MATERIALIZED (
    -- Those that have a place, or need none, and no start time. A start time that was not used for a second is void: after an
    -- outage they must not all start at once.
    SELECT d.call_id, r.*, w.owner, row_number() OVER (PARTITION BY r.shared_by, r.name, w.owner ORDER BY d.call_id) AS turn
    FROM decided d
    JOIN rates r USING (tool)
    CROSS JOIN LATERAL (
        SELECT CASE r.shared_by WHEN 'tenant' THEN d.tenant WHEN 'argument' THEN d.tenant || coalesce('/' || d.rate_key, '') END AS owner) w
    WHERE d.admitted AND d.rate_mode <> 'off' AND coalesce(d.rate_at < clock_timestamp() - interval '1 second', true)
), handed AS MATERIALIZED (
    -- In one order, so that two claims never wait for each other's bucket.
    SELECT b.shared_by, b.name, b.owner, b.step_us * interval '1 microsecond' AS step, s.verdict, s.given, s.first_at, s.at
    FROM (
        SELECT shared_by, name, owner, step_us, burst, count(*) AS wanted
        FROM asking WHERE step_us IS NOT NULL
        GROUP BY shared_by, name, owner, step_us, burst
        ORDER BY shared_by, name, owner) b
    CROSS JOIN LATERAL toolfleet.take_starts(
        b.shared_by, b.name, b.owner, b.step_us, b.burst, b.wanted, $5, /* waits */) s
), timed AS MATERIALIZED (
    SELECT d.*, CASE
            WHEN NOT d.admitted THEN 'no_place'
            WHEN a.call_id IS NULL THEN 'starts'
            WHEN h.verdict = 'busy' THEN 'busy'
            WHEN a.turn <= coalesce(h.given, 0) AND h.first_at + (a.turn - 1) * h.step <= h.at THEN 'starts'
            WHEN d.rate_mode = 'observe' THEN 'observed'
            -- Too far away, or a shared limit without numbers.
            WHEN a.turn > coalesce(h.given, 0) THEN 'no_start'
            ELSE 'later' END AS verdict,
        h.first_at + (a.turn - 1) * h.step AS start_at
    FROM decided d
    LEFT JOIN asking a USING (call_id)
    LEFT JOIN handed h ON h.shared_by = a.shared_by AND h.name = a.name AND h.owner IS NOT DISTINCT FROM a.owner
), places AS (
    UPDATE toolfleet.tool_slots s
    SET call_id = d.call_id, attempt_id = d.attempt_id
    FROM timed d
    WHERE s.tool = d.tool AND s.slot = d.slot AND d.verdict IN ('starts', 'observed')
), held AS (
    -- Its message is acknowledged; a dispatcher releases the call again when there is room.
    UPDATE toolfleet.open_calls o
    SET held = true, line = 'tool/' || d.tool || coalesce((
            -- Its own, where each value of an argument has one.
            SELECT '/' || d.rate_key FROM rates r WHERE r.tool = d.tool AND r.shared_by = 'argument'), '')
    FROM timed d
    WHERE o.call_id = ANY($2) AND o.call_id = d.call_id AND d.verdict IN ('no_place', 'no_start') AND o.state = 'queued'
), later AS (
    -- It has its start time, and its message comes back by then.
    UPDATE toolfleet.open_calls o
    SET rate_at = d.start_at, not_before = d.start_at
    FROM timed d
    WHERE o.call_id = ANY($2) AND o.call_id = d.call_id AND d.verdict = 'later' AND o.state = 'queued'
), claimed AS (
    UPDATE toolfleet.open_calls o
    /* claim set */, rate_at = NULL
    FROM timed i
    WHERE o.call_id = ANY($2) AND o.call_id = i.call_id AND i.verdict IN ('starts', 'observed') AND /* claimable */
    RETURNING /* claimed */
)
SELECT c.*, d.call_id AS asked, d.verdict, d.slot IS NOT NULL AS took_place, NULL::float8 AS wait_ms
FROM claimed c
JOIN timed d ON d.call_id = c.call_id
UNION ALL
SELECT c.*, d.call_id, d.verdict, false, extract(epoch FROM d.start_at - clock_timestamp())::float8 * 1000
FROM timed d
LEFT JOIN claimed c ON false
WHERE d.verdict NOT IN ('starts', 'observed')
UNION ALL
SELECT c.*, j.call_id, j.stopped, false, NULL
FROM judged j
LEFT JOIN claimed c ON false
WHERE j.stopped IS NOT NULL
