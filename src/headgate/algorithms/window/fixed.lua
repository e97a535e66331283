-- The reference step in Lua for a window that is not divided: one count, forgotten at the seam.
--- params limit period tick offset
--- state slot count
--- fresh 0, 0

--- read
local value = redis.call('GET', key)
if value then
    seen = true
    slot, count = cmsgpack.unpack(value)
end

--- answer
local length = period * tick
mark_us, mark_num = floor(floor((now + offset) / tick) / period), 0
moved = slot > mark_us and slot * length - offset - now > length
local held = count
if slot > mark_us then
    if not moved then mark_us = slot end
elseif slot < mark_us then
    held = 0
end
local ending = (mark_us + 1) * length - offset - now
allowed, retry = cost == 0 or held + cost <= limit, 0
if allowed then
    held = held + cost
else
    retry = cost > limit and NEVER or ending
end
remaining = max(0, limit - held)
reset = held > 0 and ending or 0

--- charge
if slot < mark_us then count = 0 end
redis.call('SET', key, cmsgpack.pack(mark_us, count + cost), 'PX',
    ceil(((mark_us + 1) * period * tick - offset - now) / 1000) + slack)

--- give
if slot == mark_us then
    redis.call('SET', key, cmsgpack.pack(slot, max(0, count - cost)), 'KEEPTTL')
end
