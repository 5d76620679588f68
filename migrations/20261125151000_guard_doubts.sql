-- Why: a worker ends its attempts with statements of its own, so its role may delete rows of open calls. A doubt must not end
-- like that: a role that may not settle ends one only by the answer of the attempt that it is in doubt about.
-- Locks: SHARE ROW EXCLUSIVE on `open_calls` for a moment.
-- The release before survives it: its role owns the tables and may settle. A call that is not in doubt pays a comparison.
CREATE FUNCTION toolfleet.refuse_settling() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF has_function_privilege('toolfleet.settle(uuid, text, text, text, json, boolean, text)', 'EXECUTE') OR EXISTS (
        SELECT FROM toolfleet.finished_calls f
        WHERE f.call_id = OLD.call_id AND f.from_state = 'in_doubt' AND f.attempt_id = OLD.attempt_id
          AND f.attempt_outcome IS NOT NULL AND f.source <> 'settled' AND f.actor = 'worker ' || OLD.worker_id) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'call % is in doubt, and this role may not settle it', OLD.call_id USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER doubts_are_settled AFTER DELETE ON toolfleet.open_calls
FOR EACH ROW WHEN (OLD.state = 'in_doubt') EXECUTE FUNCTION toolfleet.refuse_settling();

-- Its trigger calls it, and no role does.
REVOKE EXECUTE ON FUNCTION toolfleet.refuse_settling FROM PUBLIC;
