-- Four rows a call: open while it lives, its key for good, and what is left of it: its history and its attempt.
CREATE SCHEMA toolfleet_floor;

-- Changed once, by the claim, and then deleted: half of each page is left free, so that the change stays on its page.
CREATE TABLE toolfleet_floor.open_calls (
    call_id uuid PRIMARY KEY,
    tenant text NOT NULL,
    tool text NOT NULL,
    key text NOT NULL,
    args text NOT NULL,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running')),
    accepted_at timestamptz NOT NULL DEFAULT now(),
    attempt_id uuid,
    worker text,
    started_at timestamptz
) WITH (fillfactor = 50);

CREATE TABLE toolfleet_floor.keys (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    call_id uuid NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE TABLE toolfleet_floor.history (
    call_id uuid PRIMARY KEY,
    tenant text NOT NULL,
    tool text NOT NULL,
    key text NOT NULL,
    args text NOT NULL,
    state text NOT NULL,
    result text NOT NULL,
    accepted_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL
);

CREATE TABLE toolfleet_floor.attempts (
    call_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    worker text NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    outcome text NOT NULL,
    PRIMARY KEY (call_id, attempt_id)
);
