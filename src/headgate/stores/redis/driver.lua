-- The driver in Lua: decisions over the kernels. A call has groups; each group is one decision, all or none, and does
-- not depend on other groups. scripts.py fills in the words in capitals. Each group has WIDTH keys in KEYS, and one
-- packed string in ARGV (parameters and costs); then, in tests only, follows the instant. The reply is packed: the
-- instant, then for each limit of each group: allowed, remaining, retry, reset and the mark.

--- time
local groups = #KEYS / WIDTH
local slack, now = 1, ARGV[groups + 1]
if now then
    slack, now = 3600001, tonumber(now)  -- virtual time may stand still while the server's goes on
else
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local reply = {struct.pack('<i8', now)}

--- single
for group = 1, groups do
    local key = KEYS[group]
    local PARAMS, cost = struct.unpack('PACKED', ARGV[group])
    local seen, STATE = false, FRESH
    do READ end
    local allowed, remaining, retry, reset, mark_us, mark_num, moved
    do ANSWER end
    if not allowed then cost = 0 end
    if allowed or moved then CHARGE end
    reply[group + 1] = struct.pack('FIELDS', allowed and 1 or 0, remaining, retry, reset, mark_us, mark_num)
end
return table.concat(reply)

--- several
for group = 1, groups do
    local at, packed = (group - 1) * WIDTH, {struct.unpack('PACKED', ARGV[group])}
    local states, blocks, memory, costs, look, lend, charge, verdicts = {}, {}, {}, {}, {}, {}, {}, {}
    local wait, when, ahead = WAIT, now, 0
    LIMITS
    if UP_TO and costs[1] > 0 then
        local room = costs[1]
        for i = 1, COUNT do
            local _, remaining = look[i](0)
            room = min(room, remaining)
        end
        for i = 1, COUNT do costs[i] = max(1, room) end
    end
    local turns, queue, last, turn, crowded = KEYS[at + WIDTH], now, now, 0, false
    if AHEAD then  -- the cost, and tokens up to a number; few of them if little is left, or if many processes ask
        local most, offer, places, least, spacing, spread, mine = unpack(packed, MOST, MOST + 6)
        local given = tonumber(redis.call('GET', turns) or 0)
        if given > now and given <= now + packed[MOST + 7] then queue = given end
        if mine >= least then  -- a question before the turn leaves the queue as it is
            last, turn = queue, mine
        else
            last = queue + places * spacing
            turn = max(least, floor((last - now) * (1024 + spread) / 1024))
        end
        crowded = last - now > least
        if crowded then most = max(most, offer) end
        for i = 1, COUNT do
            local _, remaining, _, reset = look[i](0)
            local amount, period, part, parts = unpack(packed, MOST + 4 + 4 * i, MOST + 7 + 4 * i)
            local share = remaining
            if amount > 0 then
                part = min(part, floor(turn * amount / period))
                if remaining < part then share = floor(remaining * remaining / part) end
                if crowded then  -- what comes back in a place and a quarter, rounded by chance, and a part of the rest
                    local units = 5 * amount * spacing / (4 * period) + now % 1000 / 1000
                    share = min(share, floor(units) + floor(remaining / parts))
                end
            elseif crowded and reset > 0 then  -- the units of some half places, of all until the window ends
                share = min(share, ceil(remaining * parts * spacing / (2 * reset)))
            end
            most = min(most, share)
        end
        for i = 1, COUNT do costs[i] = max(costs[i], most) end
    end
    if GUARDED then  -- a reservation during a pause is charged as of the end of the pause
        local _, _, left = look[COUNT](costs[COUNT])
        if left <= wait then ahead, when, wait = left, now + left, wait - left end
    end
    local all = true
    for i = 1, COUNT do
        verdicts[i] = {look[i](costs[i])}
        if not verdicts[i][1] and verdicts[i][3] > 0 and verdicts[i][3] <= wait then
            verdicts[i] = {lend[i](costs[i], unpack(verdicts[i]))}
        end
        all = all and verdicts[i][1]
        if GUARDED and ahead > 0 then  -- times count from now, and nothing can pass until then
            verdicts[i][2], verdicts[i][4] = 0, verdicts[i][4] + ahead
            if verdicts[i][3] >= 0 then verdicts[i][3] = verdicts[i][3] + ahead end
        end
    end
    when = now
    for i = 1, COUNT do
        local allowed, _, _, _, mark_us, mark_num, moved, ends = unpack(verdicts[i])
        if allowed and not all then verdicts[i] = {look[i](0)} end
        if (all or blocks[i]) and not WRITES then  -- no charge, no block: what remains, until when, is what is there now
            local _, remaining, _, reset = look[i](0)
            verdicts[i][2], verdicts[i][4] = remaining, reset
        end
        if WRITES then
            if all then
                charge[i](mark_us, mark_num, costs[i])
            elseif moved then
                charge[i](mark_us, mark_num, 0)
            end
            -- Also if the state is empty and gone: the rest of its block may be shorter than the promised retry.
            if not allowed and blocks[i] and ends > now then
                redis.call('SET', blocks[i], ends, 'PX', ceil((ends - now + (memory[i] or 0)) / 1000) + slack)
            end
        end
    end
    if AHEAD then
        local spent, mine = 0, packed[MOST + 6]
        for i = 1, COUNT do  -- turns begin when a limit that is used up has units again
            local again = packed[MOST + 4 + 4 * i] == 0 and 4 or 3  -- at the end of a fixed window, or after the retry
            if verdicts[i][2] == 0 then spent = max(spent, verdicts[i][again]) end
        end
        if spent > 0 and mine >= spent then
            turn = mine
        else
            if spent > 0 then
                last = max(queue, now + spent)
                turn = max(packed[MOST + 3], spent + floor((last - now - spent) * (1024 + packed[MOST + 5]) / 1024))
                last = last + packed[MOST + 2] * packed[MOST + 4]
            end
            if last > queue then redis.call('SET', turns, last, 'PX', ceil((last - now) / 1000) + slack) end
        end
        reply[#reply + 1] = struct.pack('<i8i8i8', costs[1], turn, crowded and 1 or 0)
    end
    if UP_TO then reply[#reply + 1] = struct.pack('<i8', costs[1]) end
    for i = 1, COUNT do
        local allowed, remaining, retry, reset, mark_us, mark_num = unpack(verdicts[i])
        reply[#reply + 1] = struct.pack('FIELDS', allowed and 1 or 0, remaining, retry, reset, mark_us, mark_num)
    end
end
return table.concat(reply)

--- limit
states[INDEX] = {KIND_read(KEYS[at + PLACE], now)}
costs[INDEX] = packed[COST]
look[INDEX] = function(cost)
    return KIND_answer(KEYS[at + PLACE], HELD, GIVEN, when, cost)
end
charge[INDEX] = function(mark_us, mark_num, cost)
    KIND_charge(KEYS[at + PLACE], HELD, GIVEN, now, slack, mark_us, mark_num, cost)
end

--- lend
lend[INDEX] = function(cost, ...)
    return KIND_lend(KEYS[at + PLACE], HELD, GIVEN, when, cost, ...)
end

--- block
blocks[INDEX] = KEYS[at + PLACE + 1]
local ends_INDEX, open_INDEX = tonumber(redis.call('GET', blocks[INDEX]) or 0), look[INDEX]
look[INDEX] = function(cost) return block_shut(ends_INDEX, packed[BLOCK], now, cost, open_INDEX) end

--- growing
blocks[INDEX], memory[INDEX] = KEYS[at + PLACE + 1], packed[BLOCK]
local ends_INDEX, open_INDEX = tonumber(redis.call('GET', blocks[INDEX]) or 0), look[INDEX]
local growth_INDEX = {unpack(packed, BLOCK, BLOCK + 7)}
look[INDEX] = function(cost) return block_grow(ends_INDEX, growth_INDEX, now, cost, open_INDEX) end

--- give
for group = 1, groups do
    local at, packed = (group - 1) * WIDTH, {struct.unpack('PACKED', ARGV[group])}
    GIVES
end
return 1

--- back
do
    local seen, STATE = KIND_read(KEYS[at + PLACE], now)
    if seen then
        local mark_us, mark_num = packed[COST + 1], packed[COST + 2]
        if mark_us < 0 then  -- charged now
            mark_us, mark_num = select(5, KIND_answer(KEYS[at + PLACE], STATE, GIVEN, now, 0))
        end
        KIND_give(KEYS[at + PLACE], STATE, GIVEN, now, slack, mark_us, mark_num, packed[COST])
    end
end

--- renew
-- Permits that are still in flight get a new lease. A permit whose lease has ended is not renewed: its place may have
-- been given to another caller. The reply has, for each permit, the number of units that are still in flight.
for group = 1, groups do
    local key, left = KEYS[group], 0
    local ttl, mark_us, mark_num = struct.unpack('<i8i8i8', ARGV[group])
    for unit = 1, mark_num % UNITS do
        local ends = redis.call('ZSCORE', key, concurrency_unit(mark_us, mark_num, unit))
        if ends and tonumber(ends) > now then
            redis.call('ZADD', key, now + ttl, concurrency_unit(mark_us, mark_num, unit))
            left = left + 1
        end
    end
    if left > 0 then concurrency_keep(key, ttl, slack) end
    reply[group + 1] = struct.pack('<i8', left)
end
return table.concat(reply)

--- heartbeat
-- The number of processes of the last 15 seconds: every process that leases reports itself about every five.
local time, count = redis.call('TIME'), 1
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for group = 1, #KEYS do
    redis.call('ZREMRANGEBYSCORE', KEYS[group], 0, now - 15000)
    redis.call('ZADD', KEYS[group], now, ARGV[group])
    redis.call('PEXPIRE', KEYS[group], 60000)
    count = math.max(count, redis.call('ZCARD', KEYS[group]))
end
return count
