"""What happened, and how long it took: records kept, figures counted, notable things logged.

`store` is the port where turns' records are kept, `sqlite` keeps them in a file, `sink` stands
between a session that can't wait and a store that may be slow. `record_json` is a record as the
API serves it, `feed` tells it to who watches and `webhooks`, `webhook_queue` and `webhook_sender` to
who asked to be told; `live` the quantiles of the last minutes, `waterfall` and `picture` one turn's
milliseconds as rows and as a drawing, `log` the lines on stderr.

`families` declares every metric and `prometheus` counts them; `loop_health` watches the event loop. `tracing` is the port
for spans, `turn_spans` a record as spans, `otel` and `otel_export` the way to a collector; `endings` tells them and others of
each turn once.
"""
