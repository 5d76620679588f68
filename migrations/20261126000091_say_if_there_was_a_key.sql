-- What the ledger itself says of calls that were taken back or settled ends in the sentences of `fleet::wire::error::advice`:
-- many calls have no key, so what it advises about keys holds if there was one.
--
-- It changes texts in two functions and nothing else of them, whatever else they have become. No lock on a table. The running
-- release survives it: it does not read these texts.
DO $$
DECLARE
    body text;
    changed text;
    change record;
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ('Ask the user; if it is still wanted, send it with a new idempotency key: the same one repeats this answer.',
             'Ask the user; if it is still wanted, send it again, with a new idempotency key if there was one: the same one repeats this answer.'),
            ('请询问用户；如果仍然需要，请用新的幂等键发送；同一个幂等键只会得到同样的回答。',
             '请询问用户；如果仍然需要，请再次发送；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。')
        ) AS t (was, becomes),
        (VALUES
            ('toolfleet.cancel(uuid,text,text,text)'),
            ('toolfleet.settle(uuid,text,text,text,json,boolean,text)')
        ) AS f (function)
    LOOP
        body := pg_get_functiondef(change.function::regprocedure);
        changed := replace(body, change.was, change.becomes);
        IF changed = body THEN
            RAISE EXCEPTION '% does not say %', change.function, quote_literal(change.was);
        END IF;
        EXECUTE changed;
    END LOOP;
END $$;
