-- Why: a prefix of NATS belongs to one ledger. So a ledger has a name of its own, which travels with its dumps, backups and
-- replicas: a copy of it is the same ledger, and no other ledger is.
-- Locks: `fleet`, one row that is written anew, for a moment. Old code: goes on; its statements name every column they use.
ALTER TABLE toolfleet.fleet ADD COLUMN ledger_id uuid NOT NULL DEFAULT gen_random_uuid();

-- Who gave a prefix to this ledger although another one's mark lay there, and why. For people.
CREATE TABLE toolfleet.prefix_takeovers (
    takeover_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    -- Written before it is done, so that none is done without its record.
    asked_at timestamptz NOT NULL DEFAULT now(),
    taken_at timestamptz,
    prefix text NOT NULL,
    -- Whose it was, and where that one was last seen.
    former_ledger_id uuid NOT NULL,
    former_place text,
    taken_by text NOT NULL,
    note text NOT NULL
);
