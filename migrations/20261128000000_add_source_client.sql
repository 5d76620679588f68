-- Why: the answer of a call that the caller's own program ran says so: `source` = `client`.
-- Locks: none that a statement waits for; the catalog's for a moment. Alone in its file, for the word may not be used in the
-- transaction that adds it.
-- The release before survives it: its programs do not know the word, and none of them meets it. A row has it only once a manifest
-- with `executor.client` is applied, which they cannot read. Apply such manifests after every dispatcher and worker is upgraded; once
-- a call has ended so, the release before cannot read that call.

ALTER TYPE toolfleet.source ADD VALUE 'client';
