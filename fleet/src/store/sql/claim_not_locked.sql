AND o.call_id = ANY(ARRAY(
    SELECT o.call_id
    FROM toolfleet.open_calls o
    WHERE o.call_id = ANY($2) AND /* claimable */
    ORDER BY o.call_id
    FOR UPDATE SKIP LOCKED))
