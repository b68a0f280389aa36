'use strict'
// Encrypted streams: node encrypted.js GENERATION WS_URL REST_URL KEY OTHER_KEY
// v5 and v3.2: a subscriber asks the publisher for its keys. The others share a key beforehand.

const crypto = require('crypto')
const { Driver, expect, same, step, until } = require('./clients')

const [generation, url, rest, key, otherKey] = process.argv.slice(2)
const driver = new Driver(generation, { url, rest })

async function exchangeKeys() {
  const publisher = await driver.connect(driver.make({ privateKey: key }))
  const subscriber = await driver.connect(driver.make({ privateKey: otherKey }))
  const stream = await publisher.createStream({ name: `keys ${Date.now()}`, requireEncryptedData: true })
  const user = (await subscriber.getUserInfo()).username
  await stream.grantPermission('stream_get', user)
  await stream.grantPermission('stream_subscribe', user)
  const got = []
  await publisher.rotateGroupKey(stream.id)
  await driver.subscribe(subscriber, { stream: stream.id }, (content) => got.push(content.secret))
  for (let n = 0; n < 3; n++) await publisher.publish(stream.id, { secret: n })
  await publisher.rotateGroupKey(stream.id)
  for (let n = 3; n < 6; n++) await publisher.publish(stream.id, { secret: n })
  await until(() => got.length >= 6, () => JSON.stringify([got, subscriber.errors]))
  same(got, [0, 1, 2, 3, 4, 5], 'decrypted')
  const stored = await publisher.getStreamLast({ streamId: stream.id, count: 6 })
  expect(stored.every((one) => one.encryptionType === 2), 'stored in clear')
  expect(new Set(stored.map((one) => one.groupKeyId)).size === 2, 'not two keys')
  await comesLate(stream)
  await driver.disconnect(publisher)
  await driver.disconnect(subscriber)
}

/** Who comes later asks for the keys of what is stored, and without a permission gets none. */
async function comesLate(stream) {
  const late = await driver.connect(driver.make({ privateKey: crypto.randomBytes(32).toString('hex') }))
  const user = (await late.getUserInfo()).username
  const read = () => driver.resend(late, stream.id, { last: 6 })
  let refused
  await read().catch((error) => { refused = error })
  expect(refused, 'read without a permission')
  await stream.grantPermission('stream_get', user)
  await stream.grantPermission('stream_subscribe', user)
  same((await read()).map((content) => content.secret), [0, 1, 2, 3, 4, 5], 'decrypted later')
  await driver.disconnect(late)
}

/** Keys are asked for in the publisher's inbox; a new one comes with a message under the one before. */
async function exchangeOverInboxes() {
  const publisher = await driver.connect(driver.make({ privateKey: key }))
  const subscriber = await driver.connect(driver.make({ privateKey: otherKey }))
  const stream = await publisher.createStream({ name: `inboxes ${Date.now()}` })
  const user = (await subscriber.getUserInfo()).username
  await stream.grantPermission('stream_get', user)
  await stream.grantPermission('stream_subscribe', user)
  const got = []
  await driver.subscribe(subscriber, { stream: stream.id }, (content) => got.push(content.secret))
  for (const from of [0, 3]) {
    const groupKey = crypto.randomBytes(32)
    for (let n = from; n < from + 3; n++) {
      await publisher.publish(stream.id, { secret: n }, Date.now() + n, null, groupKey)
    }
    // A client that waits for a key does not take in the next one.
    await until(() => got.length >= from + 3, () => JSON.stringify([got, subscriber.errors]))
  }
  same(got, [0, 1, 2, 3, 4, 5], 'decrypted')
  await driver.disconnect(publisher)
  await driver.disconnect(subscriber)
}

async function shareKey() {
  const groupKey = crypto.randomBytes(32)
  const publisher = await driver.connect(driver.make({ privateKey: key }))
  const subscriber = await driver.connect(driver.make({ privateKey: key }))
  const stream = await publisher.createStream({ name: `shared ${Date.now()}` })
  const checksummed = await publisher.getPublisherId()
  const groupKeys = { [checksummed]: groupKey, [checksummed.toLowerCase()]: groupKey }
  const got = []
  await driver.subscribe(subscriber, { stream: stream.id, groupKeys }, (content) => got.push(content.secret))
  for (let n = 0; n < 3; n++) {
    await publisher.publish(stream.id, { secret: n }, Date.now() + n, null, groupKey)
  }
  await until(() => got.length >= 3, () => JSON.stringify([got, subscriber.errors]))
  same(got, [0, 1, 2], 'decrypted')
  await driver.disconnect(publisher)
  await driver.disconnect(subscriber)
}

async function main() {
  const ways = { v5: exchangeKeys, 'v3.2': exchangeOverInboxes }
  await step('encrypted', ways[generation] || shareKey)
  process.exit(0)
}

main()
