-- Why: a timeout that somebody guessed is too short on a slow day and too long on every other. A tool may leave it to the fleet:
-- workers count how long first attempts took, a dispatcher looks at a day of that every ten minutes, and says in a row why it
-- changed the timeout.
-- Locks: ACCESS EXCLUSIVE on fleet for a moment; a column with a constant default rewrites nothing.
-- The release before survives it: it names its columns, and leaves out tools whose manifest it cannot read.

-- How often it was changed, so that a process reads what was learned only when there is something new.
ALTER TABLE toolfleet.fleet ADD COLUMN timeout_rev bigint NOT NULL DEFAULT 0;

-- How many first attempts of an hour, with this timeout, took so long, in milliseconds to two digits; cut off: would have taken longer.
CREATE TABLE toolfleet.run_times (
    tool text NOT NULL,
    version integer NOT NULL,
    hour timestamptz NOT NULL,
    limit_ms bigint NOT NULL,
    took_ms bigint NOT NULL,
    cut_off boolean NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (tool, version, hour, limit_ms, took_ms, cut_off)
);

-- What is known of a version's timeout: the last look at its run times. Null: the manifest's initial one holds.
CREATE TABLE toolfleet.timeout_looks (
    tool text NOT NULL,
    version integer NOT NULL,
    looked_at timestamptz NOT NULL,
    timeout_ms bigint,
    samples bigint NOT NULL DEFAULT 0,
    longer bigint NOT NULL DEFAULT 0,
    p95_ms bigint NOT NULL DEFAULT 0,
    p99_ms bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tool, version)
);

-- Every timeout that was learned, with the look that it came from.
CREATE TABLE toolfleet.timeout_changes (
    tool text NOT NULL,
    version integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    timeout_ms bigint NOT NULL,
    before_ms bigint NOT NULL,
    why text NOT NULL,
    samples bigint NOT NULL,
    longer bigint NOT NULL,
    p95_ms bigint NOT NULL,
    p99_ms bigint NOT NULL,
    PRIMARY KEY (tool, version, at)
);

CREATE VIEW toolfleet.learned_timeouts AS
SELECT tool, version, at, timeout_ms, before_ms, why, samples, longer, p95_ms, p99_ms FROM toolfleet.timeout_changes;

CREATE VIEW toolfleet.current_timeouts AS
SELECT tool, version, timeout_ms, looked_at, samples, longer, p95_ms, p99_ms FROM toolfleet.timeout_looks;

-- As before, and: a learned timeout may be watched before it is used.
CREATE OR REPLACE FUNCTION toolfleet.is_brake(name text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT name IN ('rate_limit', 'breaker', 'retry_budget', 'repeat_cap', 'learned_timeout')
$$;
