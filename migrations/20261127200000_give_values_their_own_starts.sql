-- Why: a limit of starts may count for each value of an argument (`rate_limit.by: /account/id`), so that a busy account delays no other.
-- A call's key stands in its row, made where it is accepted from what its tool gets (fleet/src/rate_key.rs): claims, retries and releases
-- find the same bucket, and nothing has to read arguments again. The owner of such a bucket is `tenant/key`, so that two tenants
-- never share one; calls that were accepted without a key share one of their tenant.
-- Locks: ACCESS EXCLUSIVE on open_calls for a moment (a column without a default).
-- The release before survives it: its functions keep their signatures, and it leaves tools with such a limit and their lines out.

ALTER TABLE toolfleet.open_calls ADD COLUMN rate_key text;

-- As a manifest writes it: a JSON pointer begins with /.
CREATE OR REPLACE FUNCTION toolfleet.rate_of(tool text)
RETURNS TABLE (shared_by text, name text, calls bigint, per_ms bigint, burst integer, step_us bigint, control_id bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    SELECT r.shared_by, r.name, n.calls, n.per_ms, n.burst, ceil(n.per_ms * 1000.0 / n.calls)::bigint, c.control_id
    FROM (
        SELECT CASE WHEN v.rate_limit->>'share' IS NOT NULL THEN 'share'
                    WHEN v.rate_limit->>'by' LIKE '/%' THEN 'argument'
                    ELSE coalesce(v.rate_limit->>'by', 'tool') END AS shared_by,
               coalesce(v.rate_limit->>'share', v.tool) AS name, v.rate_limit AS own
        FROM (SELECT l.tool, l.rate_limit FROM toolfleet.tool_versions l WHERE l.tool = rate_of.tool ORDER BY l.version DESC LIMIT 1) v
        WHERE v.rate_limit IS NOT NULL
    ) r
    LEFT JOIN LATERAL (
        SELECT l.control_id, l.setting FROM toolfleet.live_controls l
        WHERE l.kind = 'limit' AND l.subject = r.name AND (l.expires_at IS NULL OR l.expires_at > clock_timestamp())
        -- One for a time stands before the one that holds again after it.
        ORDER BY l.expires_at NULLS LAST LIMIT 1
    ) c ON true
    CROSS JOIN LATERAL (
        SELECT (c.setting->>'calls')::bigint AS calls, (c.setting->>'per_ms')::bigint AS per_ms,
               coalesce((c.setting->>'burst')::integer, 1) AS burst WHERE c.control_id IS NOT NULL
        UNION ALL
        SELECT (r.own->>'calls')::bigint, toolfleet.duration_ms(r.own->>'per'), coalesce((r.own->>'burst')::integer, 1)
        WHERE c.control_id IS NULL
    ) n
$$;

-- The bucket of a call. `tenant` is its owner: the tenant, and behind a / the call's key, if it has one. Programs of the release before
-- name no owner where a value has its own bucket: their calls share one.
CREATE OR REPLACE FUNCTION toolfleet.bucket_of(shared_by text, name text, tenant text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT shared_by || '/' || name || CASE shared_by
        WHEN 'tenant' THEN '/' || split_part(tenant, '/', 1)
        WHEN 'argument' THEN coalesce('/' || tenant, '')
        ELSE '' END
$$;

-- As before, and the row names the owner.
CREATE OR REPLACE FUNCTION toolfleet.take_starts(
    shared_by text, name text, tenant text, step_us bigint, burst integer, wanted bigint, within_ms integer, waits boolean
) RETURNS TABLE (verdict text, given bigint, first_at timestamptz, next_at timestamptz, at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    id text := toolfleet.bucket_of(take_starts.shared_by, take_starts.name, take_starts.tenant);
    b toolfleet.rate_buckets;
    step interval := take_starts.step_us * interval '1 microsecond';
    base timestamptz;
BEGIN
    FOR try IN 1..5 LOOP
        IF waits THEN
            SELECT * INTO b FROM toolfleet.rate_buckets r WHERE r.bucket = id FOR UPDATE;
        ELSE
            SELECT * INTO b FROM toolfleet.rate_buckets r WHERE r.bucket = id FOR UPDATE SKIP LOCKED;
        END IF;
        EXIT WHEN FOUND;
        INSERT INTO toolfleet.rate_buckets (bucket, shared_by, name, tenant, tat, used_at)
        VALUES (id, take_starts.shared_by, take_starts.name, CASE take_starts.shared_by
                WHEN 'tenant' THEN split_part(take_starts.tenant, '/', 1) WHEN 'argument' THEN take_starts.tenant END,
            clock_timestamp(), clock_timestamp())
        ON CONFLICT (bucket) DO NOTHING
        RETURNING * INTO b;
        EXIT WHEN FOUND;
        -- About as long as a commit takes.
        PERFORM pg_sleep(0.002);
    END LOOP;
    IF b.bucket IS NULL THEN
        RETURN QUERY SELECT 'busy', 0::bigint, NULL::timestamptz, NULL::timestamptz, clock_timestamp();
        RETURN;
    END IF;
    -- Read once the bucket is ours, so that no two sessions hand out the same time.
    at := clock_timestamp();
    base := toolfleet.rate_base(b.tat, b.closed_until, at, take_starts.step_us, take_starts.burst);
    given := least(take_starts.wanted, toolfleet.rate_room(base, at, within_ms, take_starts.step_us, take_starts.burst));
    IF given > 0 THEN
        UPDATE toolfleet.rate_buckets r SET tat = base + take_starts.given * step, given = r.given + take_starts.given, used_at = take_starts.at
        WHERE r.bucket = id;
    END IF;
    first_at := base - (take_starts.burst - 1) * step;
    RETURN QUERY SELECT 'given', given, first_at, first_at + given * step, at;
END $$;

-- A remote has said that nothing may start for so long, an hour at most: closes the bucket of this owner's calls until then, or leaves
-- it closed for longer. Returns until when; null: the tool has no limit.
CREATE OR REPLACE FUNCTION toolfleet.close_bucket(tool text, tenant text, for_ms bigint) RETURNS timestamptz
LANGUAGE sql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    INSERT INTO toolfleet.rate_buckets AS b (bucket, shared_by, name, tenant, tat, closed_until, used_at)
    SELECT toolfleet.bucket_of(r.shared_by, r.name, close_bucket.tenant), r.shared_by, r.name,
        CASE r.shared_by WHEN 'tenant' THEN split_part(close_bucket.tenant, '/', 1) WHEN 'argument' THEN close_bucket.tenant END,
        clock_timestamp(),
        clock_timestamp() + least(greatest(close_bucket.for_ms, 0), 3600000) * interval '1 millisecond', clock_timestamp()
    FROM toolfleet.rate_of(close_bucket.tool) r
    ON CONFLICT (bucket) DO UPDATE SET closed_until = greatest(b.closed_until, EXCLUDED.closed_until)
    RETURNING b.closed_until
$$;

-- `key`: of which value's calls the bucket is, where each value of an argument has its own.
CREATE OR REPLACE VIEW toolfleet.limits AS
SELECT r.name, r.shared_by, r.tools, nullif(split_part(b.tenant, '/', 1), '') AS tenant, r.calls, r.per_ms, r.burst, r.control_id,
       -- When the next attempt may start; null: at once, or never, where there are no numbers.
       CASE WHEN n.next_at > n.at THEN n.next_at END AS next_start_at,
       CASE WHEN b.closed_until > n.at THEN b.closed_until END AS closed_until,
       coalesce(b.given, 0) AS starts, b.used_at, nullif(split_part(b.tenant, '/', 2), '') AS key
FROM (
    SELECT r.name, r.shared_by, array_agg(v.tool ORDER BY v.tool) AS tools, min(r.calls) AS calls, min(r.per_ms) AS per_ms,
           min(r.burst) AS burst, min(r.step_us) AS step_us, min(r.control_id) AS control_id
    FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
    CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r
    GROUP BY r.name, r.shared_by
) r
LEFT JOIN toolfleet.rate_buckets b ON b.shared_by = r.shared_by AND b.name = r.name
CROSS JOIN LATERAL (
    SELECT m.at, toolfleet.rate_base(b.tat, b.closed_until, m.at, r.step_us, r.burst)
        - (r.burst - 1) * r.step_us * interval '1 microsecond' AS next_at
    FROM (SELECT clock_timestamp() AS at OFFSET 0) m
) n;

-- As before, and what waits for a limit counts the lines of single values, too.
CREATE OR REPLACE VIEW toolfleet.controls AS
SELECT c.control_id, c.kind, c.tool, c.queue, c.tenant, c.pointer, c.value::json AS value, c.subject, c.setting, c.told, c.actor,
       c.note, c.role, c.set_at, c.expires_at,
       CASE WHEN c.kind IN ('pause', 'breaker', 'limit') THEN (
           SELECT count(*) FROM (
               SELECT FROM toolfleet.open_calls o
               WHERE o.held AND o.line = ANY (CASE c.kind
                   WHEN 'pause' THEN ARRAY['pause/' || c.control_id]
                   WHEN 'breaker' THEN ARRAY(SELECT 'breaker/' || b.breaker_id FROM toolfleet.breaker_states b WHERE b.tool = c.tool)
                   ELSE ARRAY(SELECT 'tool/' || v.tool
                              FROM (SELECT DISTINCT t.tool FROM toolfleet.tool_versions t WHERE t.rate_limit IS NOT NULL) v
                              CROSS JOIN LATERAL toolfleet.rate_of(v.tool) r WHERE r.name = c.subject) END)
               UNION ALL
               -- A limit of values is that of one tool, and has its name.
               SELECT FROM toolfleet.open_calls o
               WHERE c.kind = 'limit' AND o.held AND o.line LIKE 'tool/%/%' AND split_part(o.line, '/', 2) = c.subject
               LIMIT 100000) w) END AS waiting
FROM toolfleet.live_controls c
WHERE c.expires_at IS NULL OR c.expires_at > clock_timestamp();
