-- Why: a message that a call is decided was believed as it came, so a user of NATS who may publish it could tell a waiting
-- caller anything. The row of an open call keeps a secret that its dispatcher makes and its claim returns; only what is proven
-- with it is handed on. No view shows it, and the history does not keep it.
-- Locks: ACCESS EXCLUSIVE on `open_calls` for a moment; nothing is rewritten.
-- The release before survives it: the column may be null, and then the end is read from the row.
ALTER TABLE toolfleet.open_calls ADD COLUMN done_secret uuid;
