-- Why: from which state a call may come to its end, and to which, was said by the order of the states, which a new state would
-- upset. It is a list now, each one constant: a constraint is read anew by each statement that ends calls, and `IN` would be
-- read as an array of constants, an eighth of such a statement.
-- Locks: ACCESS EXCLUSIVE on finished_calls and its partitions for a moment. What is there was checked by the same rule, so
-- it is not read again: NOT VALID.
-- The release before survives it: the rule is the same.

ALTER TABLE toolfleet.finished_calls
    DROP CONSTRAINT finished_calls_legal_move,
    ADD CONSTRAINT finished_calls_legal_move CHECK (
        from_state = ANY ('{queued,running,in_doubt}') AND state = ANY ('{succeeded,failed,cancelled,expired}')
        AND (from_state <> 'in_doubt' OR state = ANY ('{succeeded,failed}'))) NOT VALID;
