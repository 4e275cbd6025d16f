-- Sets the mark of a partition, up to where the event log is in the store, if the partition is as the caller has seen it;
-- or only reads it.
--
-- Guarantee: the mark is set only if the counter has not gone back, nobody has changed the mark, and the server is the
-- process that it was. So it has lost nothing since it was seen. A server that does not say which process it is has the
-- same name always, and the other two have to do. All is read before the only write.
--
-- KEYS  1 counter, 2 mark: of one partition
-- ARGV  1 the lowest counter it may have   2 its mark ("": none)   3 the server's run   4 the new mark ("": only read)
-- Replies  {"done" | "differs", counter, mark, run}: as found, before the write

if #KEYS ~= 2 or #ARGV ~= 4 or not string.match(ARGV[1], '^%d+$') then
  error('mark.lua: wrong arguments')
end
-- What is no counter counts as lost, and what is no mark as none: only a stranger writes them.
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
