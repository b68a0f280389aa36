'use strict'
// What reaches a client of what others send in disorder: node disorder.js GENERATION WS REST KEY OTHER_KEY
// The messages come from a socket that makes its own, signed as clients sign them, or wrongly.

const { Wallet } = require('ethers')
const WebSocket = require('ws')
const { Driver, expect, once, same, sleep, step, until } = require('./clients')

const [generation, url, rest, key, otherKey] = process.argv.slice(2)
const driver = new Driver(generation, { url, rest })
const START = Date.now() - 100000
const at = (n) => START + n * 10

/** A socket of nobody's, and messages of one chain on one stream. */
class Sender {
  constructor(stream) {
    this.stream = stream
    this.wallet = new Wallet(key)
    this.answers = []
  }

  async open() {
    this.socket = new WebSocket(`${url}?controlLayerVersion=2&messageLayerVersion=32`)
    this.socket.on('message', (text) => this.answers.push(JSON.parse(text)))
    await once(this.socket, 'open')
  }

  /** Message n of the chain, or one of the same place with other fields; signed by its publisher. */
  async make(n, { previous = n - 1, publisher = this.wallet.address, wallet = this.wallet } = {}) {
    const id = [this.stream, 0, at(n), 0, publisher, 'of the sender']
    const before = previous > 0 ? [at(previous), 0] : null
    const content = JSON.stringify({ n })
    const text = `${id.slice(0, 4).join('')}${publisher.toLowerCase()}${id[5]}${before ? before.join('') : ''}${content}`
    return [32, id, before, 27, 0, 0, null, content, null, 2, await wallet.signMessage(text)]
  }

  send(message, token = null) {
    this.socket.send(JSON.stringify([2, 8, `p${message[1][2]}`, message, token]))
  }

  /** The codes of the errors that came since the last time; a short resend waits for what was sent. */
  async refusals() {
    this.socket.send(JSON.stringify([2, 11, 'wait', 'there is no such stream', 0, 1, null]))
    await until(() => this.answers.some((answer) => answer[2] === 'wait'), () => JSON.stringify(this.answers))
    const found = this.answers.filter((answer) => answer[1] === 7 && answer[2] !== 'wait')
    this.answers = []
    return found.map((answer) => answer[4])
  }
}

async function prepare(state) {
  state.client = await driver.connect(driver.make({ privateKey: key }, { autoConnect: true }))
  state.stream = (await state.client.createStream({ name: `disorder ${START}` })).id
  state.sender = new Sender(state.stream)
  await state.sender.open()
  state.got = []
  await driver.subscribe(state.client, { stream: state.stream }, ({ n }) => state.got.push(n))
}

async function received({ got, client }, count) {
  await until(() => got.length >= count, () => JSON.stringify([got, client.errors]))
  await sleep(300) // for what must not come
  same(got, [...Array(count).keys()].map((n) => n + 1), 'received')
}

async function outOfOrder(state) {
  const { sender } = state
  for (const n of [1, 3, 2, 2, 5, 4, 1]) sender.send(await sender.make(n))
  same(await sender.refusals(), [], 'refused')
  await received(state, 5)
}

async function tampered(state) {
  const { sender, client } = state
  const stranger = new Wallet(otherKey)
  const changed = await sender.make(6)
  changed[7] = '{"n":66}'
  const moved = await sender.make(6)
  moved[2] = [at(4), 0]
  const forged = await sender.make(6, { wallet: stranger })
  const strangers = await sender.make(6, { publisher: stranger.address, wallet: stranger })
  const unsigned = [...(await sender.make(6)).slice(0, 9), 0, null]
  for (const message of [changed, moved, forged, strangers, unsigned]) sender.send(message)
  const codes = await sender.refusals()
  const wanted = [...Array(2).fill('PERMISSION_DENIED'), ...Array(3).fill('REQUEST_FAILED')]
  same(codes.sort(), wanted, 'refused')
  const token = await driver.make({ privateKey: otherKey }).session.getSessionToken()
  sender.send(unsigned, token)
  same(await sender.refusals(), ['PERMISSION_DENIED'], "in another's name")
  // None of them has taken the place of the true one.
  sender.send(await sender.make(6))
  await received(state, 6)
  const resent = await driver.resend(client, state.stream, { last: 100 })
  same(resent.map(({ n }) => n).sort(), [1, 2, 3, 4, 5, 6], 'stored')
}

async function malformed(state) {
  const { sender } = state
  const frames = ['', '[', 'null', '{}', '[2]', '[2,8]', '[2,8,"x",[32],null]', '[9,9,"x"]', '"\ud800"', '[2,0,"",[]]']
  for (const frame of frames) sender.socket.send(frame)
  same(await sender.refusals(), frames.map(() => 'INVALID_REQUEST'), 'refused')
  sender.send(await sender.make(7))
  await received(state, 7)
}

/** One message is missed while away, and asked for when the next one tells of it. */
async function missed(state) {
  const { sender, client } = state
  const [down, up] = [once(client, 'disconnected'), once(client, 'connected')]
  client.connection.socket.terminate()
  await down
  sender.send(await sender.make(8))
  same(await sender.refusals(), [], 'refused')
  await up
  for (let n = 9; state.got.length < 9; n++) {
    sender.send(await sender.make(n))
    state.sent = n
    await sleep(1000)
    expect(n < 100, JSON.stringify([state.got, client.errors]))
  }
  await received(state, state.sent)
}

async function partitions() {
  const client = await driver.connect(driver.make({ privateKey: key }))
  const stream = await client.createStream({ name: `partitions ${START}`, partitions: 4 })
  same(stream.partitions, 4, 'partitions')
  const got = []
  for (const number of [0, 1, 2, 3]) {
    const options = generation === 'v5' ? { streamId: stream.id, streamPartition: number } : { stream: stream.id, partition: number }
    await driver.subscribe(client, options, ({ n }, message) => got.push([n, message.getStreamPartition()]))
  }
  // Keys of all four partitions: the absolute value of the first four bytes of MD5, modulo 4.
  const keys = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l']
  for (const [n, word] of keys.entries()) await client.publish(stream.id, { n }, START + n, word)
  await until(() => got.length >= keys.length, () => JSON.stringify([got, client.errors]))
  const md5 = (word) => require('crypto').createHash('md5').update(word).digest().readInt32LE(0)
  for (const [n, partition] of got) same(partition, Math.abs(md5(keys[n])) % 4, `partition of ${keys[n]}`)
  same(new Set(got.map(([, partition]) => partition)).size, 4, 'partitions that got something')
  for (const number of [0, 1, 2, 3]) {
    const inOrder = got.filter(([, partition]) => partition === number).map(([n]) => n)
    same(inOrder, inOrder.slice().sort((a, b) => a - b), `order in partition ${number}`)
  }
  await driver.disconnect(client)
}

async function main() {
  const state = {}
  await step('prepare', () => prepare(state))
  await step('out of order', () => outOfOrder(state))
  await step('tampered', () => tampered(state))
  await step('malformed', () => malformed(state))
  await step('missed', () => missed(state))
  await step('partitions', partitions)
  same(state.client.errors, [], 'errors that the client was told of')
  process.exit(0)
}

main().catch((error) => {
  process.stdout.write(`${error.stack}\n`)
  process.exit(1)
})
