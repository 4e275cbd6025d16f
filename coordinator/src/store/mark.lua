-- Sets the mark of a partition: the place up to which the store has the event log. It is set only if the partition is
-- as the caller has seen it. Without a new mark, the script only reads.
--
-- Guarantee: the mark is set only if the counter has not gone back, the mark is unchanged, and the server is the same
-- process. So the server has lost nothing since the caller's read. For a server that does not report its process, only
-- the first two conditions are checked. All is read before the only write.
--
-- KEYS  1 counter, 2 mark; of one partition
-- ARGV  1 the lowest counter it may have   2 its mark ("": none)   3 the server's run   4 the new mark ("": only read)
-- Replies  {"done" | "differs", counter, mark, run}: as found, before the write

if #KEYS ~= 2 or #ARGV ~= 4 or not string.match(ARGV[1], '^%d+$') then
  error('mark.lua: wrong arguments')
end
-- An invalid counter is handled as a lost one, an invalid mark as a missing one; coordinators never write such values.
local counter = redis.pcall('GET', KEYS[1])
if type(counter) ~= 'string' or not string.match(counter, '^%d+$') or #counter > 15 then counter = '0' end
local mark = redis.pcall('GET', KEYS[2])
if type(mark) ~= 'string' or not string.match(mark, '^%d+%-%d+$') then mark = '' end
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
local found = { 'differs', counter, mark, run }
if ARGV[4] == '' then
  return found
end
if tonumber(counter) < tonumber(ARGV[1]) or mark ~= ARGV[2] or run ~= ARGV[3] then
  return found
end
redis.call('SET', KEYS[2], ARGV[4])
found[1] = 'done'
return found
