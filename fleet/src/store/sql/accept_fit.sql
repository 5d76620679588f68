, found AS MATERIALIZED (
    -- The files of all calls. Neither their deletion nor the sweep comes in between: both need the row's lock, and look for calls after it.
    SELECT f.file_id, f.tenant
    FROM toolfleet.kept_files f
    WHERE f.file_id = ANY (ARRAY(SELECT unnest(files::uuid[]) FROM input))
      -- Not found by when they expire, which most of all files do later.
      AND CASE WHEN f.state = 'ready' THEN f.expires_at > now() END
    ORDER BY f.file_id
    FOR KEY SHARE
), fit AS MATERIALIZED (
    -- A call that names a file which its tenant does not have makes nothing.
    SELECT i.*
    FROM input i
    WHERE NOT EXISTS (
        SELECT
        FROM unnest(i.files::uuid[]) AS u (file_id)
        WHERE NOT EXISTS (SELECT FROM found f WHERE f.file_id = u.file_id AND f.tenant = i.tenant))
)
