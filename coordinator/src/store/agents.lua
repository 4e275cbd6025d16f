-- Writes versions of agent profiles: each that is later than the stored one, or equal to it and marked to be written again.
--
-- Guarantee: all or nothing, and the revision rises if a profile changed. If memory or disk is short, Redis refuses a
-- script only at its first write.
--
-- KEYS  1 profiles by agent id, and their revision   2 the version of each; both in one slot
-- ARGV  1 the field of the revision   2 the least revision, then agent id, version, text ("": deleted), "1": also an equal version …
-- Replies  the revision

if #KEYS ~= 2 or #ARGV % 4 ~= 2 then error('agents.lua: wrong arguments') end

local changed = 0
for at = 3, #ARGV, 4 do
  local id, version, text = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local there, wanted = tonumber(redis.call('HGET', KEYS[2], id) or '0'), tonumber(version)
  if there < wanted or (there == wanted and ARGV[at + 3] == '1') then
    changed = 1
    redis.call('HSET', KEYS[2], id, version)
    if text == '' then
      redis.call('HDEL', KEYS[1], id)
    else
      redis.call('HSET', KEYS[1], id, text)
    end
  end
end
local found = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
local revision = math.max(found + changed, tonumber(ARGV[2]))
if revision > found then redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', revision)) end
return string.format('%.0f', revision)
