-- Why: the ledger. Open calls in a small table that is updated in place; everything finished in insert-only history.
-- Locks: none that matter, the schema is new. Old code: there is none.
-- All tables are ours to change; what users read are the views of the next migration.

CREATE SCHEMA IF NOT EXISTS toolfleet;

CREATE TYPE toolfleet.call_state AS ENUM
    ('queued', 'running', 'in_doubt', 'awaiting_client', 'succeeded', 'failed', 'cancelled', 'expired');
CREATE TYPE toolfleet.effect AS ENUM ('read', 'idempotent', 'once', 'transaction');
CREATE TYPE toolfleet.call_outcome AS ENUM ('success', 'business_error', 'fallback', 'system_error', 'unknown');
CREATE TYPE toolfleet.source AS ENUM ('live', 'cache', 'stale', 'stub', 'error', 'settled');
CREATE TYPE toolfleet.effect_known AS ENUM ('none', 'applied', 'not_applied', 'unknown');
CREATE TYPE toolfleet.attempt_outcome AS ENUM ('applied', 'not_started', 'definite_failure', 'unknown');
CREATE TYPE toolfleet.worker_state AS ENUM ('live', 'draining', 'left', 'dead', 'fenced');

-- One row: what the whole fleet agrees on.
CREATE TABLE toolfleet.fleet (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    registry_rev bigint NOT NULL DEFAULT 0,
    -- The newest migration that a program must at least know to work with this schema; `require_program` raises it.
    oldest_program bigint NOT NULL,
    -- Where the ledger stands: another timeline, or a position behind the remembered one, means that writes were lost.
    system_identifier text,
    timeline integer,
    wal_lsn pg_lsn,
    -- How often that has happened.
    quarantines integer NOT NULL DEFAULT 0
);
INSERT INTO toolfleet.fleet (oldest_program) VALUES (20261120190000);

-- For a migration that older programs do not survive: from its commit on they are refused. Their sessions end here, and
-- none begins before that, for each looks at this table first. A worker that is still there could not record what it runs,
-- so nothing is migrated under one.
CREATE FUNCTION toolfleet.require_program(migration bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old text;
BEGIN
    LOCK TABLE toolfleet.fleet IN ACCESS EXCLUSIVE MODE;
    SELECT string_agg(format('%s (%s)', w.name, w.version), ', ' ORDER BY w.name) INTO old
    FROM toolfleet.worker_processes w
    WHERE w.state IN ('live', 'draining') AND w.newest_migration < require_program.migration;
    IF old IS NOT NULL THEN
        RAISE EXCEPTION 'workers that do not know migration % could not record what they run; drain or upgrade them first: %',
            require_program.migration, old USING ERRCODE = 'object_in_use';
    END IF;
    UPDATE toolfleet.fleet f SET oldest_program = greatest(f.oldest_program, require_program.migration);
    PERFORM pg_terminate_backend(a.pid)
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.application_name LIKE 'toolfleet%'
      AND pg_has_role(a.usesysid, 'MEMBER');
END $$;
REVOKE EXECUTE ON FUNCTION toolfleet.require_program FROM PUBLIC;

-- Every version of every tool; a version is never changed.
CREATE TABLE toolfleet.tool_versions (
    tool text NOT NULL,
    version integer NOT NULL CHECK (version >= 1),
    rev bigint NOT NULL UNIQUE,
    manifest json NOT NULL,
    -- Which values of its calls are nobody's business; null where there are none.
    sensitive json GENERATED ALWAYS AS (manifest->'sensitive') STORED,
    -- How many attempts of the tool may run at a time over the whole fleet; null: no limit. The newest version's holds.
    concurrency integer GENERATED ALWAYS AS ((manifest->>'concurrency')::integer) STORED CHECK (concurrency BETWEEN 1 AND 1000),
    manifest_hash bytea NOT NULL,
    schema_hash bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    applied_by text NOT NULL,
    PRIMARY KEY (tool, version)
);

-- One row per start of a worker process. The claim locks it FOR KEY SHARE; who fences it takes it FOR UPDATE.
CREATE TABLE toolfleet.worker_processes (
    worker_id uuid PRIMARY KEY,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    -- The newest migration that the program knows; one that says nothing is as old as can be.
    newest_migration bigint NOT NULL DEFAULT 0,
    queues text[] NOT NULL,
    concurrency integer NOT NULL,
    state toolfleet.worker_state NOT NULL DEFAULT 'live',
    beat bigint NOT NULL DEFAULT 0,
    beat_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    ended_by text,
    -- Proven gone, with everything it had started: when, who says so, and how they know.
    fenced_at timestamptz,
    fenced_by text,
    fence_note text,
    CHECK (state <> 'fenced' OR (fenced_at IS NOT NULL AND fenced_by IS NOT NULL))
) WITH (fillfactor = 50);

-- Everything that is not terminal. Claimed by primary key; no index on a column that the claim changes,
-- so that its update stays on its page (HOT).
CREATE TABLE toolfleet.open_calls (
    call_id uuid PRIMARY KEY,
    -- What a claim changes stands together: the log of an update has what lies between the first and the last byte that changed.
    rev integer NOT NULL DEFAULT 0,
    state toolfleet.call_state NOT NULL DEFAULT 'queued'
        CHECK (state IN ('queued', 'running', 'in_doubt', 'awaiting_client')),
    attempts integer NOT NULL DEFAULT 0,
    claim_rev integer,
    attempt_id uuid,
    worker_id uuid,
    first_started_at timestamptz,
    attempt_started_at timestamptz,
    attempt_until timestamptz,
    attempt_timeout_ms bigint,
    -- Accepted and not handed to NATS: it waits in this line for its turn. A queue's name, or `tool/<name>` where the tool
    -- has a limit of its own.
    held boolean NOT NULL DEFAULT false,
    line text NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    tenant text NOT NULL,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    effect toolfleet.effect NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 2),
    key_hash bytea,
    key_retention_ms bigint NOT NULL,
    args json NOT NULL,
    -- What is left of them once the call is over, where its tool does not let them be kept.
    kept_args json,
    original_args json,
    coercions json,
    args_hash bytea NOT NULL,
    session text,
    run text,
    meta json,
    language text NOT NULL,
    traceparent text,
    tracestate text,
    baggage text,
    dispatcher_id uuid NOT NULL,
    accepted_at timestamptz NOT NULL,
    deadline_at timestamptz NOT NULL,
    -- Until when its first attempt must have started.
    queue_until timestamptz,
    not_before timestamptz NOT NULL,
    due_at timestamptz,
    publish_n integer NOT NULL DEFAULT 1,
    lost_attempts integer NOT NULL DEFAULT 0,
    unspent_attempts integer NOT NULL DEFAULT 0,
    effect_unknown boolean NOT NULL DEFAULT false,
    last_error json,
    doubt_since timestamptz,
    doubt_reason text,
    -- Postgres lost writes while it was open: which attempts there were cannot be known.
    quarantined boolean NOT NULL DEFAULT false,
    -- The call in doubt that this call asks about, and on that call: the last one that asked, and what came of asking.
    probe_of uuid,
    probe_id uuid,
    probes integer NOT NULL DEFAULT 0,
    probe_state text,
    CHECK (state <> 'queued' OR attempt_id IS NULL),
    CHECK (NOT held OR state = 'queued'),
    CHECK (state <> 'running' OR (attempt_id IS NOT NULL AND worker_id IS NOT NULL AND attempt_until IS NOT NULL)),
    CHECK (state <> 'in_doubt' OR (doubt_since IS NOT NULL AND doubt_reason IS NOT NULL)),
    -- Its effect commits with its outcome: as long as it is open, there is none.
    CONSTRAINT open_calls_transaction_known CHECK (effect <> 'transaction' OR (state <> 'in_doubt' AND NOT effect_unknown))
) WITH (fillfactor = 40, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0);
CREATE INDEX open_calls_due ON toolfleet.open_calls (due_at) WHERE due_at IS NOT NULL;
-- Who is next: line by line, tenant by tenant, each tenant's calls by priority and age. Empty while nothing is held, and of
-- columns that the claim does not change.
CREATE INDEX open_calls_held ON toolfleet.open_calls (line, tenant, priority, accepted_at, call_id) WHERE held;
-- Probes under way, to be counted.
-- Calls of tools with a limit of their own that have been handed to NATS, whether they run or not. Others have no entry.
CREATE INDEX open_calls_admitted ON toolfleet.open_calls (line) WHERE NOT held AND line LIKE 'tool/%';
CREATE INDEX open_calls_probes ON toolfleet.open_calls (probe_of) WHERE probe_of IS NOT NULL;

-- The places of a tool with a limit: as many as the largest limit it has ever had, numbered from 1. A claim writes its attempt
-- into a free one. Nothing frees a place: it is free when its attempt is not live any more, which the attempt's call tells.
CREATE TABLE toolfleet.tool_slots (
    tool text NOT NULL,
    slot integer NOT NULL CHECK (slot BETWEEN 1 AND 1000),
    call_id uuid,
    attempt_id uuid,
    PRIMARY KEY (tool, slot)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- How many open calls each tenant has: the sum of `n` over its rows. Each session of Postgres adds to rows of its own, so that
-- nobody waits for another here; `backend` is its process, 0 for what is left of sessions that are gone. So `n` of one row
-- may be negative, and in every snapshot the sums are exact.
CREATE TABLE toolfleet.open_counts (
    tenant text NOT NULL,
    backend integer NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (tenant, backend)
) WITH (fillfactor = 40, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0);

-- Whatever accepts or ends calls is counted, once for each statement.
CREATE FUNCTION toolfleet.count_opened() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO toolfleet.open_counts AS c (tenant, backend, n)
    SELECT o.tenant, pg_catalog.pg_backend_pid(), count(*) FROM opened o GROUP BY o.tenant ORDER BY o.tenant
    ON CONFLICT (tenant, backend) DO UPDATE SET n = c.n + EXCLUDED.n;
    RETURN NULL;
END $$;
CREATE FUNCTION toolfleet.count_closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO toolfleet.open_counts AS c (tenant, backend, n)
    SELECT o.tenant, pg_catalog.pg_backend_pid(), -count(*) FROM closed o GROUP BY o.tenant ORDER BY o.tenant
    ON CONFLICT (tenant, backend) DO UPDATE SET n = c.n + EXCLUDED.n;
    RETURN NULL;
END $$;
CREATE TRIGGER count_opened AFTER INSERT ON toolfleet.open_calls REFERENCING NEW TABLE AS opened FOR EACH STATEMENT
    EXECUTE FUNCTION toolfleet.count_opened();
CREATE TRIGGER count_closed AFTER DELETE ON toolfleet.open_calls REFERENCING OLD TABLE AS closed FOR EACH STATEMENT
    EXECUTE FUNCTION toolfleet.count_closed();

-- Folds the counts of sessions that are gone into one row per tenant, at most so many rows at a time; those of living ones
-- too where there are more rows than `crowd`. Removes what comes to nothing. Returns how many rows it folded. One at a time.
CREATE FUNCTION toolfleet.fold_open_counts(rows_max integer, crowd integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    crowded boolean := (SELECT count(*) > crowd FROM (SELECT FROM toolfleet.open_counts LIMIT crowd + 1) c);
    folded bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_open_counts')) THEN
        RETURN 0;
    END IF;
    WITH living AS MATERIALIZED (
        SELECT pid FROM pg_stat_activity
    ), chosen AS MATERIALIZED (
        SELECT c.tenant, c.backend FROM toolfleet.open_counts c
        WHERE c.backend <> 0 AND (crowded OR NOT EXISTS (SELECT FROM living l WHERE l.pid = c.backend))
        ORDER BY c.tenant, c.backend LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM toolfleet.open_counts c USING chosen s
        WHERE c.tenant = s.tenant AND c.backend = s.backend
        RETURNING c.tenant, c.n
    ), kept AS (
        INSERT INTO toolfleet.open_counts AS c (tenant, backend, n)
        SELECT t.tenant, 0, sum(t.n) FROM taken t GROUP BY t.tenant ORDER BY t.tenant
        ON CONFLICT (tenant, backend) DO UPDATE SET n = c.n + EXCLUDED.n
    )
    SELECT count(*) INTO folded FROM taken;
    DELETE FROM toolfleet.open_counts c WHERE c.backend = 0 AND c.n = 0;
    RETURN folded;
END $$;

-- Counts all open calls and puts right what the sums do not say, which only meddling with the triggers can bring about.
-- One statement and so one snapshot: what is accepted or ended meanwhile is in neither. Returns how many tenants it put right.
-- One at a time, and the snapshot comes after the lock: two would put the same thing right twice.
CREATE FUNCTION toolfleet.recount_open() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    righted bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('toolfleet.fold_open_counts')) THEN
        RETURN 0;
    END IF;
    WITH wrong AS MATERIALIZED (
        SELECT tenant, sum(n) AS n
        FROM (SELECT tenant, count(*) AS n FROM toolfleet.open_calls GROUP BY tenant
              UNION ALL
              SELECT tenant, -sum(n) FROM toolfleet.open_counts GROUP BY tenant) c
        GROUP BY tenant
        HAVING sum(n) <> 0
    ), added AS (
        INSERT INTO toolfleet.open_counts AS c (tenant, backend, n)
        SELECT w.tenant, 0, w.n FROM wrong w ORDER BY w.tenant
        ON CONFLICT (tenant, backend) DO UPDATE SET n = c.n + EXCLUDED.n
    )
    SELECT count(*) INTO righted FROM wrong;
    RETURN righted;
END $$;

-- A key names one call within its tenant. It has no expiry of its own: whether it has lapsed is computed from its call.
CREATE TABLE toolfleet.idempotency_keys (
    tenant text NOT NULL,
    key_hash bytea NOT NULL,
    call_id uuid NOT NULL,
    replaced uuid,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    args_hash bytea NOT NULL,
    original_hash bytea NOT NULL,
    -- The hash first: it differs at once, and it has the tenant in it.
    PRIMARY KEY (key_hash, tenant)
);

-- For dropping the keys of a day. Ids are ordered by time, as rows are, so ranges of pages are enough: nearly free to keep.
CREATE INDEX idempotency_keys_call ON toolfleet.idempotency_keys USING brin (call_id) WITH (pages_per_range = 32, autosummarize = on);

-- History: terminal calls. Insert-only, partitioned by the time in the UUIDv7.
CREATE TABLE toolfleet.finished_calls (
    call_id uuid NOT NULL,
    rev integer NOT NULL,
    from_state toolfleet.call_state NOT NULL,
    state toolfleet.call_state NOT NULL,
    outcome toolfleet.call_outcome NOT NULL,
    source toolfleet.source NOT NULL,
    effect_known toolfleet.effect_known NOT NULL,
    tenant text NOT NULL,
    tool text NOT NULL,
    tool_version integer NOT NULL,
    effect toolfleet.effect NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    key_hash bytea,
    key_retention_ms bigint NOT NULL,
    args json NOT NULL,
    original_args json,
    coercions json,
    args_hash bytea NOT NULL,
    result json,
    error json,
    degraded json,
    session text,
    run text,
    meta json,
    language text NOT NULL,
    traceparent text,
    accepted_at timestamptz NOT NULL,
    deadline_at timestamptz NOT NULL,
    first_started_at timestamptz,
    finished_at timestamptz NOT NULL,
    queued_ms bigint NOT NULL,
    run_ms bigint NOT NULL,
    attempts integer NOT NULL,
    attempt_id uuid,
    worker_id uuid,
    claim_rev integer,
    attempt_started_at timestamptz,
    attempt_timeout_ms bigint,
    attempt_outcome toolfleet.attempt_outcome,
    probe_of uuid,
    actor text NOT NULL,
    reason text NOT NULL,
    details json,
    PRIMARY KEY (call_id),
    -- By the order of the states, for it is read anew by each statement that ends calls: queued, running and in doubt come
    -- to an end; from a doubt, only success and failure do.
    CONSTRAINT finished_calls_legal_move CHECK (
        from_state <= 'in_doubt' AND state >= 'succeeded' AND (from_state <> 'in_doubt' OR state <= 'failed'))
) PARTITION BY RANGE (call_id);

-- History: attempts that ended without ending their call. The last attempt lives in the call's own row.
CREATE TABLE toolfleet.ended_attempts (
    call_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    number integer NOT NULL,
    claim_rev integer,
    worker_id uuid NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT now(),
    timeout_ms bigint NOT NULL,
    outcome toolfleet.attempt_outcome NOT NULL,
    effect_known toolfleet.effect_known NOT NULL,
    error json,
    -- The worker itself has seen the attempt end: nothing of it can act any more.
    over boolean NOT NULL,
    -- It came after the attempt had been taken from its worker: evidence, not a move.
    late boolean NOT NULL DEFAULT false,
    PRIMARY KEY (call_id, attempt_id, late)
) PARTITION BY RANGE (call_id);

-- History: moves that no column tells, and remarks, which lead from a state to the same state.
CREATE TABLE toolfleet.call_notes (
    call_id uuid NOT NULL,
    rev integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    from_state toolfleet.call_state NOT NULL,
    to_state toolfleet.call_state NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    attempt_id uuid,
    details json,
    PRIMARY KEY (call_id, rev)
) PARTITION BY RANGE (call_id);

-- Rare questions of statements that run thousands of times a second. Asked in functions, for a plan that names the attempts
-- opens every day of their history each time it runs, whether it asks or not; a function opens the one day it needs.

-- Whether an attempt of the call has said, too late to decide, that it did it.
CREATE FUNCTION toolfleet.applied_late(call uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM toolfleet.ended_attempts e WHERE e.call_id = call AND e.late AND e.outcome = 'applied');
END $$;

-- Whether the key of this call has lapsed: it is in the history, for longer than the key lives.
CREATE FUNCTION toolfleet.key_lapsed(call uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM toolfleet.finished_calls f
        WHERE f.call_id = call AND f.finished_at + make_interval(secs => f.key_retention_ms / 1000.0) < now());
END $$;

-- Until when an ended attempt of unknown outcome may still act; null where there is none.
CREATE FUNCTION toolfleet.unknown_until(call uuid) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT max(a.started_at + make_interval(secs => a.timeout_ms / 1000.0)) FROM toolfleet.ended_attempts a
        WHERE a.call_id = call AND a.outcome = 'unknown' AND NOT a.late);
END $$;

-- The tables refuse nonsense too. fleet/src/state.rs holds the same list; a test compares them cell by cell.
CREATE FUNCTION toolfleet.refuse_illegal_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'illegal move of call %: % to %', OLD.call_id, OLD.state, NEW.state USING ERRCODE = 'check_violation';
END $$;
-- By the order of the states, for it is read anew by each statement that moves calls: what is queued or running is queued, runs
-- or is in doubt next; what is in doubt stays that as long as it is open.
-- After the update: before it, a trigger has to lock the row first, which writes to the log once more.
CREATE TRIGGER legal_moves AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state >= 'in_doubt' OR NEW.state > 'in_doubt'))
    EXECUTE FUNCTION toolfleet.refuse_illegal_move();

CREATE FUNCTION toolfleet.refuse_change_of_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'history of call % does not change', OLD.call_id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE ON toolfleet.finished_calls FOR EACH ROW
    EXECUTE FUNCTION toolfleet.refuse_change_of_history();
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE ON toolfleet.ended_attempts FOR EACH ROW
    EXECUTE FUNCTION toolfleet.refuse_change_of_history();
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE ON toolfleet.call_notes FOR EACH ROW
    EXECUTE FUNCTION toolfleet.refuse_change_of_history();

-- What is left of JSON pointers below a member or an item, `*` standing for any; without those that do not lead there.
CREATE FUNCTION toolfleet.below(pointers text[], segment text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT coalesce(array_agg(substring(p FROM 2 + length(split_part(p, '/', 2)))), '{}')
    FROM unnest(pointers) p
    WHERE split_part(p, '/', 2) = '*' OR replace(replace(split_part(p, '/', 2), '~1', '/'), '~0', '~') = segment
$$;

-- The same as `veiled`, however large the value is.
CREATE FUNCTION toolfleet.veiled_below(value json, pointers text[], word text) RETURNS json LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    IF cardinality(pointers) = 0 THEN
        RETURN value;
    ELSIF '' = ANY (pointers) THEN
        RETURN to_json(word);
    ELSIF json_typeof(value) = 'object' THEN
        RETURN (
            SELECT '{' || coalesce(string_agg(to_json(m.key)::text || ':'
                || toolfleet.veiled_below(m.value, toolfleet.below(pointers, m.key), word)::text, ',' ORDER BY m.place), '') || '}'
            FROM json_each(value) WITH ORDINALITY m (key, value, place));
    ELSIF json_typeof(value) = 'array' THEN
        RETURN (
            SELECT '[' || coalesce(string_agg(
                toolfleet.veiled_below(m.value, toolfleet.below(pointers, (m.place - 1)::text), word)::text, ',' ORDER BY m.place), '')
                || ']'
            FROM json_array_elements(value) WITH ORDINALITY m (value, place));
    END IF;
    RETURN value;
END $$;

-- A JSON value with `word` at each of these pointers. All other values keep their text. A large one is veiled as a whole:
-- it takes three seconds for each MiB.
CREATE FUNCTION toolfleet.veiled(value json, pointers text[], word text) RETURNS json LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN octet_length(value::text) > 65536 THEN to_json(word) ELSE toolfleet.veiled_below(value, pointers, word) END
$$;

-- What a finished call keeps of a result that a person or a transaction gave it. What other tools answered is veiled before
-- it comes to the ledger.
CREATE FUNCTION toolfleet.kept(value json, sensitive json) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF sensitive->>'mode' = 'omit' THEN
        RETURN toolfleet.veiled(value, ARRAY(SELECT json_array_elements_text(sensitive->'pointers')), '[omitted]');
    END IF;
    RETURN value;
END $$;

-- What the views show of arguments and results.
CREATE FUNCTION toolfleet.shown(value json, sensitive json) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT toolfleet.veiled(value, ARRAY(SELECT json_array_elements_text(sensitive->'pointers')),
        CASE WHEN sensitive->>'mode' = 'omit' THEN '[omitted]' ELSE '[masked]' END)
$$;

-- The smallest UUIDv7 of an instant: the bound of a partition.
CREATE FUNCTION toolfleet.uuid_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- The instant in a UUIDv7.
CREATE FUNCTION toolfleet.uuid_instant(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT to_timestamp(('x' || lpad(left(replace(id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint / 1000.0)
$$;

-- Creates the daily partitions from yesterday to `days` ahead; does nothing for those that are there.
-- Returns how many it made. The default partitions catch ids of other days, so that no completion ever fails for one;
-- a day of which they hold rows stays with them, and keeps no other day from its partitions.
CREATE FUNCTION toolfleet.ensure_partitions(days integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    today timestamptz := date_trunc('day', now(), 'UTC');
    parents text[] := ARRAY['finished_calls', 'ended_attempts', 'call_notes'];
    parent text;
    name text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.ensure_partitions'));
    FOR day IN -1 .. days LOOP
        name := to_char((today + make_interval(days => day)) AT TIME ZONE 'UTC', '_YYYYMMDD');
        CONTINUE WHEN to_regclass('toolfleet.finished_calls' || name) IS NOT NULL;
        BEGIN
            FOREACH parent IN ARRAY parents LOOP
                EXECUTE format('CREATE TABLE toolfleet.%I PARTITION OF toolfleet.%I FOR VALUES FROM (%L) TO (%L)',
                    parent || name, parent, toolfleet.uuid_floor(today + make_interval(days => day)),
                    toolfleet.uuid_floor(today + make_interval(days => day + 1)));
            END LOOP;
            made := made + cardinality(parents);
        EXCEPTION WHEN check_violation THEN
            RAISE WARNING 'the default partitions hold rows of %', ltrim(name, '_');
        END;
    END LOOP;
    RETURN made;
END $$;

-- Drops the history of the oldest whole day that ended before `horizon` and may go, and the keys that lapsed with it.
-- A day stays while an open call's id falls in it or a key into it is alive.
-- One day at a time, so that the locks of the drop are held for a moment only. Returns the day, or null when none may go.
CREATE FUNCTION toolfleet.drop_history(horizon timestamptz) RETURNS date LANGUAGE plpgsql AS $$
DECLARE
    part record;
    low uuid;
    high uuid;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.ensure_partitions'));
    FOR part IN
        SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'toolfleet.finished_calls'::regclass AND c.relname ~ '^finished_calls_[0-9]{8}$'
        ORDER BY 1
    LOOP
        CONTINUE WHEN (part.day + 1)::timestamp AT TIME ZONE 'UTC' > horizon;
        low := toolfleet.uuid_floor(part.day::timestamp AT TIME ZONE 'UTC');
        high := toolfleet.uuid_floor((part.day + 1)::timestamp AT TIME ZONE 'UTC');
        CONTINUE WHEN EXISTS (SELECT FROM toolfleet.open_calls WHERE call_id >= low AND call_id < high);
        CONTINUE WHEN EXISTS (
            SELECT FROM toolfleet.idempotency_keys k LEFT JOIN toolfleet.finished_calls f USING (call_id)
            WHERE k.call_id >= low AND k.call_id < high
              AND (f.call_id IS NULL OR f.finished_at + make_interval(secs => f.key_retention_ms / 1000.0) > now()));
        DELETE FROM toolfleet.idempotency_keys WHERE call_id >= low AND call_id < high;
        EXECUTE format('DROP TABLE toolfleet.%I, toolfleet.%I, toolfleet.%I',
            'finished_calls' || to_char(part.day, '_YYYYMMDD'),
            'ended_attempts' || to_char(part.day, '_YYYYMMDD'),
            'call_notes' || to_char(part.day, '_YYYYMMDD'));
        RETURN part.day;
    END LOOP;
    RETURN NULL;
END $$;

CREATE TABLE toolfleet.finished_calls_default PARTITION OF toolfleet.finished_calls DEFAULT;
CREATE TABLE toolfleet.ended_attempts_default PARTITION OF toolfleet.ended_attempts DEFAULT;
CREATE TABLE toolfleet.call_notes_default PARTITION OF toolfleet.call_notes DEFAULT;
SELECT toolfleet.ensure_partitions(7);
