-- The reference step in Lua. The state is an integer, the instant, which the server forgets when it is over.
--- params longest sets
--- state ends
--- fresh 0

--- read
local value = redis.call('GET', key)
if value then seen, ends = true, tonumber(value) end

--- answer
moved, mark_us, mark_num = ends > now + longest, ends, 0
if moved then mark_us = now + longest end
if sets > 0 and cost > 0 then mark_us = max(mark_us, now + min(cost, longest)) end
reset = max(0, mark_us - now)
allowed = sets > 0 or cost == 0 or reset == 0
remaining, retry = reset > 0 and 0 or EXACT, allowed and 0 or reset

--- lend
allowed = true

--- charge
if mark_us ~= ends and mark_us > now then
    redis.call('SET', key, mark_us, 'PX', ceil((mark_us - now) / 1000) + slack)
end

--- give
