-- Why: an answer of megabytes does not fit into what a model can read. Its callers get the beginning and the end, which is decided once
-- and kept beside the answer, so that every reader gets the same bytes.
-- Locks: ACCESS EXCLUSIVE on finished_calls and its partitions for a moment; a nullable column without a default rewrites nothing.
-- The release before survives it: it names its columns. It reads the whole answer where callers of this one get the part.

ALTER TABLE toolfleet.finished_calls ADD COLUMN preview json;
