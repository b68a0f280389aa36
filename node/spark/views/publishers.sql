-- What each publisher has sent in a minute.
select
  stream,
  publisher,
  date_trunc('minute', received_at) as minute,
  count(*) as messages,
  sum(data_bytes) as bytes,
  min(received_at) as first_at,
  max(received_at) as last_at
from silver
where publisher is not null
group by stream, publisher, date_trunc('minute', received_at)
