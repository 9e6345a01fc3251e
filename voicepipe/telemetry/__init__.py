"""Store records, count metrics, and log notable events.

`record_writer` buffers records between a session that can't wait and a store that may be slow. `store/` keeps them in
SQLite or Postgres, `rollups/` sums over many of them, and `live_feed` sends them to live readers. `record_json` is a
record as the API serves it, `waterfall` its milliseconds as rows, `advice` the setting to change.

`metrics/` declares and counts metrics, `tracing/` sends spans to a collector, `journal/` writes and replays a session's
events, `webhooks/` delivers events to receivers. `log` writes the lines on stderr, `log_catalog` declares their events;
`event_loop` watches the loop. `ended_turns` passes each ended turn once to these.
"""
