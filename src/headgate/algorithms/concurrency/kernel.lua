-- The reference step in Lua. A sorted set with a member for each unit that is out: the instant its permit was taken, the
-- permit's place among those of that instant, and the unit's place in it; scored by when its lease ends. What has ended
-- does not count any more, whether somebody has removed it or not.
--- params limit ttl
--- state held
--- fresh 0

--- helpers
local function concurrency_unit(mark_us, mark_num, unit)
    return struct.pack('<i8I4I4', mark_us, math.floor(mark_num / UNITS), unit)
end

local function concurrency_keep(key, ttl, slack)  -- at least for so long: another's lease may be longer
    local ms = math.ceil(ttl / 1000) + slack
    if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

local concurrency_next = {}  -- of each key, the first place of this instant that may be free: a call may carry many groups

--- read
held = redis.call('ZCOUNT', key, format('(%.0f', now), '+inf')
seen = held > 0

--- answer
allowed, retry, moved = cost == 0 or held + cost <= limit, 0, false
mark_us, mark_num = now, 0
local out = held
if allowed then
    out, mark_num = held + cost, cost + UNITS * (concurrency_next[key] or 0)
    while held > 0 and redis.call('ZSCORE', key, concurrency_unit(now, mark_num, 1)) do mark_num = mark_num + UNITS end
else
    retry = cost > limit and NEVER or UNKNOWN
end
remaining, reset = max(0, limit - out), out > 0 and UNKNOWN or 0

--- charge
if cost > 0 then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    for unit = 1, cost do redis.call('ZADD', key, now + ttl, concurrency_unit(mark_us, mark_num, unit)) end
    concurrency_keep(key, ttl, slack)
    concurrency_next[key] = math.floor(mark_num / UNITS) + 1
end

--- give
for unit = mark_num % UNITS, 1, -1 do  -- the first unit goes last: by it a permit is known to be out
    if cost == 0 then break end
    cost = cost - redis.call('ZREM', key, concurrency_unit(mark_us, mark_num, unit))
end
