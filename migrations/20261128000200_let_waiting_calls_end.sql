-- Why: a call that waits for somebody may end as any open call.
-- Locks: ACCESS EXCLUSIVE on finished_calls and its partitions for a moment. What is there was checked by a narrower rule, so it is
-- not read again: NOT VALID.
-- The release before survives it: the rule allows more than before.

ALTER TABLE toolfleet.finished_calls
    DROP CONSTRAINT finished_calls_legal_move,
    ADD CONSTRAINT finished_calls_legal_move CHECK (
        from_state = ANY ('{queued,running,in_doubt,awaiting_client}') AND state = ANY ('{succeeded,failed,cancelled,expired}')
        AND (from_state <> 'in_doubt' OR state = ANY ('{succeeded,failed}'))) NOT VALID;
