"""What happened, and how long it took: records kept, figures counted, notable things logged.

`store` is the port where turns' records are kept, and `stats` what it tells of many: `sqlite` keeps
them in a file, `postgres` for many machines, and what either does is `work` in SQL, written once:
`turn_rows`, `turn_pages` and `session_rows` write and find, `sums` adds up and `tidying` sums up for
later, when `retention` has it done; `figures` are what is added. `sink` stands between a session that
can't wait and a store that may be slow. `record_json` is a record as the API serves it, `feed` tells it
to who watches and `webhooks`, `webhook_queue` and `webhook_sender` to who asked to be told;
`waterfall` and `picture` one turn's milliseconds as rows and as a
drawing, `log` the lines on stderr.

`families` declares every metric and `prometheus` counts them; `loop_health` watches the event loop.
`tracing` is the port for spans, `turn_spans` a record as spans, `otel` and `otel_export` the way to a
collector; `endings` tells them and others of each turn once.
"""
