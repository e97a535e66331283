-- The reference step in PL/pgSQL, in sections that stores/sql/functions.py puts together. Pairs are (us, a-ths of one).
--- params burst a p unit_us unit_num depth_us depth_num slack_us
--- state us part
--- locals full_us end_us end_num spare

--- answer
full_us := now + depth_us;
mark_us := us;
IF part > 0 THEN
    mark_num := (part - 1) * a / FINEST + 1;
    IF mark_num = a THEN mark_us := us + 1; mark_num := 0; END IF;
END IF;
IF mark_us < now THEN mark_us := now; mark_num := 0; END IF;
moved := mark_us > full_us + slack_us;
IF moved THEN mark_us := full_us; mark_num := depth_num; END IF;
end_us := mark_us;
end_num := mark_num;
IF cost > burst THEN
    allowed := false;
    retry := NEVER;
ELSE
    spare := mark_num + cost * unit_num % a;
    end_us := mark_us + cost * unit_us + cost * unit_num / a + spare / a;
    end_num := spare % a;
    allowed := cost = 0 OR end_us < full_us OR (end_us = full_us AND end_num <= depth_num);
    IF NOT allowed THEN
        retry := end_us - full_us + (end_num > depth_num)::int;
        end_us := mark_us;
        end_num := mark_num;
    END IF;
END IF;
reset := end_us - now + (end_num > 0)::int;
remaining := greatest(0, (full_us - end_us) * a + depth_num - end_num) / p;

--- charge
-- A refusal has left the end at the mark.
us := end_us;
part := (end_num * FINEST + a - 1) / a;
