-- What the ledger itself says of calls that were taken back or settled ends in the sentences of `fleet::wire::error::advice`:
-- once a call has ended, its key repeats the answer, so trying again takes a new one; and a call in doubt is repeated under none.
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
            ('toolfleet.cancel(uuid,text,text,text)',
             'Call again only if it is wanted after all.',
             'Ask the user; if it is still wanted, send it with a new idempotency key: the same one repeats this answer.'),
            ('toolfleet.cancel(uuid,text,text,text)',
             '只有仍然需要时才再次调用。',
             '请询问用户；如果仍然需要，请用新的幂等键发送；同一个幂等键只会得到同样的回答。'),
            ('toolfleet.cancel(uuid,text,text,text)',
             'Do not repeat the call; ask a person to find out.',
             'Do not repeat the call, not with a new idempotency key either; ask a person to find out.'),
            ('toolfleet.cancel(uuid,text,text,text)',
             '不要重复这次调用；请交由人工查明结果。',
             '不要重复这次调用，换用新的幂等键也不行；请交由人工查明结果。'),
            ('toolfleet.settle(uuid,text,text,text,json,boolean,text)',
             'Ask the user before it is tried again, with a new key.',
             'Ask the user; if it is still wanted, send it with a new idempotency key: the same one repeats this answer.'),
            ('toolfleet.settle(uuid,text,text,text,json,boolean,text)',
             '再次尝试之前请先询问用户，并使用新的幂等键。',
             '请询问用户；如果仍然需要，请用新的幂等键发送；同一个幂等键只会得到同样的回答。')
        ) AS t (function, was, becomes)
    LOOP
        body := pg_get_functiondef(change.function::regprocedure);
        changed := replace(body, change.was, change.becomes);
        IF changed = body THEN
            RAISE EXCEPTION '% does not say %', change.function, quote_literal(change.was);
        END IF;
        EXECUTE changed;
    END LOOP;
END $$;
