-- The reference step in Lua for blended slots. `counts` is by age: the current slot first, the leaving one last.
--- params limit period slots tick offset blendable
--- state slot counts
--- fresh 0, false

--- helpers
local function window_start(slot, phase, period, slots, tick, offset)
    local inside = slot % slots
    return ((slot - inside) / slots * period + ceil((inside * period + phase) / slots)) * tick - offset
end

local function window_aged(counts, by, slots)
    if by <= 0 and counts then return counts end
    local aged = {}
    for place = 1, slots + 1 do aged[place] = counts and counts[place - by] or 0 end
    return aged
end

-- Microseconds until the estimate has fallen to `room`; `extra` is counted in the current slot already.
local function window_wait(counts, extra, slot, phase, room, now, period, slots, tick, offset, blendable)
    local last, whole = slots + 1, extra
    for place = 1, slots do whole = whole + counts[place] end
    for place = last, 1, -1 do
        if whole <= room then
            local spare, leaving = room - whole, min(counts[place] + (place == 1 and extra or 0), blendable)
            local need = leaving <= spare and 0 or period - floor(((spare + 1) * period - 1) / leaving)
            if place == last and need <= phase then return 0 end
            if need < period then
                return window_start(slot + last - place, need, period, slots, tick, offset) - now
            end
        end
        if place > 1 then whole = whole - counts[place - 1] - (place == 2 and extra or 0) end
    end
    return window_start(slot + last, 0, period, slots, tick, offset) - now
end

--- read
local value = redis.call('GET', key)
if value then
    seen = true
    slot, counts = cmsgpack.unpack(value)
end

--- answer
local ticks = floor((now + offset) / tick)
local rest = ticks % period * slots
local phase = rest % period
mark_us, mark_num = floor(ticks / period) * slots + floor(rest / period), 0
moved = slot > mark_us and window_start(slot, 0, period, slots, tick, offset) - now > period * tick
if slot > mark_us and not moved then mark_us, phase = slot, 0 end
local aged = window_aged(counts, moved and 0 or mark_us - slot, slots)
local estimate = floor(min(aged[slots + 1], blendable) * (period - phase) / period)
for place = 1, slots do estimate = estimate + aged[place] end
allowed, retry = cost == 0 or estimate + cost <= limit, 0
local extra = allowed and cost or 0
if not allowed then
    retry = NEVER
    if cost <= limit then
        retry = window_wait(aged, 0, mark_us, phase, limit - cost, now, period, slots, tick, offset, blendable)
    end
end
remaining = max(0, limit - estimate - extra)
reset = window_wait(aged, extra, mark_us, phase, 0, now, period, slots, tick, offset, blendable)

--- charge
local aged = window_aged(counts, mark_us - slot, slots)
aged[1] = aged[1] + cost
redis.call('SET', key, cmsgpack.pack(mark_us, aged), 'PX',
    ceil((window_start(mark_us + slots + 1, 0, period, slots, tick, offset) - now) / 1000) + slack)

--- give
local place = slot - mark_us + 1
if place >= 1 and place <= slots + 1 then
    counts[place] = max(0, counts[place] - cost)
    redis.call('SET', key, cmsgpack.pack(slot, counts), 'KEEPTTL')
end
