-- Clears a trace's outbox and sets its timer, if the trace still has the version that was sent. A trace
-- that is gone has version 0: so the timer it left behind can be removed.
--
-- The keys are read and the arguments checked before the first write.
--
-- KEYS  1 trace, 2 timers: of one partition
-- ARGV  1 trace id   2 version   3 timer ("": none)
-- Replies  "done"   "changed": another version, nothing was written

local function whole(text)
  return string.match(text, '^%d+$') and #text <= 15
end
if #KEYS ~= 2 or #ARGV ~= 3 or not whole(ARGV[2]) or not (ARGV[3] == '' or whole(ARGV[3])) then
  error('sent.lua: wrong arguments')
end

local found = redis.call('HGET', KEYS[1], 'v') or '0'
redis.call('ZCARD', KEYS[2])
if found ~= ARGV[2] then
  return 'changed'
end

redis.call('HDEL', KEYS[1], 'outbox')
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
end
return 'done'
