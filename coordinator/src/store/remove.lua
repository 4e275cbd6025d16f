-- Removes a trace that has ended, with all its data in the store, if it still has the given version and no timer: a timer
-- of an ended trace means that it still has messages to send.
--
-- Guarantee: all or nothing. The keys are read and the arguments checked before the first write.
--
-- KEYS  1 trace, 2 values of its shared store, 3 timers, 4 runs, 5 ended, 6 its branches; all of one partition.
--       The keys of the index of runs begin with the key of the runs; the trace's field `index` lists its terms.
-- ARGV  1 trace id   2 version ("0": the trace is gone, only its entries in lists are left)
-- Replies  "done"   "changed": another version, or a timer; nothing was removed

if #KEYS ~= 6 or #ARGV ~= 2 or not string.match(ARGV[2], '^%d+$') then
  error('remove.lua: wrong arguments')
end
local stored = redis.call('HMGET', KEYS[1], 'v', 'index')
local found = stored[1] or '0'
for set = 3, 5 do
  redis.call('ZCARD', KEYS[set])
end
local timer = redis.call('ZSCORE', KEYS[3], ARGV[1])
if found ~= ARGV[2] or (timer and found ~= '0') then
  return 'changed'
end
if stored[2] then
  local place = 0
  for word in string.gmatch(stored[2], '%S+') do
    place = place + 1
    if place > 2 then redis.call('ZREM', KEYS[4] .. ':' .. word, ARGV[1]) end
  end
  redis.call('ZREM', KEYS[4] .. ':cost', ARGV[1])
  redis.call('ZREM', KEYS[4] .. ':ids', ARGV[1])
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[6])
for set = 3, 5 do
  redis.call('ZREM', KEYS[set], ARGV[1])
end
return 'done'
