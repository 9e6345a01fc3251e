"""The Lua scripts of the cluster in Redis or Valkey: each is one atomic step at the server.

`KEYS[1]` of every script is the prefix of all keys. The prefix holds a hash tag, so that all keys of one cluster are in
the same slot. Numbers go in and out as text: Lua's own format rounds a large one.
"""

from __future__ import annotations

from typing import Final

ANSWERS_LIFE_S: Final = 86_400
"""How long the answers of a process's writes are stored after its last one; no write is sent again after it."""

_ONCE: Final = f"""
local prefix, answers, number = KEYS[1], KEYS[1] .. 'answers:' .. ARGV[1], ARGV[2]
for known in string.gmatch(ARGV[3], '%d+') do redis.call('HDEL', answers, known) end
local before = redis.call('HGET', answers, number)
if before then return before end
local function answer(text)
    redis.call('HSET', answers, number, text)
    redis.call('EXPIRE', answers, {ANSWERS_LIFE_S})
    return text
end
"""
"""Head of a script that must have its effect once, however often it is sent: the same number gets the same answer."""

COUNT: Final = f"""{_ONCE}
local key, amount, limit = prefix .. 'count:' .. ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local until_s, now_s = tonumber(ARGV[7]), tonumber(ARGV[8])
local stored = redis.call('HMGET', key, 'total', 'until_s')
local total, had_until_s = tonumber(stored[1] or '0'), tonumber(stored[2] or '0')
if had_until_s <= now_s then total = 0 end
local counted = not (amount > 0 and limit and total + amount > limit)
if counted then total = math.max(total + amount, 0) end
until_s = math.max(until_s, had_until_s)
local text = string.format('%.0f', total)
redis.call('HSET', key, 'total', text, 'until_s', string.format('%.0f', until_s))
redis.call('EXPIRE', key, math.max(until_s - now_s, 1))
return answer(text .. (counted and ' counted' or ' refused'))
"""
"""ARGV 4 to 8: name, amount, limit (empty: none), until, now. Answers `TOTAL counted` or `TOTAL refused`."""

_SLOTS: Final = """
local function keep(key, life_s)
    if redis.call('TTL', key) < life_s then redis.call('EXPIRE', key, life_s) end
end
"""

TAKE_SLOTS: Final = f"""{_ONCE}{_SLOTS}
local holder, owner, until_s, now_s = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
for i = 8, #ARGV, 2 do
    local pool = prefix .. 'pool:' .. ARGV[i]
    redis.call('ZREMRANGEBYSCORE', pool, '-inf', now_s)
    local taken = redis.call('ZCARD', pool)
    if redis.call('ZSCORE', pool, holder) then taken = taken - 1 end
    if taken >= tonumber(ARGV[i + 1]) then return answer('full ' .. ARGV[i]) end
end
local life_s = math.max(until_s - now_s, 1)
local of_holder, of_owner = prefix .. 'holder:' .. holder, prefix .. 'owner:' .. owner
local had = redis.call('HGET', of_holder, 'owner')
if had and had ~= owner then
    for _, field in ipairs(redis.call('HKEYS', of_holder)) do
        if string.sub(field, 1, 5) == 'pool/' then
            redis.call('ZREM', prefix .. 'pool:' .. string.sub(field, 6), holder)
        end
    end
    redis.call('SREM', prefix .. 'owner:' .. had, holder)
    redis.call('DEL', of_holder)
end
redis.call('HSET', of_holder, 'owner', owner)
for i = 8, #ARGV, 2 do
    local pool = prefix .. 'pool:' .. ARGV[i]
    redis.call('ZADD', pool, until_s, holder)
    redis.call('HSET', of_holder, 'pool/' .. ARGV[i], '1')
    keep(pool, life_s)
end
redis.call('SADD', of_owner, holder)
keep(of_holder, life_s)
keep(of_owner, life_s)
return answer('taken')
"""
"""ARGV 4 to 7: holder, owner, until, now; then each pool's name and its number of slots."""

RENEW_SLOTS: Final = f"""{_SLOTS}
local prefix, owner, until_s, now_s = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local of_owner, life_s = prefix .. 'owner:' .. owner, math.max(until_s - now_s, 1)
for _, holder in ipairs(redis.call('SMEMBERS', of_owner)) do
    local of_holder, renewed = prefix .. 'holder:' .. holder, false
    if redis.call('HGET', of_holder, 'owner') == owner then
        for _, field in ipairs(redis.call('HKEYS', of_holder)) do
            if string.sub(field, 1, 5) == 'pool/' then
                local pool = prefix .. 'pool:' .. string.sub(field, 6)
                local until_before = tonumber(redis.call('ZSCORE', pool, holder) or '0')
                if until_before > now_s then
                    redis.call('ZADD', pool, until_s, holder)
                    keep(pool, life_s)
                    renewed = true
                end
            end
        end
    end
    if renewed then keep(of_holder, life_s) else redis.call('SREM', of_owner, holder) end
end
keep(of_owner, life_s)
return 'renewed'
"""
"""ARGV: owner, until, now."""

RELEASE_SLOTS: Final = """
local prefix, holder, owner = KEYS[1], ARGV[1], ARGV[2]
local of_holder = prefix .. 'holder:' .. holder
redis.call('SREM', prefix .. 'owner:' .. owner, holder)
if redis.call('HGET', of_holder, 'owner') ~= owner then return 'not held' end
for _, field in ipairs(redis.call('HKEYS', of_holder)) do
    if string.sub(field, 1, 5) == 'pool/' then
        redis.call('ZREM', prefix .. 'pool:' .. string.sub(field, 6), holder)
    end
end
redis.call('DEL', of_holder)
return 'given back'
"""
"""ARGV: holder, owner."""

REVOKE: Final = """
local prefix, name, value, until_s, now_s = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local known, order, ends = prefix .. 'revoked', prefix .. 'revoked:order', prefix .. 'revoked:ends'
local expired = redis.call('ZRANGEBYSCORE', ends, '-inf', now_s, 'LIMIT', 0, 1000)
if #expired > 0 then
    redis.call('HDEL', known, unpack(expired))
    redis.call('ZREM', order, unpack(expired))
    redis.call('ZREM', ends, unpack(expired))
end
local time = redis.call('TIME')
local number = time[1] * 1000000 + time[2]
local newest = redis.call('ZRANGE', order, -1, -1, 'WITHSCORES')
if newest[2] and tonumber(newest[2]) >= number then number = tonumber(newest[2]) + 1 end
redis.call('HSET', known, name, value)
redis.call('ZADD', order, string.format('%.0f', number), name)
redis.call('ZADD', ends, until_s, name)
local latest = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')
local life_s = math.max(tonumber(latest[2]) - tonumber(now_s), 1)
for _, key in ipairs({known, order, ends}) do redis.call('EXPIRE', key, life_s) end
return 'revoked'
"""
"""ARGV: name, value, until, now. The server's time numbers them: a server that has lost its data numbers no new one
below an old one, so that a watch misses none."""

REVOKED_AFTER: Final = """
local found = redis.call(
    'ZRANGEBYSCORE', KEYS[1] .. 'revoked:order', '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local answer = {}
for i = 1, #found, 2 do
    answer[#answer + 1] = string.format('%.0f', tonumber(found[i + 1]))
    answer[#answer + 1] = redis.call('HGET', KEYS[1] .. 'revoked', found[i])
end
return answer
"""
"""ARGV: the last number that was seen, and how many to return. Answers numbers and values, in turn."""

STORE_VALUE: Final = """
redis.call('SET', KEYS[1] .. ARGV[1], ARGV[2], 'EX', ARGV[3])
return 'kept'
"""
"""ARGV: key, value, seconds."""

ANNOUNCE: Final = """
local key, now = KEYS[1] .. 'nodes', tonumber(redis.call('TIME')[1])
local all = redis.call('HGETALL', key)
for at = 1, #all, 2 do
    if tonumber(string.match(all[at + 1], '^%d+')) <= now then redis.call('HDEL', key, all[at]) end
end
redis.call('HSET', key, ARGV[1], (now + tonumber(ARGV[3])) .. ' ' .. ARGV[2])
if redis.call('TTL', key) < tonumber(ARGV[3]) then redis.call('EXPIRE', key, ARGV[3]) end
redis.call('SET', KEYS[1] .. 'epoch', ARGV[4], 'NX')
return redis.call('GET', KEYS[1] .. 'epoch')
"""
"""ARGV: process, facts, seconds, a new epoch. The clock is the server's: those of the nodes may differ. The epoch is
the first that any process gave, for as long as the data lasts."""

ANNOUNCED: Final = """
local now, found = tonumber(redis.call('TIME')[1]), {}
for _, value in ipairs(redis.call('HVALS', KEYS[1] .. 'nodes')) do
    local until_s, facts = string.match(value, '^(%d+) (.*)$')
    if tonumber(until_s) > now then found[#found + 1] = facts end
end
return found
"""

EVENTS_LIFE_S: Final = 60
"""How long the events of the live feed are stored after the last one."""

MAX_EVENTS: Final = 2_000
"""Events that are stored: those of some seconds, also with many nodes."""

SEND_EVENTS: Final = f"""
local key = KEYS[1] .. 'events'
for _, event in ipairs(ARGV) do redis.call('XADD', key, 'MAXLEN', '~', {MAX_EVENTS}, '*', 'e', event) end
redis.call('EXPIRE', key, {EVENTS_LIFE_S})
return 'sent'
"""
"""ARGV: events."""

EVENTS_AFTER: Final = """
local key, last_id, answer = KEYS[1] .. 'events', ARGV[1], {''}
redis.call('SET', KEYS[1] .. 'events:requested', '1', 'EX', ARGV[3])
if last_id == '' then
    local latest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    last_id = latest and latest[1] or '0-0'
end
for _, each in ipairs(redis.call('XRANGE', key, '(' .. last_id, '+', 'COUNT', ARGV[2])) do
    last_id = each[1]
    answer[#answer + 1] = each[2][2]
end
answer[1] = last_id
return answer
"""
"""ARGV: the last ID read, how many to return, seconds for which events are requested. Returns the new last ID, and the
events. An ID is a time by the store's clock: it can be used when its event has expired."""

STORE_HINT: Final = """
local key, time = KEYS[1] .. 'hints:' .. ARGV[1], redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local all = redis.call('HGETALL', key)
for at = 1, #all, 2 do
    if tonumber(string.match(all[at + 1], '^%d+')) <= now_ms then redis.call('HDEL', key, all[at]) end
end
local life_ms = tonumber(ARGV[4]) * 1000
redis.call('HSET', key, ARGV[2], string.format('%.0f %.0f ', now_ms + life_ms, now_ms) .. ARGV[3])
if redis.call('PTTL', key) < life_ms then redis.call('PEXPIRE', key, life_ms) end
return 'kept'
"""
"""ARGV: kind, process, hint, seconds."""

HINTS: Final = """
local time, answer = redis.call('TIME'), {}
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local all = redis.call('HGETALL', KEYS[1] .. 'hints:' .. ARGV[1])
for at = 1, #all, 2 do
    local until_ms, made_ms, body = string.match(all[at + 1], '^(%d+) (%d+) (.*)$')
    if tonumber(until_ms) > now_ms then
        answer[#answer + 1] = all[at]
        answer[#answer + 1] = string.format('%.0f', now_ms - tonumber(made_ms))
        answer[#answer + 1] = body
    end
end
return answer
"""
"""ARGV: kind. Answers process, age in ms and hint, in turn."""

KEYS_LIFE_S: Final = 30 * 86_400
"""How long API keys are stored after the last was shared. Each node has all of them in its own file."""

SHARE_KEYS: Final = f"""
local keys, revoked, version, news = KEYS[1] .. 'keys', KEYS[1] .. 'keys:revoked', KEYS[1] .. 'keys:version', 0
local n_keys = tonumber(ARGV[2])
for at = 3, #ARGV, 2 do
    news = news + redis.call('HSETNX', at < 3 + 2 * n_keys and keys or revoked, ARGV[at], ARGV[at + 1])
end
if news > 0 or redis.call('EXISTS', version) == 0 then redis.call('SET', version, ARGV[1]) end
for _, key in ipairs({{keys, revoked, version}}) do redis.call('EXPIRE', key, {KEYS_LIFE_S}) end
return 'shared'
"""
"""ARGV: a new version, the number of keys; then ids with keys, and ids with times of their revocation."""
