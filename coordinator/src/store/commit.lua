-- Writes one change of one trace, if the trace has the expected version.
--
-- Guarantee: all or nothing. Every argument is checked and every key read before the first write, so
-- that a bad argument or a key of another type ends the script while nothing has changed. Redis itself
-- refuses a script for lack of memory or disk only at its first write. Numbers stay strings: Lua's
-- doubles would round them.
--
-- KEYS  1 trace, 2 values of its shared store, 3 timers, 4 runs, 5 counter, 6 ended: all of one partition
-- ARGV  1 trace id        2 version expected, 0: does not exist     3 version it gets
--       4 timer           5 ended at           6 opened at          ("": none)
--       7 outbox field or ""  8 the outbox         9 how many runs the index keeps
--      10 count of fields, 11 count of values set, 12 count of values deleted,
--      13 count of outboxes cleared, then field, text … value, text … value … outbox …
-- Replies  {"done", counter}   {"conflict", version found, counter}

local HEAD = 13
local SLICE = 1000 -- arguments passed in one call; Lua's stack holds about 8000

local function check(right, what)
  if not right then error('commit.lua: ' .. what) end
end
local function whole(text)
  return string.match(text, '^%d+$') and #text <= 15
end
local function whole_or_none(text)
  return text == '' or whole(text)
end

check(#KEYS == 6, '6 keys are needed')
check(#ARGV >= HEAD, 'arguments are missing')
check(whole(ARGV[2]) and whole(ARGV[3]) and ARGV[3] ~= '0', 'a version is not a number')
check(whole_or_none(ARGV[4]) and whole_or_none(ARGV[5]) and whole_or_none(ARGV[6]), 'a time is not a number')
for count = 9, HEAD do
  check(whole(ARGV[count]), 'a count is not a number')
end
local fields_end = HEAD + 2 * tonumber(ARGV[10])
local values_end = fields_end + 2 * tonumber(ARGV[11])
local deleted_end = values_end + tonumber(ARGV[12])
local cleared_end = deleted_end + tonumber(ARGV[13])
check(#ARGV == cleared_end, 'the counts do not add up')

local found = redis.call('HGET', KEYS[1], 'v') or '0'
if values_end < #ARGV or fields_end < values_end then
  redis.call('HLEN', KEYS[2])
end
redis.call('ZCARD', KEYS[3])
if ARGV[6] ~= '' then
  redis.call('ZCARD', KEYS[4])
end
redis.call('ZCARD', KEYS[6])
local counter = redis.call('GET', KEYS[5]) or '0'
check(whole(counter), 'the counter is not a number')

if found ~= ARGV[2] then
  return { 'conflict', found, counter }
end

local function in_slices(command, key, from, to)
  for first = from, to, SLICE do
    redis.call(command, key, unpack(ARGV, first, math.min(first + SLICE - 1, to)))
  end
end

redis.call('HSET', KEYS[1], 'v', ARGV[3])
in_slices('HSET', KEYS[1], HEAD + 1, fields_end)
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[7], ARGV[8])
end
in_slices('HDEL', KEYS[1], deleted_end + 1, cleared_end)
in_slices('HSET', KEYS[2], fields_end + 1, values_end)
in_slices('HDEL', KEYS[2], values_end + 1, deleted_end)

if ARGV[4] == '' then
  redis.call('ZREM', KEYS[3], ARGV[1])
else
  redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
end
if ARGV[6] ~= '' then
  redis.call('ZADD', KEYS[4], ARGV[6], ARGV[1])
  redis.call('ZREMRANGEBYRANK', KEYS[4], 0, '-' .. ARGV[9])
end
if ARGV[5] == '' then
  redis.call('ZREM', KEYS[6], ARGV[1])
else
  redis.call('ZADD', KEYS[6], ARGV[5], ARGV[1])
end
-- Earlier versions let ended traces expire.
if redis.call('PERSIST', KEYS[1]) == 1 then
  redis.call('PERSIST', KEYS[2])
end
return { 'done', redis.call('INCR', KEYS[5]) }
