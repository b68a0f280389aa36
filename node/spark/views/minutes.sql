-- What happened in each stream's minute.
with counted as (
  select
    stream, received_at, publisher,
    1 as message, 0 as duplicate, data_bytes,
    case when error is not null then 1 else 0 end as malformed,
    case when signature in ('not signed by its publisher', 'malformed signature or publisher')
      then 1 else 0 end as forged,
    -- From the publisher's time to the node; null where publishers tell no time.
    cast(cast(received_at as bigint) / 1000 - cast(ts as bigint) / 1000 as double) as latency,
    -- From the node to the bronze table.
    cast(cast(landed_at as bigint) / 1000 - cast(received_at as bigint) / 1000 as double) as landing
  from silver
  union all
  select stream, received_at, null, 0, 1, null, 0, 0, null, null from repeats
)
select
  stream,
  date_trunc('minute', received_at) as minute,
  sum(message) as messages,
  coalesce(sum(data_bytes), 0) as bytes,
  count(distinct publisher) as publishers,
  sum(malformed) as malformed,
  sum(forged) as forged,
  sum(duplicate) as duplicates,
  percentile_cont(0.50) within group (order by latency) as latency_p50_ms,
  percentile_cont(0.95) within group (order by latency) as latency_p95_ms,
  percentile_cont(0.99) within group (order by latency) as latency_p99_ms,
  percentile_cont(0.50) within group (order by landing) as landing_p50_ms,
  percentile_cont(0.95) within group (order by landing) as landing_p95_ms,
  percentile_cont(0.99) within group (order by landing) as landing_p99_ms
from counted
group by stream, date_trunc('minute', received_at)
