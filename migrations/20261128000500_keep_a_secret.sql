-- Why: who hands in what a call waits for proves with a token that the call was handed to them: an HMAC under this secret. It is made
-- here, is in no view, and is never stored with a call.
-- Locks: none that a statement waits for.
-- The release before survives it: it does not know the table.

CREATE TABLE toolfleet.token_secret (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- 244 random bits.
    secret bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
);
INSERT INTO toolfleet.token_secret DEFAULT VALUES;
