-- Why: a tool may say that it answers later, and is answered for with the token of its attempt; or it asks its caller for something
-- before it goes on. Either way its call waits, without a worker.
-- Locks: ACCESS EXCLUSIVE on open_calls for a moment; a nullable column rewrites nothing. token_secret has one row, which is rewritten.
-- The release before survives it: its statements name their columns, and its sweep leaves such calls alone.

ALTER TABLE toolfleet.open_calls ADD COLUMN asked json;

-- Of tokens that tools get: workers read it, and cannot make those of callers with it.
ALTER TABLE toolfleet.token_secret
    ADD COLUMN completion bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());

CREATE OR REPLACE TRIGGER legal_moves AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW
    WHEN (OLD.state <> NEW.state
          AND (OLD.state <> ALL ('{queued,running,awaiting_client}') OR NEW.state <> ALL ('{queued,running,in_doubt,awaiting_client}')
               OR NEW.state = 'awaiting_client' AND (OLD.state <> 'running' OR NEW.awaiting <> ALL ('{completion,input}'))
               OR OLD.state = 'awaiting_client' AND NEW.state <> 'in_doubt'
                  AND (NEW.state <> 'queued' OR OLD.awaiting = 'client')))
    EXECUTE FUNCTION toolfleet.refuse_illegal_move();
