-- Why: a tool may need a document or an image, and its caller has one; arguments are JSON of at most 256 KiB. A caller hands a file to a
-- dispatcher in chunks, says what it is to be, and names it in calls. It is kept for a day after it is complete, and as long as an open
-- call names it. Which files a call names stands beside the call: a call without files writes and reads nothing of this.
-- Locks: none that a statement waits for.
-- The release before survives it: it does not know the tables. It does not run a call that names files, for the hash of the arguments has
-- the files in it and a worker finds another one.

CREATE TABLE toolfleet.kept_files (
    -- A UUIDv7, made by the dispatcher.
    file_id uuid PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_-]{1,64}$'),
    -- It becomes the name of a file for programs.
    name text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255 AND name !~ '[/\\\u0001-\u001f\u007f-\u009f]' AND name NOT IN ('.', '..')),
    mime text NOT NULL CHECK (octet_length(mime) BETWEEN 3 AND 127),
    -- As many as were announced.
    bytes bigint NOT NULL CHECK (bytes BETWEEN 1 AND 33554432),
    received bigint NOT NULL DEFAULT 0 CHECK (received BETWEEN 0 AND bytes),
    chunks integer NOT NULL DEFAULT 0 CHECK (chunks BETWEEN 0 AND 1024),
    -- Of all that was received; null until somebody wanted to know.
    sha256 bytea CHECK (octet_length(sha256) = 32),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ready')),
    created_at timestamptz NOT NULL DEFAULT now(),
    ready_at timestamptz,
    expires_at timestamptz NOT NULL,
    CHECK ((state = 'ready') = (ready_at IS NOT NULL)),
    CHECK (state = 'open' OR sha256 IS NOT NULL AND received = bytes)
);
-- For the quota and for lists, the newest first.
CREATE INDEX kept_files_of_tenant ON toolfleet.kept_files (tenant, file_id) INCLUDE (bytes);
CREATE INDEX kept_files_expiry ON toolfleet.kept_files (expires_at);

CREATE TABLE toolfleet.file_chunks (
    file_id uuid NOT NULL REFERENCES toolfleet.kept_files ON DELETE CASCADE,
    -- Its place in the file.
    at bigint NOT NULL CHECK (at >= 0),
    data bytea NOT NULL CHECK (octet_length(data) BETWEEN 1 AND 262144),
    PRIMARY KEY (file_id, at)
);
-- Most files are compressed already, and a part of a chunk is read without the rest.
ALTER TABLE toolfleet.file_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

-- The files that a call names, in its order. It goes with the day of the call; a file may go before it.
CREATE TABLE toolfleet.call_files (
    call_id uuid NOT NULL,
    position smallint NOT NULL CHECK (position BETWEEN 1 AND 16),
    file_id uuid NOT NULL,
    PRIMARY KEY (call_id, position)
);
CREATE INDEX call_files_of_file ON toolfleet.call_files (file_id, call_id);

-- Whether an open call names a file.
-- A file may be named by a great many calls that are over, so only those are looked at that are as young as the oldest open one.
CREATE FUNCTION toolfleet.is_named(file uuid) RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = toolfleet, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM toolfleet.call_files u
        JOIN toolfleet.open_calls o ON o.call_id = u.call_id
        WHERE u.file_id = is_named.file
          AND u.call_id >= (SELECT p.call_id FROM toolfleet.open_calls p ORDER BY p.call_id LIMIT 1));
END $$;

-- For people: never the bytes.
CREATE VIEW toolfleet.files AS
SELECT f.file_id, f.tenant, f.name, f.mime, f.bytes, f.received, f.state, encode(CASE WHEN f.state = 'ready' THEN f.sha256 END, 'hex') AS sha256,
       f.created_at, f.ready_at, f.expires_at, toolfleet.is_named(f.file_id) AS named
FROM toolfleet.kept_files f;

-- Announces a file. Verdicts: `open`; `quota`: the tenant has `files` files with `bytes` bytes and may have no more; open ones count with the bytes
-- that were announced. A limit of 0 is none.
CREATE FUNCTION toolfleet.begin_file(file uuid, tenant text, name text, mime text, bytes bigint, files_max bigint, bytes_max bigint)
RETURNS TABLE (verdict text, expires_at timestamptz, files bigint, kept_bytes bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    kept record;
    until timestamptz;
BEGIN
    -- One of a tenant at a time, so that each sees those before; the count is a later statement.
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.kept_files'), hashtext(begin_file.tenant));
    SELECT count(*) AS files, coalesce(sum(k.bytes), 0)::bigint AS bytes INTO kept FROM toolfleet.kept_files k WHERE k.tenant = begin_file.tenant;
    IF begin_file.files_max > 0 AND kept.files >= begin_file.files_max
       OR begin_file.bytes_max > 0 AND kept.bytes + begin_file.bytes > begin_file.bytes_max THEN
        RETURN QUERY SELECT 'quota', NULL::timestamptz, kept.files, kept.bytes;
        RETURN;
    END IF;
    until := now() + interval '1 hour';
    INSERT INTO toolfleet.kept_files (file_id, tenant, name, mime, bytes, expires_at)
    VALUES (begin_file.file, begin_file.tenant, begin_file.name, begin_file.mime, begin_file.bytes, until);
    RETURN QUERY SELECT 'open', until, kept.files + 1, kept.bytes + begin_file.bytes;
END $$;

-- Takes a chunk of a file. Chunks come in order; the same one again changes nothing. One answer, with what the file has now:
--   written    it is there now
--   same       it was there before
--   differs    other bytes are there
--   gap        the file has `received` bytes, and no chunk of it begins there
--   beyond     the file would have more bytes than were announced
--   too_many   the file has as many chunks as it may have
--   not_found  the tenant has no such file
CREATE FUNCTION toolfleet.write_chunk(file uuid, tenant text, at bigint, data bytea)
RETURNS TABLE (verdict text, state text, received bigint, bytes bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f toolfleet.kept_files;
    same boolean;
    came text;
BEGIN
    SELECT * INTO f FROM toolfleet.kept_files k
    WHERE k.file_id = write_chunk.file AND k.tenant = write_chunk.tenant AND k.expires_at > now()
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::text, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF write_chunk.at < f.received THEN
        SELECT c.data = write_chunk.data INTO same FROM toolfleet.file_chunks c WHERE c.file_id = f.file_id AND c.at = write_chunk.at;
        came := CASE same WHEN true THEN 'same' WHEN false THEN 'differs' ELSE 'gap' END;
    ELSIF write_chunk.at > f.received THEN
        came := 'gap';
    ELSIF f.received + octet_length(write_chunk.data) > f.bytes THEN
        came := 'beyond';
    ELSIF f.chunks >= 1024 THEN
        came := 'too_many';
    ELSE
        INSERT INTO toolfleet.file_chunks (file_id, at, data) VALUES (f.file_id, write_chunk.at, write_chunk.data);
        f.received := f.received + octet_length(write_chunk.data);
        UPDATE toolfleet.kept_files k SET received = f.received, chunks = k.chunks + 1 WHERE k.file_id = f.file_id;
        came := 'written';
    END IF;
    RETURN QUERY SELECT came, f.state, f.received, f.bytes;
END $$;

-- Says that a file is complete. From here on it is kept for a day. Verdicts: `ready`, also when said again; `short`: it has `received` bytes and not
-- as many as were announced; `differs`: it has another hash, `sha256`; `not_found`.
CREATE FUNCTION toolfleet.finish_file(file uuid, tenant text, said bytea)
RETURNS TABLE (verdict text, name text, mime text, bytes bigint, received bigint, sha256 bytea, expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f toolfleet.kept_files;
    came text;
BEGIN
    SELECT * INTO f FROM toolfleet.kept_files k
    WHERE k.file_id = finish_file.file AND k.tenant = finish_file.tenant AND k.expires_at > now()
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::timestamptz;
        RETURN;
    END IF;
    IF f.received < f.bytes THEN
        came := 'short';
    ELSE
        IF f.sha256 IS NULL THEN
            -- Once: who says a wrong hash again and again does not have it computed each time.
            f.sha256 := (SELECT sha256(string_agg(c.data, ''::bytea ORDER BY c.at)) FROM toolfleet.file_chunks c WHERE c.file_id = f.file_id);
            UPDATE toolfleet.kept_files k SET sha256 = f.sha256 WHERE k.file_id = f.file_id;
        END IF;
        IF f.sha256 IS DISTINCT FROM finish_file.said THEN
            came := 'differs';
        ELSE
            came := 'ready';
            IF f.state = 'open' THEN
                f.expires_at := now() + interval '1 day';
                UPDATE toolfleet.kept_files k SET state = 'ready', ready_at = now(), expires_at = f.expires_at WHERE k.file_id = f.file_id;
            END IF;
        END IF;
    END IF;
    RETURN QUERY SELECT came, f.name, f.mime, f.bytes, f.received, f.sha256, f.expires_at;
END $$;

-- Deletes a file. Verdicts: `deleted`; `named`: an open call names it; `not_found`.
CREATE FUNCTION toolfleet.delete_file(file uuid, tenant text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    f toolfleet.kept_files;
BEGIN
    -- Who accepts a call that names it has locked it FOR KEY SHARE. So either the call is seen below, in a later statement, or it is
    -- accepted after this and does not find the file.
    SELECT * INTO f FROM toolfleet.kept_files k WHERE k.file_id = delete_file.file AND k.tenant = delete_file.tenant FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    END IF;
    IF toolfleet.is_named(f.file_id) THEN
        RETURN 'named';
    END IF;
    IF f.expires_at <= now() THEN
        -- The sweep has not come to it yet.
        RETURN 'not_found';
    END IF;
    DELETE FROM toolfleet.kept_files k WHERE k.file_id = f.file_id;
    RETURN 'deleted';
END $$;

-- Deletes at most so many files whose time is over and that no open call names, and returns how many. Files that another session has locked are left to the next
-- pass.
CREATE FUNCTION toolfleet.drop_files(most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    due uuid[];
    dropped integer;
BEGIN
    due := ARRAY(
        SELECT k.file_id FROM toolfleet.kept_files k
        WHERE k.expires_at <= now() AND NOT toolfleet.is_named(k.file_id)
        ORDER BY k.expires_at
        LIMIT drop_files.most
        FOR UPDATE SKIP LOCKED);
    -- Asked again once they are locked: a call may have named one in between.
    DELETE FROM toolfleet.kept_files k WHERE k.file_id = ANY (due) AND NOT toolfleet.is_named(k.file_id);
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

-- The files of a running attempt, in the order of its call. Nothing for an attempt that is over.
CREATE FUNCTION toolfleet.attempt_files(call uuid, attempt uuid)
RETURNS TABLE (file_id uuid, name text, mime text, bytes bigint, sha256 bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = toolfleet, pg_temp SET enable_seqscan = off AS $$
    SELECT f.file_id, f.name, f.mime, f.bytes, f.sha256
    FROM toolfleet.open_calls o
    JOIN toolfleet.call_files u ON u.call_id = o.call_id
    JOIN toolfleet.kept_files f ON f.file_id = u.file_id
    WHERE o.call_id = attempt_files.call AND o.attempt_id = attempt_files.attempt AND o.state = 'running'
    ORDER BY u.position
$$;

-- Some bytes of a file that a running attempt has, from this place on, at most `most`; empty at the end of the file, null where it is no file of this attempt.
CREATE FUNCTION toolfleet.read_attempt_file(call uuid, attempt uuid, file uuid, at bigint, most integer) RETURNS bytea
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = toolfleet, pg_temp SET enable_seqscan = off AS $$
    SELECT coalesce((
        SELECT substring(c.data FROM (read_attempt_file.at - c.at)::integer + 1 FOR read_attempt_file.most)
        FROM toolfleet.file_chunks c
        WHERE c.file_id = u.file_id AND c.at <= read_attempt_file.at AND read_attempt_file.at < f.bytes
        ORDER BY c.at DESC
        LIMIT 1), ''::bytea)
    FROM toolfleet.open_calls o
    JOIN toolfleet.call_files u ON u.call_id = o.call_id AND u.file_id = read_attempt_file.file
    JOIN toolfleet.kept_files f ON f.file_id = u.file_id
    WHERE o.call_id = read_attempt_file.call AND o.attempt_id = read_attempt_file.attempt AND o.state = 'running'
$$;

-- The day of a call goes with what it named.
DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.drop_history'::regproc);
    changed text := replace(body, '        RETURN part.day;',
        E'        DELETE FROM toolfleet.call_files WHERE call_id >= low AND call_id < high;\n        RETURN part.day;');
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'drop_history does not return the day';
    END IF;
    EXECUTE changed;
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.is_named, toolfleet.begin_file, toolfleet.write_chunk, toolfleet.finish_file, toolfleet.delete_file,
    toolfleet.drop_files, toolfleet.attempt_files, toolfleet.read_attempt_file FROM PUBLIC;
