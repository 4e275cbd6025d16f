-- Writes one change of one trace, if the trace has the expected version, written by the expected commit.
--
-- Guarantee: the trace and its values change together or not at all. If memory or disk is short, Redis refuses a script
-- only at its first write. The trace itself is read first and written last. The writes before it are harmless alone: a
-- timer, an entry in a list, a counter. Only values with a type other than hash could end the script halfway, and
-- coordinators never write such values. Numbers stay strings, because Lua's doubles would round them.
--
-- KEYS  1 trace, 2 values of its shared store, 3 timers, 4 runs, 5 counter, 6 ended,
--       7 the revision of the agent profiles; all of one partition. The index of runs has one key for each term, one for
--       the costs and one for the ids. They begin with the key of the runs, so they have its hash tag.
-- ARGV  1 trace id        2 expected version, 0: does not exist, UNREADABLE: the stored data is not a trace
--      12 text of its field `made` ("": any)
--      13 the revision of the agent profiles used for the decision ("": no profile)
--      14 its new place in the index of runs ("": unchanged): its begin, its cost ("-": none), its terms
--       3 timer           4 ended at           5 opened at          ("": none; "<" before a timer: an earlier one stays)
--       6 the most runs in the index           7 "1": replaces the stored data except outboxes; "2": replaces all of it
--       8 count of fields set, the version first     9 count of fields deleted
--      10 count of values set     11 count of values deleted, then field, text … field … value, text … value …
-- Replies  {"done", counter}   {"conflict", version found, counter}   {"outdated", revision found, counter}

local HEAD = 14
local UNREADABLE = '18446744073709551615'
local SLICE = 1000 -- arguments passed in one call; Lua's stack holds about 8000

local set_end = HEAD + 2 * ARGV[8]
local deleted_end = set_end + ARGV[9]
local values_end = deleted_end + 2 * ARGV[10]
local gone_end = values_end + ARGV[11]
if #KEYS ~= 7 or #ARGV ~= gone_end then error('commit.lua: wrong arguments') end

-- An invalid counter is handled as a lost one: it restarts, its owner detects that, and the partition is compared with
-- its log. Readers accept one more digit, so that a counter that reaches this bound goes back only once.
local counted = redis.call('GET', KEYS[5])
local is_strange = counted and (not string.match(counted, '^[1-9]%d*$') or #counted > 14)
if is_strange then counted = false end

local stored = redis.pcall('HMGET', KEYS[1], 'v', 'made', 'index')
-- Data that is not a trace has no version. It must not prevent the answers to the other writes of a batch.
local found = stored[1] or '0'
if stored.err then
  stored = {}
  found = UNREADABLE
elseif not string.match(found, '^%d+$') or (string.match(found, '^0') and found ~= '0')
  or #found > #UNREADABLE or (#found == #UNREADABLE and found > UNREADABLE) then
  found = UNREADABLE
end
if found ~= ARGV[2] or (ARGV[12] ~= '' and stored[2] ~= ARGV[12]) then
  return { 'conflict', found, counted or '0' }
end
if ARGV[13] ~= '' then
  local revision = redis.call('ZSCORE', KEYS[7], 'revision') or '0'
  -- An invalid revision must not block a commit: the next change of profiles sets it.
  if not string.match(revision, '^%d+$') or #revision > 15 then
    redis.call('ZREM', KEYS[7], 'revision')
  elseif tonumber(revision) > tonumber(ARGV[13]) then
    return { 'outdated', revision, counted or '0' }
  end
end

local function in_slices(command, key, from, to)
  for first = from, to, SLICE do
    redis.call(command, key, unpack(ARGV, first, math.min(first + SLICE - 1, to)))
  end
end

if ARGV[3] == '' then
  redis.call('ZREM', KEYS[3], ARGV[1])
elseif string.sub(ARGV[3], 1, 1) == '<' then
  redis.call('ZADD', KEYS[3], 'LT', string.sub(ARGV[3], 2), ARGV[1])
else
  redis.call('ZADD', KEYS[3], ARGV[3], ARGV[1])
end
if ARGV[5] ~= '' then
  redis.call('ZADD', KEYS[4], ARGV[5], ARGV[1])
end
if ARGV[4] == '' then
  redis.call('ZREM', KEYS[6], ARGV[1])
else
  redis.call('ZADD', KEYS[6], ARGV[4], ARGV[1])
end
if is_strange then redis.call('DEL', KEYS[5]) end
local counter = redis.call('INCR', KEYS[5])
-- The list is trimmed at every 64th commit, to save time.
if counter % 64 == 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[4], 0, '-' .. ARGV[6])
end
-- The field `index` lists the entries of the trace in the index; entries that it no longer has are removed.
-- No decision depends on the index, so a key with a wrong type, which no coordinator writes, does not prevent a commit.
if ARGV[14] ~= '' or ARGV[7] ~= '' then
  local function words(text)
    local list = {}
    for word in string.gmatch(text, '%S+') do list[#list + 1] = word end
    return list
  end
  local before = words(stored[3] or '')
  local after = words(ARGV[14])
  local wanted, there = {}, {}
  for at = 3, #after do wanted[after[at]] = true end
  for at = 3, #before do
    if not wanted[before[at]] then
      redis.pcall('ZREM', KEYS[4] .. ':' .. before[at], ARGV[1])
    elseif before[1] == after[1] then
      there[before[at]] = true
    end
  end
  for at = 3, #after do
    if not there[after[at]] then redis.pcall('ZADD', KEYS[4] .. ':' .. after[at], after[1], ARGV[1]) end
  end
  local had, has = before[2] or '-', after[2] or '-'
  if has == '-' and had ~= '-' then
    redis.pcall('ZREM', KEYS[4] .. ':cost', ARGV[1])
  elseif has ~= had then
    redis.pcall('ZADD', KEYS[4] .. ':cost', has, ARGV[1])
  end
  if #after == 0 then
    redis.pcall('ZREM', KEYS[4] .. ':ids', ARGV[1])
  elseif #before == 0 then
    redis.pcall('ZADD', KEYS[4] .. ':ids', 0, ARGV[1])
  end
end
if ARGV[7] == '2' then
  redis.call('DEL', KEYS[1], KEYS[2])
elseif ARGV[7] == '1' then
  redis.call('DEL', KEYS[2])
  local fields = redis.call('HKEYS', KEYS[1])
  for _, field in ipairs(fields) do
    if string.sub(field, 1, 1) ~= 'x' then redis.call('HDEL', KEYS[1], field) end
  end
end
if deleted_end < values_end then in_slices('HSET', KEYS[2], deleted_end + 1, values_end) end
if values_end < gone_end then in_slices('HDEL', KEYS[2], values_end + 1, gone_end) end
if set_end < deleted_end then in_slices('HDEL', KEYS[1], set_end + 1, deleted_end) end
in_slices('HSET', KEYS[1], HEAD + 1, set_end)
return { 'done', counter }
