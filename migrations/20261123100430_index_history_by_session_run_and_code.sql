-- Why: `toolfleet calls list` finds calls by session, run and error code; without these it would read the whole history for
-- it. They have `call_id` behind what is looked for, so the newest come first without sorting. A call without a session,
-- without a run, that did not fail, has no entry. For a span of time there is the key: ids are ordered by it.
-- None on open_calls: a call is there for a moment, and every accept with a session would write an entry that vacuum takes
-- away again, for a question that is asked now and then. The open calls are bounded by the quotas, and are read by their key.
-- Locks: SHARE on finished_calls and its partitions for a moment, in which nothing is written there: a partition without rows
-- is all that is indexed here. On the others `toolfleet migrate` builds the indexes right after this, CONCURRENTLY and one
-- after the other; until then these indexes are marked invalid, which holds up nothing: a partition that has its own uses it.
-- The release before survives it, and partitions that are made from now on have the indexes from their beginning.

CREATE INDEX finished_calls_session ON ONLY toolfleet.finished_calls (session, call_id) WHERE session IS NOT NULL;
CREATE INDEX finished_calls_run ON ONLY toolfleet.finished_calls (run, call_id) WHERE run IS NOT NULL;
CREATE INDEX finished_calls_code ON ONLY toolfleet.finished_calls ((error->>'code'), call_id) WHERE error IS NOT NULL;

DO $$
DECLARE
    part name;
    filled boolean;
BEGIN
    FOR part IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'toolfleet.finished_calls'::regclass
        ORDER BY 1
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM toolfleet.%I)', part) INTO filled;
        CONTINUE WHEN filled;
        EXECUTE format('CREATE INDEX %I ON toolfleet.%I (session, call_id) WHERE session IS NOT NULL', part || '_session', part);
        EXECUTE format('CREATE INDEX %I ON toolfleet.%I (run, call_id) WHERE run IS NOT NULL', part || '_run', part);
        EXECUTE format('CREATE INDEX %I ON toolfleet.%I ((error->>''code''), call_id) WHERE error IS NOT NULL',
            part || '_code', part);
        EXECUTE format('ALTER INDEX toolfleet.finished_calls_session ATTACH PARTITION toolfleet.%I', part || '_session');
        EXECUTE format('ALTER INDEX toolfleet.finished_calls_run ATTACH PARTITION toolfleet.%I', part || '_run');
        EXECUTE format('ALTER INDEX toolfleet.finished_calls_code ATTACH PARTITION toolfleet.%I', part || '_code');
    END LOOP;
END $$;
