-- Why: a call may wait for somebody outside the fleet: the program of its caller, which runs the tool. `awaiting` says for whom;
-- `awaiting_client` is left for an end or a doubt and never for an attempt by a worker. The list of moves says all pairs of states.
-- Locks: ACCESS EXCLUSIVE on open_calls for a moment; a nullable column rewrites nothing, and what is there waits for nobody, so it is
-- not read for the check: NOT VALID.
-- The release before survives it: its statements name their columns, and move no call that waits.

ALTER TABLE toolfleet.open_calls
    ADD COLUMN awaiting text,
    ADD CONSTRAINT open_calls_awaiting CHECK ((state = 'awaiting_client') = (awaiting IS NOT NULL)) NOT VALID;

CREATE OR REPLACE TRIGGER legal_moves AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW
    WHEN (OLD.state <> NEW.state
          AND (OLD.state <> ALL ('{queued,running,awaiting_client}') OR NEW.state <> ALL ('{queued,running,in_doubt}')
               OR OLD.state = 'awaiting_client' AND NEW.state <> 'in_doubt'))
    EXECUTE FUNCTION toolfleet.refuse_illegal_move();
