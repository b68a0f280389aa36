// The released JavaScript client against a node: create a stream, let another key in, publish
// encrypted messages, follow them, and read what is stored.
//
//     npm install streamr-client@5.2.1
//     node examples/streamr_client.js http://127.0.0.1:8890 sandbox/from-javascript
//
// Nothing of the client is changed but the two addresses that it talks to.
'use strict'
const crypto = require('crypto')
const { StreamrClient } = require('streamr-client')

const [base, streamId] = process.argv.slice(2)
if (!streamId) {
    console.error('usage: node streamr_client.js http://HOST:PORT STREAM')
    process.exit(2)
}

function connect() {
    return new StreamrClient({
        url: `${base.replace(/^http/, 'ws')}/api/v1/ws`,
        restUrl: `${base}/api/v1`,
        auth: { privateKey: '0x' + crypto.randomBytes(32).toString('hex') }
    })
}

async function main() {
    const alice = connect()
    const bob = connect()

    const stream = await alice.getOrCreateStream({ id: streamId })
    for (const operation of ['stream_get', 'stream_subscribe']) {
        await stream.grantPermission(operation, await bob.getUserId())
    }

    const count = 3
    const received = new Promise((resolve) => {
        let left = count
        bob.subscribe({ stream: streamId }, (message) => {
            console.log('bob reads', JSON.stringify(message))
            left -= 1
            if (left === 0) resolve()
        }).then(publish)
    })

    async function publish() {
        // From here on messages are encrypted; bob's client asks alice's for the key.
        await alice.rotateGroupKey(streamId)
        for (let number = 0; number < count; number += 1) {
            await alice.publish(streamId, { number })
        }
    }

    await received
    const stored = await (await bob.resend({ stream: streamId, resend: { last: 2 } })).collect()
    console.log('the last two', JSON.stringify(stored))
    await Promise.all([alice.ensureDisconnected(), bob.ensureDisconnected()])
}

main().then(() => process.exit(0), (error) => {
    console.error(error)
    process.exit(1)
})
