// Follows a stream until it has read COUNT entries: node follow.js URL COUNT [KEY]
// Each line of its output is the position after an entry, and the entry's text.
const { EventSource } = require('eventsource')

const [url, count, key] = process.argv.slice(2)
const authorized = (input, init) =>
  fetch(input, { ...init, headers: { ...init.headers, Authorization: `Bearer ${key}` } })
const source = new EventSource(url, key ? { fetch: authorized } : {})
let seen = 0
source.onmessage = (message) => {
  console.log(message.lastEventId, JSON.parse(message.data).text)
  seen += 1
  if (seen === Number(count)) source.close()
}
source.onerror = (error) => {
  if (source.readyState === EventSource.CLOSED) {
    console.error(error.code, error.message)
    process.exit(1)
  }
}
