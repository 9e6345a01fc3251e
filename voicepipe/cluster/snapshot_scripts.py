"""The Lua scripts of the snapshots of sessions in Redis or Valkey: each is one atomic step at one server.

`KEYS[1]` is the prefix of all keys. A snapshot is a hash with the fields

- `owner`, `fence`: the process that has the session, and its fencing token: each acquisition has a higher one;
- `digest`, `taken_with`: of the latest resume secret, and of the one before while that is good too;
- `written_fence`, `written`: the fencing token of the process that wrote it last, and the number of that write;
- `snapshot`: the text; without it the snapshot was deleted, which is stored so that no older copy counts;
- `lease`: of the process that ends the session's records.
"""

from __future__ import annotations

from typing import Final

DELETED_LIFE_S: Final = 3_600
"""How long a deletion is stored: longer than a server may hang that has an older copy or a late write."""

_KEY: Final = """
local key, index = KEYS[1] .. 'snapshot:' .. ARGV[1], KEYS[1] .. 'snapshots'
"""

_WRITE_HEAD: Final = f"""{_KEY}
local had = redis.call('HMGET', key, 'owner', 'fence', 'written_fence', 'written')
local had_fence, fence, number = tonumber(had[2] or '0'), tonumber(ARGV[3]), tonumber(ARGV[4])
if had_fence > fence or (had[1] and had[1] ~= ARGV[2] and had_fence == fence) then
    return {{'lost', had[1] or '', had[2] or '0'}}
end
local had_written_fence, had_written = tonumber(had[3] or '0'), tonumber(had[4] or '0')
if had_written_fence > fence or (had_written_fence == fence and had_written >= number) then return 'stored' end
redis.call('HSET', key, 'owner', ARGV[2], 'fence', ARGV[3], 'written_fence', ARGV[3], 'written', ARGV[4])
"""
"""Head of a write. ARGV 1 to 4: session, owner, its fencing token, number of the write. With a higher token, or the
same of another process, the session was acquired since: it answers `lost`, that process and its token. A write that
comes behind a later one changes nothing. Numbers are even: `DELETE_LEFT_SNAPSHOT` takes the one between."""

STORE_SNAPSHOT: Final = f"""{_WRITE_HEAD}
redis.call('HSET', key, 'digest', ARGV[5], 'taken_with', ARGV[6], 'snapshot', ARGV[8])
redis.call('HDEL', key, 'lease')
redis.call('EXPIRE', key, ARGV[7])
redis.call('ZADD', index, redis.call('TIME')[1], ARGV[1])
redis.call('EXPIRE', index, ARGV[7])
return 'stored'
"""
"""ARGV 5 to 8: digest, digest of the secret before or nothing, seconds, snapshot."""

DELETE_SNAPSHOT: Final = f"""{_WRITE_HEAD}
redis.call('HDEL', key, 'snapshot', 'lease')
redis.call('EXPIRE', key, {DELETED_LIFE_S})
redis.call('ZREM', index, ARGV[1])
return 'stored'
"""

READ_OWNER: Final = f"""{_KEY}
local had = redis.call('HMGET', key, 'fence', 'written_fence', 'written', 'digest', 'taken_with')
local is_there = redis.call('HEXISTS', key, 'snapshot')
return {{had[1] or '0', had[2] or '0', had[3] or '0', had[4] or '', had[5] or '', is_there}}
"""
"""ARGV: session. Answers fencing token, that of the last write, its number, both digests, and 1 if it is there."""

ACQUIRE_SNAPSHOT: Final = f"""{_KEY}
local had = redis.call('HMGET', key, 'owner', 'fence', 'written_fence', 'written', 'digest', 'taken_with')
local had_fence = tonumber(had[2] or '0')
local had_written_fence, had_written = tonumber(had[3] or '0'), tonumber(had[4] or '0')
local fence, read_fence, read = tonumber(ARGV[3]), tonumber(ARGV[6]), tonumber(ARGV[7])
local is_repeated = had[1] == ARGV[2] and had[5] == ARGV[5] and had_written_fence < fence
if had_fence > fence or (had_fence == fence and not is_repeated) then return {{'lost'}} end
local is_written_since = had_written_fence > read_fence or (had_written_fence == read_fence and had_written > read)
if is_written_since and not (had[5] == ARGV[4] or had[6] == ARGV[4]) then return {{'lost'}} end
redis.call('HSET', key, 'owner', ARGV[2], 'fence', ARGV[3])
redis.call('HSET', key, 'digest', ARGV[5], 'taken_with', ARGV[4])
redis.call('HDEL', key, 'lease')
if redis.call('TTL', key) < 0 then redis.call('EXPIRE', key, {DELETED_LIFE_S}) end
return {{'acquired', had[3] or '0', had[4] or '0', redis.call('HGET', key, 'snapshot') or ''}}
"""
"""ARGV: session, owner, its new fencing token, digest, digest of the next secret, and the latest write that was read:
its token and number. Answers `lost`, or `acquired` with the fencing token of the last write, its number, and the
snapshot or nothing. The secret with which it was taken before is good too: that answer may be lost. A request that
comes late, after the process has written, changes nothing."""

LEFT_SNAPSHOT: Final = """
local index, time, after_s, life_s = KEYS[1] .. 'snapshots', redis.call('TIME'), tonumber(ARGV[1]), tonumber(ARGV[2])
for _, session in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', time[1] - after_s, 'LIMIT', 0, 100)) do
    local key = KEYS[1] .. 'snapshot:' .. session
    if redis.call('HEXISTS', key, 'snapshot') == 0 then
        redis.call('ZREM', index, session)
    elseif redis.call('TTL', key) <= life_s - after_s then
        return session
    else
        redis.call('ZADD', index, time[1], session)
    end
end
return ''
"""
"""ARGV: seconds without a write, seconds of life. Answers a session, or nothing. The time to live of a snapshot shows
when it was written last, and the index only where to find it."""

LEASE_LEFT_SNAPSHOT: Final = f"""{_KEY}
local had = redis.call('HMGET', key, 'written_fence', 'written', 'snapshot')
if not had[3] then return {{'gone'}} end
if redis.call('TTL', key) > tonumber(ARGV[3]) - tonumber(ARGV[2]) then return {{'written'}} end
redis.call('HSET', key, 'lease', ARGV[4])
redis.call('EXPIRE', key, ARGV[3])
redis.call('ZADD', index, redis.call('TIME')[1], ARGV[1])
redis.call('EXPIRE', index, ARGV[3])
return {{'leased', had[1] or '0', had[2] or '0', had[3]}}
"""
"""ARGV: session, seconds without a write, seconds of life, a new lease. Answers `gone`; `written`, also where another
process has the lease; or `leased` with the fencing token of the last write, its number, and the snapshot."""

DELETE_LEFT_SNAPSHOT: Final = f"""{_KEY}
if redis.call('HGET', key, 'lease') == ARGV[2] then
    redis.call('HINCRBY', key, 'written', 1)
    redis.call('HDEL', key, 'snapshot', 'lease')
    redis.call('EXPIRE', key, {DELETED_LIFE_S})
    redis.call('ZREM', index, ARGV[1])
end
return 'dropped'
"""
"""ARGV: session, lease."""
