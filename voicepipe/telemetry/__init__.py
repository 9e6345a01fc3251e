"""What happened, and how long it took: records stored, figures counted, notable events logged.

`store` is the port that keeps turns' records, and `stats` its result for many turns. `sqlite` keeps records in a
file, `postgres` for many machines. Both run `work`, SQL that is written once. `turn_rows`, `turn_pages` and
`session_rows` write and find turns, `sums` adds up, and `tidying` sums up in advance, run by `retention`; `figures`
are what is added. `sink` buffers records between a session that can't wait and a store that may be slow.

`record_json` is a record as the API serves it. `feed` sends it to live readers, `webhooks`, `webhook_queue` and
`webhook_sender` to receivers. `waterfall` and `picture` show one turn's milliseconds as rows and as a drawing. `log`
writes the lines on stderr.

`families` declares every metric and `prometheus` counts them; `loop_health` watches the event loop. `tracing` is the
port for spans, `turn_spans` a record as spans, `otel` and `otel_export` send them to a collector. `endings` passes
each ended turn once to these and other handlers.
"""
