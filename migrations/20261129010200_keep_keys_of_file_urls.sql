-- Why: a tool over HTTP or NATS fetches the files of its call from a gateway, at a URL that is signed. The worker signs it and any gateway
-- looks whether that is true, so the keys stand in the ledger: the one that signs, and the one before it, which is still taken.
-- Locks: none that a statement waits for.
-- The release before survives it: it does not know the table.

CREATE TABLE toolfleet.file_url_keys (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- 244 random bits each.
    current bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) CHECK (octet_length(current) = 32),
    -- Null: there was none before.
    previous bytea CHECK (octet_length(previous) = 32),
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO toolfleet.file_url_keys DEFAULT VALUES;

-- For gateways and workers alone: whoever reads it can fetch every file.
CREATE VIEW toolfleet.file_keys AS SELECT k.current, k.previous, k.since FROM toolfleet.file_url_keys k;

-- Makes a new key. URLs that were signed with the one before go on until the next time, those of earlier ones are refused from now on.
CREATE FUNCTION toolfleet.renew_file_key() RETURNS timestamptz LANGUAGE sql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
    UPDATE toolfleet.file_url_keys
    SET previous = current, current = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), since = clock_timestamp()
    RETURNING since
$$;

REVOKE EXECUTE ON FUNCTION toolfleet.renew_file_key FROM PUBLIC;
