-- The reference step in Lua, in sections that stores/redis/scripts.py puts together. One string: a header, then a ring
-- of 8-byte stamps that grows by half up to the limit.
--- params limit period
--- state cap tail count oldest newest
--- fresh 0, 0, 0, 0, 0

--- helpers
local function log_header(cap, tail, count, oldest, newest)
    return struct.pack('<I3I3I3i8i8', cap, tail, count, oldest, newest)
end

-- The stamps from place `first` (0 is the oldest) on, as bytes in order.
local function log_stamps(key, cap, tail, first, amount)
    if amount <= 0 then return '' end
    local start = (tail + first) % cap
    local straight = min(amount, cap - start)
    local stamps = redis.call('GETRANGE', key, 25 + start * 8, 24 + (start + straight) * 8)
    if amount == straight then return stamps end
    return stamps .. redis.call('GETRANGE', key, 25, 24 + (amount - straight) * 8)
end

local function log_write(key, cap, tail, first, stamps)
    local start, amount = (tail + first) % cap, #stamps / 8
    local straight = min(amount, cap - start)
    redis.call('SETRANGE', key, 25 + start * 8, straight == amount and stamps or stamps:sub(1, straight * 8))
    if straight < amount then redis.call('SETRANGE', key, 25, stamps:sub(straight * 8 + 1)) end
end

local function log_stamp(key, cap, tail, place)
    return (struct.unpack('<i8', log_stamps(key, cap, tail, place, 1)))
end

-- How many stamps are not after the instant. Leaps first: it is usually few.
local function log_until(key, cap, tail, count, oldest, newest, instant)
    if count == 0 or oldest > instant then return 0 end
    if newest <= instant then return count end
    local low, high, leap = 1, count - 1, 1
    while low < high do
        local place = leap and min(low + leap - 1, high - 1) or floor((low + high) / 2)
        if log_stamp(key, cap, tail, place) <= instant then
            low, leap = place + 1, leap and leap * 2
        else
            high, leap = place, nil
        end
    end
    return low
end

--- read
local header = redis.call('GETRANGE', key, 0, 24)
if #header == 25 then
    seen = true
    cap, tail, count, oldest, newest = struct.unpack('<I3I3I3i8i8', header)
end

--- answer
local last = count > 0 and newest or now
moved, mark_us, mark_num = last - now > period, max(now, last), 0
local shift = 0
if moved then mark_us, shift = now, last - now end
local gone = log_until(key, cap, tail, count, oldest, newest, mark_us + shift - period)
local held = count - gone
reset = held > 0 and last - shift + period - now or 0
allowed, retry = cost == 0 or held + cost <= limit, 0
if not allowed then
    retry = NEVER
    if cost <= limit then
        local place = gone + held + cost - limit - 1
        retry = (place == 0 and oldest or log_stamp(key, cap, tail, place)) - shift + period - now
    end
elseif cost > 0 then
    held, reset = held + cost, mark_us + period - now
end
remaining = max(0, limit - held)

--- charge
if count > 0 and newest > mark_us then  -- the clock stepped back: every stamp follows it
    local shift, moved_back = newest - mark_us, {}
    local stamps = log_stamps(key, cap, tail, 0, count)
    for place = 1, count do
        moved_back[place] = struct.pack('<i8', struct.unpack('<i8', stamps, place * 8 - 7) - shift)
    end
    log_write(key, cap, tail, 0, table.concat(moved_back))
    oldest, newest = oldest - shift, newest - shift
end
local gone = log_until(key, cap, tail, count, oldest, newest, mark_us - period)
count = count - gone
if cost > 0 then newest = mark_us end
if gone > 0 then
    tail = (tail + gone) % cap
    if count > 0 then oldest = log_stamp(key, cap, tail, 0) end
end
if count == 0 then oldest = newest end
local stamps, total = string.rep(struct.pack('<i8', mark_us), cost), count + cost
if total == 0 then
    redis.call('DEL', key)
elseif total > cap then
    stamps = log_stamps(key, cap, tail, 0, count) .. stamps
    cap = max(total, min(limit, ceil(cap * 1.5)))
    redis.call('SET', key, log_header(cap, 0, total, oldest, newest) .. stamps .. string.rep('\0', (cap - total) * 8),
        'PX', ceil((newest + period - now) / 1000) + slack)
else
    if cost > 0 then log_write(key, cap, tail, count, stamps) end
    redis.call('SETRANGE', key, 0, log_header(cap, tail, total, oldest, newest))
    redis.call('PEXPIRE', key, ceil(max(0, newest + period - now) / 1000) + slack)
end

--- give
local last = log_until(key, cap, tail, count, oldest, newest, mark_us)
local taken = min(cost, last)
if taken > 0 and taken == count then
    redis.call('DEL', key)
elseif taken > 0 then
    if last < count then
        log_write(key, cap, tail, last - taken, log_stamps(key, cap, tail, last, count - last))
    end
    count = count - taken
    oldest, newest = log_stamp(key, cap, tail, 0), log_stamp(key, cap, tail, count - 1)
    redis.call('SETRANGE', key, 0, log_header(cap, tail, count, oldest, newest))
end
