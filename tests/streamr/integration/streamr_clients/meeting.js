'use strict'
// Two generations on one stream: node meeting.js GENERATION WS_URL REST_URL KEY OTHER_GENERATION
// Each publishes, and both receive all of it, in the form of their own generation.

const { Driver, same, step, until } = require('./clients')

const [generation, url, rest, key, otherGeneration] = process.argv.slice(2)

async function meet() {
  const drivers = [generation, otherGeneration].map((name) => new Driver(name, { url, rest }))
  const clients = await Promise.all(drivers.map((one) => one.connect(one.make({ privateKey: key }))))
  const stream = (await clients[0].createStream({ name: `meeting ${Date.now()}` })).id
  const got = [[], []]
  for (const [at, driver] of drivers.entries()) {
    await driver.subscribe(clients[at], { stream }, (content) => got[at].push(content.from))
  }
  for (const [at, client] of clients.entries()) {
    for (let n = 0; n < 5; n++) await client.publish(stream, { from: `${at}:${n}` })
  }
  await until(() => got.every((one) => one.length >= 10), () => JSON.stringify([got, clients.map((c) => c.errors)]))
  for (const one of got) {
    // In order of each publisher; between two there is none.
    for (const at of [0, 1]) {
      const ofOne = one.filter((from) => from.startsWith(`${at}:`))
      same(ofOne, [0, 1, 2, 3, 4].map((n) => `${at}:${n}`), `received of ${at}`)
    }
  }
  for (const [at, driver] of drivers.entries()) {
    same((await driver.resend(clients[at], stream, { last: 10 })).length, 10, 'resent')
    await driver.disconnect(clients[at])
  }
}

async function main() {
  await step('meeting', meet)
  process.exit(0)
}

main()
