-- The reference modifier `shut_growing` in Lua. `growth` has the memory, then seven times.
local function block_grow(word, growth, now, cost, answer)
    local nth = word % 8
    local ends, block_us = word - nth, 0
    if ends > now then
        block_us = growth[nth + 1] + 7
    else
        nth = nth > 0 and now < ends + growth[1] and min(nth + 1, 7) or 1
        block_us = growth[nth + 1]
    end
    local allowed, remaining, retry, reset, mark_us, mark_num, moved, until_us =
        block_shut(ends, block_us, now, cost, answer)
    if allowed or retry == NEVER then
        return allowed, remaining, retry, reset, mark_us, mark_num, moved, word
    end
    until_us = until_us + 7
    until_us = until_us - until_us % 8
    retry = until_us - now
    return allowed, remaining, retry, max(reset, retry), mark_us, mark_num, moved, until_us + nth
end
