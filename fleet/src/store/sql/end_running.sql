-- How most calls end: their attempt ran, and they are over. The same as complete.sql, without what only other endings need.
WITH ended AS (
    DELETE FROM toolfleet.open_calls o
    -- Beside each other, not in FROM, which would store each list before it reads a row.
    USING (
        SELECT
            unnest($1::uuid[]) AS call_id, unnest($2::uuid[]) AS attempt_id, unnest($3::text[]) AS new_state,
            unnest($4::text[]) AS outcome, unnest($5::text[]) AS source, unnest($6::text[]) AS effect_known,
            unnest($7::text[]) AS result, unnest($8::text[]) AS error, unnest($9::text[]) AS attempt_outcome,
            unnest($10::text[]) AS actor, unnest($11::text[]) AS reason, unnest($12::text[]) AS degraded) AS m
    -- Repeated: the list makes Postgres use the index, whatever the statistics of an emptied table are.
    WHERE o.call_id = ANY($1) AND o.call_id = m.call_id AND o.attempt_id = m.attempt_id AND o.state = 'running'
    /* finish */
)
SELECT /* moved */ FROM ended
