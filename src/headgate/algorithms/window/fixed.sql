-- The reference step in PL/pgSQL for a window that is not divided: one count, forgotten at the seam.
--- params limit period tick offset
--- state slot count
--- locals length ending held

--- answer
length := period * tick;
mark_us := (now + "offset") / tick / period;
moved := slot > mark_us AND slot * length - "offset" - now > length;
held := count;
IF slot > mark_us THEN
    IF NOT moved THEN mark_us := slot; END IF;
ELSIF slot < mark_us THEN
    held := 0;
END IF;
ending := (mark_us + 1) * length - "offset" - now;
allowed := cost = 0 OR held + cost <= "limit";
IF allowed THEN
    held := held + cost;
ELSIF cost > "limit" THEN
    retry := NEVER;
ELSE
    retry := ending;
END IF;
remaining := greatest(0, "limit" - held);
IF held > 0 THEN reset := ending; END IF;

--- charge
IF slot < mark_us THEN count := 0; END IF;
slot := mark_us;
count := count + cost;
