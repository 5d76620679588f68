-- Why: a policy asks which calls of a run or of a session are under way (20261127140100). The history has such indexes since
-- 20261123100430.
-- Locks: SHARE on open_calls while two indexes of the calls with a run or a session are built.
-- The release before survives it. Its updates of open_calls stay HOT: neither column ever changes.

CREATE INDEX open_calls_run ON toolfleet.open_calls (run) WHERE run IS NOT NULL;
CREATE INDEX open_calls_session ON toolfleet.open_calls (session) WHERE session IS NOT NULL;
