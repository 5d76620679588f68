/* claiming worker */
UPDATE toolfleet.open_calls o
/* claim set */
FROM (SELECT unnest($2::uuid[]) AS call_id, unnest($3::uuid[]) AS attempt_id, unnest($4::bigint[]) AS timeout_ms) AS i
WHERE EXISTS (SELECT FROM me)
  -- Repeated: the list makes Postgres use the index, whatever the statistics of an emptied table are.
  AND o.call_id = ANY($2) AND o.call_id = i.call_id
  AND /* claimable */
  /* not locked */
RETURNING /* claimed */
