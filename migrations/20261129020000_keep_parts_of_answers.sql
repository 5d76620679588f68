-- Why: a tool may answer with an image of megabytes. In the row of its call it is in nobody's way, but everybody who looks at the call gets it, a model
-- among them. Large blocks of an answer are kept as files of the tenant, and the answer has links to them.
-- Locks: none that a statement waits for.
-- The release before survives it: it does not call the function, and its answers stay whole.

-- Keeps a part of what a call has come to as a file, for at least a day, and as long as the call's key is known. Verdicts: `kept`, also when said again with
-- the same id; `quota`: the tenant has as many files or bytes as it may have, where a limit of 0 is none; `over`: the call has no such attempt any more.
CREATE FUNCTION toolfleet.keep_answer_file(call uuid, attempt uuid, file uuid, name text, mime text, data bytea, files_max bigint, bytes_max bigint)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    o record;
    size integer := octet_length(keep_answer_file.data);
    at integer := 0;
    begun text;
BEGIN
    SELECT c.tenant, c.key_retention_ms INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = keep_answer_file.call AND c.attempt_id = keep_answer_file.attempt;
    IF NOT FOUND THEN
        RETURN 'over';
    END IF;
    -- That of `begin_file`: whoever keeps the same file waits here, and then sees it.
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.kept_files'), hashtext(o.tenant));
    IF NOT EXISTS (SELECT FROM toolfleet.kept_files k WHERE k.file_id = keep_answer_file.file AND k.tenant = o.tenant AND k.state = 'ready') THEN
        SELECT b.verdict INTO begun
        FROM toolfleet.begin_file(keep_answer_file.file, o.tenant, keep_answer_file.name, keep_answer_file.mime, size,
                                  keep_answer_file.files_max, keep_answer_file.bytes_max) b;
        IF begun <> 'open' THEN
            RETURN begun;
        END IF;
        WHILE at < size LOOP
            PERFORM toolfleet.write_chunk(keep_answer_file.file, o.tenant, at, substring(keep_answer_file.data FROM at + 1 FOR 262144));
            at := at + 262144;
        END LOOP;
        PERFORM toolfleet.finish_file(keep_answer_file.file, o.tenant, sha256(keep_answer_file.data));
    END IF;
    UPDATE toolfleet.kept_files k
    SET expires_at = greatest(k.expires_at, now() + greatest(interval '1 day', o.key_retention_ms * interval '1 millisecond'))
    WHERE k.file_id = keep_answer_file.file;
    RETURN 'kept';
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.keep_answer_file FROM PUBLIC;
