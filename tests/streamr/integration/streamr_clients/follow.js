'use strict'
// One subscriber that tells what it gets: node follow.js GENERATION WS_URL REST_URL KEY STREAM COUNT
// The line `subscribed` says that it listens; it ends after COUNT messages.

const { Driver, expect, sleep, step } = require('./clients')

const [generation, url, rest, key, stream, count] = process.argv.slice(2)
const driver = new Driver(generation, { url, rest })
const TURNS = 6000

async function follow() {
  const client = await driver.connect(driver.make({ privateKey: key }))
  const [got, errors] = [[], []]
  const subscription = await driver.subscribe(client, { stream }, (content) => got.push(content.n))
  // Else an error would be the end of the subscription.
  subscription.on('error', (error) => errors.push(String((error && error.message) || error).slice(0, 300)))
  process.stdout.write(JSON.stringify({ subscribed: true }) + '\n')
  for (let turn = 0; got.length < Number(count) && turn < TURNS; turn++) await sleep(10)
  expect(got.length >= Number(count), `in vain: ${JSON.stringify([got, errors, client.errors])}`)
  await driver.disconnect(client)
  return { got, errors }
}

async function main() {
  await step('follow', follow)
  process.exit(0)
}

main()
