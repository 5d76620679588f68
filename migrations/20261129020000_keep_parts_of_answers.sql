-- Why: a tool may answer with an image of megabytes. In the row of its call it is in nobody's way, but everybody who looks at the call gets it, a model
-- among them. Large blocks of an answer are kept as files of the tenant, and the answer has links to them.
-- Locks: none that a statement waits for.
-- The release before survives it: it does not call the function, and its answers stay whole.

-- Keeps parts of what a call has come to as files, all of them or none, for at least a day, and as long as the call's key is known. Verdicts: `kept`, also when
-- said again with the same ids; `quota`: the tenant may not have as many files or bytes, where a limit of 0 is none; `over`: the call has no such attempt any more.
CREATE FUNCTION toolfleet.keep_answer_files(call uuid, attempt uuid, files uuid[], names text[], mimes text[], parts bytea[], files_max bigint, bytes_max bigint)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = toolfleet, pg_temp AS $$
DECLARE
    o record;
    part record;
    at integer;
    begun text;
    made uuid[] := '{}';
BEGIN
    SELECT c.tenant, c.key_retention_ms INTO o FROM toolfleet.open_calls c
    WHERE c.call_id = keep_answer_files.call AND c.attempt_id = keep_answer_files.attempt;
    IF NOT FOUND THEN
        RETURN 'over';
    END IF;
    -- That of `begin_file`: whoever keeps the same files waits here, and then sees them.
    PERFORM pg_advisory_xact_lock(hashtext('toolfleet.kept_files'), hashtext(o.tenant));
    FOR part IN
        SELECT p.file, p.name, p.mime, p.data FROM unnest(keep_answer_files.files, keep_answer_files.names, keep_answer_files.mimes, keep_answer_files.parts)
            AS p(file, name, mime, data)
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM toolfleet.kept_files k WHERE k.file_id = part.file AND k.tenant = o.tenant AND k.state = 'ready');
        SELECT b.verdict INTO begun
        FROM toolfleet.begin_file(part.file, o.tenant, part.name, part.mime, octet_length(part.data), keep_answer_files.files_max, keep_answer_files.bytes_max) b;
        IF begun <> 'open' THEN
            DELETE FROM toolfleet.kept_files k WHERE k.file_id = ANY (made);
            RETURN begun;
        END IF;
        made := made || part.file;
        at := 0;
        WHILE at < octet_length(part.data) LOOP
            PERFORM toolfleet.write_chunk(part.file, o.tenant, at, substring(part.data FROM at + 1 FOR 262144));
            at := at + 262144;
        END LOOP;
        PERFORM toolfleet.finish_file(part.file, o.tenant, sha256(part.data));
    END LOOP;
    UPDATE toolfleet.kept_files k
    SET expires_at = greatest(k.expires_at, now() + greatest(interval '1 day', o.key_retention_ms * interval '1 millisecond'))
    WHERE k.file_id = ANY (keep_answer_files.files);
    RETURN 'kept';
END $$;

REVOKE EXECUTE ON FUNCTION toolfleet.keep_answer_files FROM PUBLIC;
