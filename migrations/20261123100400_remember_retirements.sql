-- Why: a tool could be applied and changed, and never be taken out of use. A retirement holds for the versions that were there;
-- a newer one offers the tool again. `rev` is one numbering with that of `tool_versions`, so what reads new versions reads this too.
-- Locks: none; a new table, and a view with columns at its end.
-- The release before survives it and does not know it: its dispatchers go on offering and accepting retired tools. Retire tools
-- once every dispatcher is upgraded.

CREATE TABLE toolfleet.tool_retirements (
    tool text NOT NULL,
    -- The newest version at that moment: it and those before it are retired.
    version integer NOT NULL,
    rev bigint NOT NULL UNIQUE,
    retired_at timestamptz NOT NULL DEFAULT now(),
    retired_by text NOT NULL,
    note text NOT NULL,
    PRIMARY KEY (tool, version)
);

CREATE OR REPLACE VIEW toolfleet.tools AS
SELECT v.tool, v.version, v.version = max(v.version) OVER (PARTITION BY v.tool) AS current, v.manifest->>'effect' AS effect,
       v.manifest->>'queue' AS queue, v.manifest, encode(v.schema_hash, 'hex') AS schema_hash, v.applied_at, v.applied_by,
       v.concurrency, r.retired_at, r.retired_by, r.note AS retired_note
FROM toolfleet.tool_versions v
-- A version stays with the retirement that it met first.
LEFT JOIN LATERAL (SELECT t.retired_at, t.retired_by, t.note FROM toolfleet.tool_retirements t
                   WHERE t.tool = v.tool AND t.version >= v.version ORDER BY t.version LIMIT 1) r ON true;
