-- Why: a long conversation goes on from a summary of its beginning, which a model has written. It is kept by what it stands for, so
-- that the next turn finds it and does not pay for it again, and so that the beginning of a request stays what it was.
-- Locks: none beside the catalog's; two new objects.
-- The release before survives it: it writes no summaries.

CREATE TABLE toolfleet.summaries (
    tenant text NOT NULL,
    tool text NOT NULL,
    -- Of all messages that it stands for.
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    text text NOT NULL CHECK (text <> '' AND octet_length(text) <= 65536),
    made_at timestamptz NOT NULL DEFAULT now(),
    -- To the hour.
    used_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, tool, hash)
);
CREATE INDEX summaries_used ON toolfleet.summaries (used_at);

-- Deletes summaries that nobody has used since, at most so many; returns how many.
CREATE FUNCTION toolfleet.drop_summaries(used_before timestamptz, rows_max integer) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    dropped bigint;
BEGIN
    WITH old AS MATERIALIZED (
        SELECT s.ctid AS place FROM toolfleet.summaries s WHERE s.used_at < used_before
        ORDER BY s.used_at LIMIT rows_max FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM toolfleet.summaries s WHERE s.ctid = ANY (ARRAY(SELECT place FROM old)) RETURNING 1
    )
    SELECT count(*) INTO dropped FROM gone;
    RETURN dropped;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.drop_summaries FROM PUBLIC;
