'use strict'
// What one client does in its life: node scenario.js GENERATION WS_URL REST_URL KEY OTHER_KEY

const { Driver, expect, once, same, sleep, step, until } = require('./clients')

const [generation, url, rest, key, otherKey] = process.argv.slice(2)
const driver = new Driver(generation, { url, rest })
const modern = generation === 'v5'
const COUNT = 10
const START = Date.now() - 100000
const numbers = (from, to) => [...Array(to - from).keys()].map((n) => n + from)

async function logIn(client) {
  const token = await client.session.getSessionToken()
  expect(typeof token === 'string' && token.length > 0, 'no token')
  return client
}

async function prove(client, state) {
  const info = await client.getUserInfo()
  state.address = info.username.toLowerCase()
  expect(/^0x[0-9a-f]{40}$/.test(state.address), `no address: ${info.username}`)
}

async function makeStreams(client, state) {
  const name = `scenario ${generation} ${START}`
  const stream = await client.createStream({ name, description: 'made by a test' })
  state.stream = stream.id
  expect(stream.partitions >= 1, 'no partitions')
  const found = await client.getOrCreateStream({ name })
  same(found.id, stream.id, 'the stream of that name')
  same((await client.getStream(stream.id)).name, name, 'name')
  if (modern) {
    const id = `${state.address}/paths/are/${START}`
    const made = await client.getOrCreateStream({ id, name: 'by path', partitions: 3 })
    same([made.id, made.partitions], [id, 3], 'the stream of that id')
    same((await client.getOrCreateStream({ id })).partitions, 3, 'the same stream again')
    state.partitioned = id
  }
}

async function checkPublishers(client, state) {
  const publishers = await client.getStreamPublishers(state.stream)
  expect(publishers.includes(state.address), `publishers ${publishers}`)
  if (client.isStreamPublisher) {
    expect(await client.isStreamPublisher(state.stream, state.address), 'not a publisher')
    const stranger = `0x${'12'.repeat(20)}`
    expect(!(await client.isStreamPublisher(state.stream, stranger)), 'a stranger publishes')
  }
}

async function publishAndReceive(client, state) {
  const { got, meta } = state
  state.subscription = await driver.subscribe(client, { stream: state.stream }, (content, message) => {
    got.push(content)
    meta.push(message)
  })
  for (let n = 0; n < COUNT; n++) {
    await client.publish(state.stream, { n, text: 'h\u00e4 \u20ac', nothing: null }, START + n * 10)
  }
  await until(() => got.length >= COUNT, () => JSON.stringify([got, client.errors]))
  same(got.map((content) => content.n), numbers(0, COUNT), 'received')
  same([got[0].text, got[0].nothing], ['h\u00e4 \u20ac', null], 'content')
}

async function checkMetadata(client, state) {
  const message = state.meta[1]
  expect(message.signature && message.signatureType === 2, 'not signed')
  same(message.getPublisherId().toLowerCase(), state.address, 'publisher')
  same(message.prevMsgRef.timestamp, START, 'the message before')
}

async function checkResends(client, state) {
  const first = state.meta[0]
  const chain = { publisherId: first.getPublisherId(), msgChainId: first.getMsgChainId() }
  const at = (timestamp, sequenceNumber) => ({ timestamp, sequenceNumber })
  for (const [what, options, wanted] of [
    ['last', { last: 4 }, numbers(COUNT - 4, COUNT)],
    ['last, more than there are', { last: 10 * COUNT }, numbers(0, COUNT)],
    ['from', { from: at(START + 30) }, numbers(3, COUNT)],
    ['from, with sequence', { from: at(START + 30, 1) }, numbers(4, COUNT)],
    ['range', { from: at(START + 20), to: at(START + 60) }, numbers(2, 7)],
    ['range of a chain', { from: at(START, 0), to: at(START + 40, 0), ...chain }, numbers(0, 5)],
    ['nothing', { from: at(START + 3600000) }, []],
  ]) {
    const found = await driver.resend(client, state.stream, options)
    same(found.map((content) => content.n), wanted, what)
  }
}

async function catchUp(client, state) {
  const got = []
  const late = await driver.connect(driver.make({ privateKey: key }))
  const options = { stream: state.stream, resend: { last: 3 } }
  await driver.subscribe(late, options, (content) => got.push(content.n))
  await until(() => got.length >= 3, () => JSON.stringify(got))
  await client.publish(state.stream, { n: 100 })
  await until(() => got.length >= 4, () => JSON.stringify(got))
  same(got, [...numbers(COUNT - 3, COUNT), 100], 'old ones, then the new one')
  await driver.disconnect(late)
}

async function breakAndHeal(client, state) {
  const got = []
  const other = driver.make({ privateKey: key }, { autoConnect: true })
  if (!modern) await driver.connect(other)
  await driver.subscribe(other, { stream: state.stream }, (content) => got.push(content.gap))
  await client.publish(state.stream, { gap: 1 })
  await until(() => got.length === 1, () => JSON.stringify(got))
  const [down, up] = [once(other, 'disconnected'), once(other, 'connected')]
  other.connection.socket.terminate()
  await down
  await client.publish(state.stream, { gap: 2 }) // nobody listens on that connection now
  await up
  // The client subscribes anew by itself; a message tells that it has.
  let sent = 2
  await until(
    async () => {
      await client.publish(state.stream, { gap: ++sent })
      await sleep(500)
      return got.length > 1
    },
    () => JSON.stringify([got, other.errors]),
  )
  await until(() => got.length >= sent, () => JSON.stringify([got, other.errors]))
  same(got, numbers(1, sent + 1), 'none is missing, none is there twice')
  await driver.disconnect(other)
}

async function share(client, state) {
  const stranger = driver.make({ privateKey: otherKey })
  expect(!(await driver.find(stranger, state.stream)), 'a stranger is told of the stream')
  const stream = await client.getStream(state.stream)
  const user = (await stranger.getUserInfo()).username
  const get = await stream.grantPermission('stream_get', user)
  await stream.grantPermission('stream_subscribe', user)
  expect(await stream.hasPermission('stream_subscribe', user), 'the permission is not listed')
  const got = []
  await driver.connect(stranger)
  await driver.subscribe(stranger, { stream: state.stream }, (content) => got.push(content.shared))
  await client.publish(state.stream, { shared: true })
  await until(() => got.length, () => JSON.stringify(stranger.errors))
  await driver.disconnect(stranger)
  for (const permission of await stream.getPermissions()) {
    if (permission.user === user) await stream.revokePermission(permission.id)
  }
  expect(!(await stream.hasPermission('stream_get', user)), `still there: ${get.id}`)
}

/** A subscription that the server ends takes nothing else with it. */
async function loseOne(client, state) {
  const got = []
  const other = await driver.connect(driver.make({ privateKey: key }))
  const lost = await client.createStream({ name: `lost ${generation} ${START}` })
  await driver.subscribe(other, { stream: state.stream }, (content) => got.push(content.kept))
  const subscription = await driver.subscribe(other, { stream: lost.id }, () => {})
  const ended = once(subscription, 'unsubscribed')
  await lost.delete()
  await ended
  await client.publish(state.stream, { kept: true })
  await until(() => got.length, () => JSON.stringify(other.errors))
  same([got, other.errors], [[true], []], 'what the other subscription brings')
  await driver.disconnect(other)
}

async function partition(client, state) {
  const got = []
  const other = await driver.connect(driver.make({ privateKey: key }))
  for (const streamPartition of [0, 1, 2]) {
    const options = { streamId: state.partitioned, streamPartition }
    await driver.subscribe(other, options, ({ k }, message) => {
      got.push([k, message.getStreamPartition()])
    })
  }
  // The absolute value of the first four bytes of MD5, modulo the partitions.
  const wanted = [['a', 1], ['b', 0], ['key-1', 0], ['foo', 0]]
  for (const [k] of wanted) await client.publish(state.partitioned, { k }, Date.now(), k)
  await until(() => got.length >= wanted.length, () => JSON.stringify(got))
  const sorted = (list) => list.slice().sort()
  same(sorted(got), sorted(wanted), 'partitions')
  await driver.disconnect(other)
}

async function editAndDelete(client, state) {
  const stream = await client.getStream(state.stream)
  stream.description = 'changed'
  await stream.update()
  same((await client.getStream(state.stream)).description, 'changed', 'description')
  await stream.delete()
  expect(!(await driver.find(client, state.stream)), 'still there')
}

async function main() {
  const state = { got: [], meta: [] }
  const client = driver.make({ privateKey: key })
  await step('log in', () => logIn(client).then(() => undefined))
  await step('who am I', () => prove(client, state))
  await step('make streams', () => makeStreams(client, state))
  await step('publishers', () => checkPublishers(client, state))
  await step('connect', () => driver.connect(client).then(() => undefined))
  await step('publish and receive', () => publishAndReceive(client, state))
  await step('metadata', () => checkMetadata(client, state))
  await step('resend', () => checkResends(client, state))
  await step('subscribe with resend', () => catchUp(client, state))
  await step('break and heal', () => breakAndHeal(client, state))
  await step('share', () => share(client, state))
  if (!modern) await step('lose one', () => loseOne(client, state))
  if (state.partitioned) await step('partitions', () => partition(client, state))
  await step('unsubscribe', () => driver.unsubscribe(client, state.subscription).then(() => undefined))
  await step('edit and delete', () => editAndDelete(client, state))
  await step('log out', () => client.session.logout())
  await step('disconnect', () => driver.disconnect(client))
  same(client.errors, [], 'errors that the client was told of')
  process.exit(0)
}

process.on('unhandledRejection', (error) => {
  process.stdout.write(JSON.stringify({ unhandled: String((error && error.message) || error) }) + '\n')
})
main()
