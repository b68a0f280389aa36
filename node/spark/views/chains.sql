-- Within a chain, messages are looked at in the order in which the node took them. A message is
-- late if a newer one of its chain was there; it opens a gap if it names a message before it that
-- is newer than all that were there. A message's place, its time and its sequence, is one number.
with messages as (
  select
    stream, partition, publisher, chain, "index", ts, coalesce(seq, 0) as seq,
    date_trunc('minute', received_at) as minute,
    cast(cast(ts as bigint) as decimal(38, 0)) * cast('10000000000000000000' as decimal(20, 0))
      + coalesce(seq, 0) as place,
    cast(cast(prev_ts as bigint) as decimal(38, 0)) * cast('10000000000000000000' as decimal(20, 0))
      + coalesce(prev_seq, 0) as named
  from silver
  where kind = 'streamr' and chain is not null and ts is not null
),
first as (
  select stream, partition, publisher, chain, min(minute) as minute
  from messages group by stream, partition, publisher, chain
),
-- What came before the first of these minutes; each chain has its own first.
known as (
  select
    f.stream, f.partition, f.publisher, f.chain,
    max(
      cast(cast(b.last_ts as bigint) as decimal(38, 0))
        * cast('10000000000000000000' as decimal(20, 0)) + b.last_seq
    ) as place
  from before b join first f
    on b.stream = f.stream and b.partition = f.partition
    and (b.publisher is not distinct from f.publisher) and b.chain = f.chain
  where b.last_ts is not null and b.minute < f.minute
  group by f.stream, f.partition, f.publisher, f.chain
),
judged as (
  select
    m.*, k.place as known,
    max(m.place) over (
      partition by m.stream, m.partition, m.publisher, m.chain order by m."index"
      rows between unbounded preceding and 1 preceding
    ) as seen
  from messages m left join known k
    on m.stream = k.stream and m.partition = k.partition
    and (m.publisher is not distinct from k.publisher) and m.chain = k.chain
),
counted as (
  select
    stream, partition, publisher, chain, minute, 1 as message, 0 as duplicate, ts, seq,
    case when named > greatest(seen, known) then 1 else 0 end as gap,
    case when place < greatest(seen, known) then 1 else 0 end as late
  from judged
  union all
  select
    stream, partition, publisher, chain, date_trunc('minute', received_at),
    0, 1, null, null, 0, 0
  from repeats
  where chain is not null
)
select
  stream,
  partition,
  publisher,
  chain,
  minute,
  sum(message) as messages,
  sum(gap) as gaps,
  sum(late) as late,
  sum(duplicate) as duplicates,
  -- The newest message until then; what the next minute's gaps are told by.
  max(ts) as last_ts,
  last_value(seq order by ts nulls first, seq nulls first) as last_seq
from counted
group by stream, partition, publisher, chain, minute
