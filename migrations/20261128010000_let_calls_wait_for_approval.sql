-- Why: a call may wait until somebody says yes. `approval` has who may, how many have to, and the clocks that begin with the last yes.
-- What waits for a yes may be queued then; what was handed to a caller's program never is.
-- Locks: ACCESS EXCLUSIVE on open_calls for a moment; a nullable column rewrites nothing, and what is there waits for no approval, so it
-- is not read for the check: NOT VALID.
-- The release before survives it: its statements name their columns, and its sweep ends only calls that wait for a client.

ALTER TABLE toolfleet.open_calls
    ADD COLUMN approval json,
    ADD CONSTRAINT open_calls_approval CHECK (awaiting <> 'approval' OR approval IS NOT NULL) NOT VALID;

CREATE OR REPLACE TRIGGER legal_moves AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW
    WHEN (OLD.state <> NEW.state
          AND (OLD.state <> ALL ('{queued,running,awaiting_client}') OR NEW.state <> ALL ('{queued,running,in_doubt}')
               OR OLD.state = 'awaiting_client' AND NEW.state <> 'in_doubt'
                  AND (NEW.state <> 'queued' OR OLD.awaiting IS DISTINCT FROM 'approval')))
    EXECUTE FUNCTION toolfleet.refuse_illegal_move();
