'use strict'
// Publishes what is encrypted: node sealed.js GENERATION WS_URL REST_URL KEY READER GROUP_KEY
// v5 makes keys of its own, two of them, and gives them to READER who asks, until standard input
// ends; older ones use GROUP_KEY, of which their messages say nothing.

const { Driver, once, step } = require('./clients')

const [generation, url, rest, key, reader, groupKey] = process.argv.slice(2)
const driver = new Driver(generation, { url, rest })
let client, stream

async function open() {
  client = await driver.connect(driver.make({ privateKey: key }))
  stream = await client.createStream({ name: `sealed ${Date.now()}` })
  await stream.grantPermission('stream_get', reader)
  await stream.grantPermission('stream_subscribe', reader)
  return { stream: stream.id }
}

async function publish() {
  for (let n = 0; n < 6; n++) {
    if (driver.awaits) {
      if (n % 3 === 0) await client.rotateGroupKey(stream.id)
      await client.publish(stream.id, { n })
    } else {
      await client.publish(stream.id, { n }, Date.now() + n, null, Buffer.from(groupKey, 'hex'))
    }
  }
}

async function main() {
  await step('open', open)
  await step('publish', publish)
  process.stdin.resume()
  await once(process.stdin, 'end')
  process.exit(0)
}

main()
