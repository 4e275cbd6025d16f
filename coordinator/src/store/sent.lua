-- Clears the sent outboxes of a trace, and sets its timer if the trace still has the given version, written by the given
-- commit. An expired trace has version 0, so that its remaining timer can be removed.
--
-- Guarantee: the keys are read and the arguments checked before the first write.
--
-- KEYS  1 trace, 2 timers; of one partition
-- ARGV  1 trace id   2 version ("": the timer stays)   4 text of its field `made` ("": any)
--       3 timer ("": none; "<" before it: an earlier one stays)
--       5 "1": if the timer is set, all outboxes are cleared, then the outboxes' fields
-- Replies  "done"   "changed": another version or commit; the timer stays

local function whole_or_none(text)
  return text == '' or (string.match(text, '^%d+$') and #text <= 15)
end
local timer, is_earlier_kept = string.gsub(ARGV[3] or '', '^<', '')
if #KEYS ~= 2 or #ARGV < 5 or not whole_or_none(ARGV[2]) or not whole_or_none(timer) then
  error('sent.lua: wrong arguments')
end

local stored = redis.pcall('HMGET', KEYS[1], 'v', 'made')
if stored.err then
  return 'changed'
end
redis.call('ZCARD', KEYS[2])
for field = 6, #ARGV do
  redis.call('HDEL', KEYS[1], ARGV[field])
end
if (stored[1] or '0') ~= ARGV[2] or (ARGV[4] ~= '' and stored[2] ~= ARGV[4]) then
  return 'changed'
end
if ARGV[5] == '1' then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 1) == 'x' then redis.call('HDEL', KEYS[1], field) end
  end
end
if timer == '' then
  redis.call('ZREM', KEYS[2], ARGV[1])
elseif is_earlier_kept == 1 then
  redis.call('ZADD', KEYS[2], 'LT', timer, ARGV[1])
else
  redis.call('ZADD', KEYS[2], timer, ARGV[1])
end
return 'done'
