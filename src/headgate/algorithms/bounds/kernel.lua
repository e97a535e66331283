-- The reference step in Lua: a window whose bounds travel with the call.
--- params limit seam0 seam1 seam2 seam3 seam4
--- state start count
--- fresh 0, 0

--- helpers
local function bounds_window(at, seam0, seam1, seam2, seam3, seam4)
    if at < seam1 then return seam0, seam1 end
    if at < seam2 then return seam1, seam2 end
    if at < seam3 then return seam2, seam3 end
    return seam3, seam4
end

--- read
local value = redis.call('GET', key)
if value then
    seen = true
    start, count = cmsgpack.unpack(value)
end

--- answer
local begins, ending = bounds_window(now, seam0, seam1, seam2, seam3, seam4)
local _, beyond = bounds_window(ending, seam0, seam1, seam2, seam3, seam4)
local length = ending - begins
moved = start >= beyond
if start >= ending and not moved then
    begins, ending = bounds_window(start, seam0, seam1, seam2, seam3, seam4)
elseif count > 0 and start <= now and now < start + length
    and start ~= seam0 and start ~= seam1 and start ~= seam2 and start ~= seam3 and start ~= seam4 then
    begins, ending = start, start + length
end
local held, left = 0, max(1, ending - now)
if moved or start >= begins then held = count end
allowed, retry = cost == 0 or held + cost <= limit, 0
if allowed then
    held = held + cost
else
    retry = cost > limit and NEVER or left
end
remaining = max(0, limit - held)
reset = held > 0 and left or 0
mark_us, mark_num = begins, 0

--- charge
local held = mark_us <= start and count or 0
local begins, ending = bounds_window(mark_us, seam0, seam1, seam2, seam3, seam4)
if begins ~= mark_us then ending = seam4 end  -- a window under other seams ends later than this one
redis.call('SET', key, cmsgpack.pack(mark_us, held + cost), 'PX', ceil(max(1, ending - now) / 1000) + slack)

--- give
if start == mark_us then
    redis.call('SET', key, cmsgpack.pack(start, max(0, count - cost)), 'KEEPTTL')
end
