-- The reference step in Lua, in sections that stores/redis/scripts.py puts together. Pairs are (us, a-ths of one).
--- params burst a p unit_us unit_num depth_us depth_num slack_us
--- state us part
--- fresh 0, 0

--- read
-- Written as `us`, or `us:part` where there is a fraction: a plain integer takes the least room in the server.
local value = redis.call('GET', key)
if value then
    seen, us, part = true, tonumber(value), 0
    if not us then
        us, part = match(value, '^(-?%d+):(%d+)$')
        us, part = tonumber(us), tonumber(part)
    end
end

--- answer
local full_us, full_num = now + depth_us, depth_num
mark_us, mark_num = us, 0
if part > 0 then
    mark_num = floor((part - 1) * a / FINEST) + 1
    if mark_num == a then mark_us, mark_num = us + 1, 0 end
end
if mark_us < now then mark_us, mark_num = now, 0 end
moved = mark_us > full_us + slack_us
if moved then mark_us, mark_num = full_us, full_num end
local end_us, end_num = mark_us, mark_num
allowed, retry = false, NEVER
if cost <= burst then
    local spare = cost * unit_num
    end_us, end_num = mark_us + cost * unit_us + floor(spare / a), mark_num + spare % a
    if end_num >= a then end_us, end_num = end_us + floor(end_num / a), end_num % a end
    allowed, retry = cost == 0 or end_us < full_us or (end_us == full_us and end_num <= full_num), 0
    if not allowed then
        retry = end_us - full_us + (end_num > full_num and 1 or 0)
        end_us, end_num = mark_us, mark_num
    end
end
reset = end_us - now + (end_num > 0 and 1 or 0)
if a == 1 then
    remaining = max(0, floor((full_us - end_us + full_num - end_num) / p))
else
    -- room * a can leave 53 bits: estimate in floats, then correct by whole increments, which are exact.
    local carry = floor((full_num - end_num) / a)
    local room_us, room_num = full_us - end_us + carry, full_num - end_num - carry * a
    remaining = max(0, floor((room_us + room_num / a) * (a / p)) - 2)
    for units = remaining + 1, remaining + 4 do
        local spare = units * unit_num
        local inc_us = units * unit_us + floor(spare / a)
        if inc_us > room_us or (inc_us == room_us and spare % a > room_num) then break end
        remaining = units
    end
end

--- lend
local spare = cost * unit_num
local end_us, end_num = mark_us + cost * unit_us + floor(spare / a), mark_num + spare % a
if end_num >= a then end_us, end_num = end_us + floor(end_num / a), end_num % a end
allowed, remaining, reset = true, 0, end_us - now + (end_num > 0 and 1 or 0)

--- charge
local spare = cost * unit_num
local end_us, end_num = mark_us + cost * unit_us + floor(spare / a), mark_num + spare % a
if end_num >= a then end_us, end_num = end_us + floor(end_num / a), end_num % a end
local value = end_us
if end_num > 0 then value = format('%d:%d', end_us, ceil(end_num * FINEST / a)) end
redis.call('SET', key, value, 'PX', ceil((end_us - now) / 1000) + slack)

--- give
if cost > burst then cost = burst end
local spare = cost * unit_num
local back_us, back_num = cost * unit_us + floor(spare / a), spare % a
local end_us, end_num = mark_us + back_us, mark_num + back_num
if end_num >= a then end_us, end_num = end_us + floor(end_num / a), end_num % a end
local num = part > 0 and floor((part - 1) * a / FINEST) + 1 or 0
if num == a then us, num = us + 1, 0 end
local drained, full_us = max(0, now - mark_us), now + depth_us
local promised = us > full_us or (us == full_us and num > depth_num)
if drained <= back_us + 1 and (not promised or (us == end_us and num == end_num)) then
    if drained > 0 then back_num = back_num + mark_num end
    back_us, back_num = back_us - drained + floor(back_num / a), back_num % a
    if back_us > 0 or (back_us == 0 and back_num > 0) then
        us, num = us - back_us, num - back_num
        if num < 0 then us, num = us - 1, num + a end
        local value = us
        if num > 0 then value = format('%d:%d', us, ceil(num * FINEST / a)) end
        redis.call('SET', key, value, 'PX', ceil(max(0, us - now) / 1000) + slack)
    end
end
