-- Why: a bulk retry has a name, and its new calls have keys of that name and the old call, so sent twice it doubles nothing. That
-- holds for one set of calls: the row remembers the filter, its moments as they were fixed at the first time, and the newest call
-- that it covers. It goes with that call's day, as the keys do.
-- Locks: none. The release before survives it: it does not know the table, and `drop_history` does what it did.
CREATE TABLE toolfleet.bulk_retries (
    name text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    filter text NOT NULL CHECK (length(filter) <= 65536),
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    newest uuid NOT NULL,
    actor text NOT NULL CHECK (length(actor) BETWEEN 1 AND 200),
    role text NOT NULL DEFAULT session_user,
    at timestamptz NOT NULL DEFAULT now()
);

DO $$
DECLARE
    body text := pg_get_functiondef('toolfleet.drop_history'::regproc);
    changed text := replace(body, '        RETURN part.day;',
        E'        DELETE FROM toolfleet.bulk_retries WHERE newest < high;\n        RETURN part.day;');
BEGIN
    IF changed = body THEN
        RAISE EXCEPTION 'drop_history does not return the day';
    END IF;
    EXECUTE changed;
END $$;
