-- The reference modifier in Lua: what an answer becomes under a block, and the instant to keep after a hit.
local function block_shut(ends, block_us, now, cost, answer)
    local allowed, remaining, retry, reset, mark_us, mark_num, moved = answer(cost)
    if allowed and cost > 0 and ends > now then
        allowed, remaining, retry, reset, mark_us, mark_num, moved = answer(0)
        allowed = false
    end
    local left = min(max(0, ends - now), max(block_us, reset))
    if allowed or retry == NEVER then
        if left > 0 then remaining = 0 end
        return allowed, remaining, retry, max(reset, left), mark_us, mark_num, moved, ends
    end
    retry = max(left > 0 and left or block_us, retry)
    return allowed, 0, retry, max(reset, retry), mark_us, mark_num, moved, now + retry
end
