-- Why: `actor` of a decision is what its author said. Beside it stands what Postgres knows: the role of the session, which
-- nothing in the statement can change, as `role` in `details` of the move. `finish` ends the calls that `settle` and `cancel` end.
--
-- It changes one expression in each of two functions and nothing else of them, whatever else they have become. No lock on a
-- table. The running release survives it: both answer what they answered.
DO $$
DECLARE
    body text;
    changed text;
    change record;
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ('toolfleet.finish',
             'finish.actor, finish.reason, finish.details)',
             E'finish.actor, finish.reason,\n        (coalesce(finish.details::jsonb, ''{}'') || jsonb_build_object(''role'', session_user))::json)'),
            ('toolfleet.cancel',
             'CASE WHEN cancel.reason IS NOT NULL THEN json_build_object(''reason'', left(cancel.reason, 2000)) END;',
             'json_strip_nulls(json_build_object(''reason'', left(cancel.reason, 2000), ''role'', session_user));')
        ) AS t (function, was, becomes)
    LOOP
        body := pg_get_functiondef(change.function::regproc);
        changed := replace(body, change.was, change.becomes);
        IF changed = body THEN
            RAISE EXCEPTION '% does not say %', change.function, quote_literal(change.was);
        END IF;
        EXECUTE changed;
    END LOOP;
END $$;
