, named AS (
    INSERT INTO toolfleet.call_files (call_id, position, file_id)
    SELECT i.call_id, u.position, u.file_id
    FROM fit i
    CROSS JOIN LATERAL unnest(i.files::uuid[]) WITH ORDINALITY AS u (file_id, position)
    WHERE i.key_hash IS NULL OR i.call_id IN (SELECT call_id FROM keyed)
)
