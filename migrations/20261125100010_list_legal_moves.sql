-- Why: as the file before, for the moves of calls that stay open. What is queued or running is queued, runs or is in doubt
-- next; what is in doubt stays that as long as it is open.
-- Locks: SHARE ROW EXCLUSIVE on open_calls for a moment.
-- The release before survives it: the rule is the same.

CREATE OR REPLACE TRIGGER legal_moves AFTER UPDATE ON toolfleet.open_calls FOR EACH ROW
    WHEN (OLD.state <> NEW.state
          AND (OLD.state <> ALL ('{queued,running}') OR NEW.state <> ALL ('{queued,running,in_doubt}')))
    EXECUTE FUNCTION toolfleet.refuse_illegal_move();
