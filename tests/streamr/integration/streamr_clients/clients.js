'use strict'
// The released clients of several generations behind one set of functions, and what scripts share.

const PATIENCE_MS = 300000

/** One JSON line for each step; a script that fails ends with code 1 after the line that says why. */
async function step(name, work) {
  const begin = Date.now()
  const line = { step: name }
  try {
    const patience = timeout(PATIENCE_MS, name)
    const info = await Promise.race([Promise.resolve().then(work), patience.over])
    patience.cancel()
    line.ok = true
    if (info !== undefined) line.info = info
  } catch (error) {
    line.ok = false
    line.error = String((error && error.stack) || error).slice(0, 2000)
  }
  line.ms = Date.now() - begin
  process.stdout.write(JSON.stringify(line) + '\n')
  if (!line.ok) process.exit(1)
}

function timeout(ms, what) {
  let timer
  const over = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms: ${what}`)), ms)
  })
  return { over, cancel: () => clearTimeout(timer) }
}

function expect(condition, text) {
  if (!condition) throw new Error(text)
}

function same(found, wanted, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)]
  expect(a === b, `${what}: ${a}, wanted ${b}`)
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** Wait until a condition holds; the step's own time limit ends a wait in vain. */
async function until(condition, describe) {
  const begin = Date.now()
  while (!(await condition())) {
    if (Date.now() - begin > PATIENCE_MS - 2000) throw new Error(`in vain: ${describe()}`)
    await sleep(10)
  }
}

const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve))

/** A generation's client in the form that the scripts use. */
class Driver {
  constructor(generation, { url, rest }) {
    const found = require(`client-${generation}`)
    this.Client = found.StreamrClient || found.default || found
    this.GroupKey = found.GroupKey
    this.awaits = generation === 'v5' // the others tell by events
    this.url = url
    this.rest = rest
  }

  make(auth, more = {}) {
    const client = new this.Client({
      url: this.url,
      restUrl: this.rest,
      auth,
      autoConnect: false,
      autoDisconnect: false,
      gapFillTimeout: 1000,
      retryResendAfter: 1000,
      ...more,
    })
    client.errors = []
    client.onError = () => {}
    client.on('error', (error) => client.errors.push(String((error && error.message) || error)))
    return client
  }

  async connect(client) {
    await (client.ensureConnected ? client.ensureConnected() : client.connect())
    expect(client.isConnected(), 'not connected')
    return client
  }

  async disconnect(client) {
    await (client.ensureDisconnected ? client.ensureDisconnected() : client.disconnect())
  }

  /** Resolves once the server has said that the subscription holds. */
  async subscribe(client, options, onMessage) {
    if (this.awaits) return client.subscribe(options, onMessage)
    const subscription = client.subscribe(options, onMessage)
    if (subscription.getState && subscription.getState() !== 'subscribed') {
      await once(subscription, 'subscribed')
    }
    return subscription
  }

  async unsubscribe(client, subscription) {
    if (this.awaits) return client.unsubscribe(subscription)
    const done = once(subscription, 'unsubscribed')
    client.unsubscribe(subscription)
    return done
  }

  /** A stream, or null where the server says that there is none. */
  async find(client, id) {
    try {
      return (await client.getStream(id)) || null
    } catch (error) {
      if (error.response && error.response.status === 404) return null
      throw error
    }
  }

  /** All that a resend brings. */
  async resend(client, stream, resend) {
    if (this.awaits) return (await client.resend({ stream, resend })).collect()
    const found = []
    const subscription = await client.resend({ stream, resend }, (content) => found.push(content))
    const ends = ['resent', 'no_resend', 'initial_resend_done']
    await Promise.race(ends.map((event) => once(subscription, event)))
    await sleep(50) // the last messages are verified after the end has come
    return found
  }
}

module.exports = { Driver, PATIENCE_MS, expect, once, same, sleep, step, until }
