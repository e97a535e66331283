-- A decision over one limit as a function of the server: it locks the key, reads its row, asks the kernel and writes.
-- functions.py fills in the words in capitals. The answer: the instant, then allowed, remaining, retry, reset and the
-- mark. A session keeps the plan of a query: one that was made for a small table must not scan a large one.
--- function
CREATE OR REPLACE FUNCTION NAMED(
    row_namespace text, row_key text, row_limit text, lock bigint, patience bigint, now bigint, cost bigint, PARAMS
) RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off AS $function$
DECLARE
    stored text;
    changed text;
    allowed boolean;
    moved boolean;
    remaining bigint;
    retry bigint := 0;
    reset bigint := 0;
    mark_us bigint;
    mark_num bigint := 0;
    step bigint := MINUTE;
    LOCALS
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true), pg_advisory_xact_lock(lock);
    -- A statement of its own: it sees what was committed before the key was locked.
    SELECT rows.state INTO stored FROM TABLED AS rows
        WHERE rows.namespace = row_namespace AND rows.key = row_key AND rows.limit_name = row_limit;
    IF FOUND THEN
        READ
    END IF;
    IF now IS NULL THEN
        now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    END IF;
    ANSWER
    IF allowed OR moved THEN
        IF NOT allowed THEN cost := 0; END IF;
        CHARGE
        changed := WRITTEN;
    END IF;
    IF changed <> stored OR (changed IS NOT NULL AND stored IS NULL) THEN
        IF reset >= HOUR THEN step := HOUR; END IF;
        INSERT INTO TABLED (COLUMNS) VALUES (
            row_namespace, row_key, row_limit, changed, 0, remaining, BURST, to_timestamp(now / 1e6::float8),
            to_timestamp(((now + reset) / step + 1) * step / 1e6::float8)
        )
        ON CONFLICT ON CONSTRAINT TABLED_pkey DO UPDATE SET
            state = excluded.state, remaining = excluded.remaining, burst = excluded.burst,
            decided_at = excluded.decided_at, expires_at = excluded.expires_at;
    END IF;
    RETURN ARRAY[now, allowed::int, remaining, retry, reset, mark_us, mark_num];
END
$function$;
