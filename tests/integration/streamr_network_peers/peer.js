// A released tracker or node of npm's `streamr-network`, of one stream's only partition.
//
//     node peer.js tracker PORT
//     node peer.js node PORT TRACKER_URL STREAM      publishes each line that it reads
//
// Writes {"ready": URL} once it listens, and {"got": CONTENT} for each message that it hears.
'use strict'
const readline = require('readline')

const { MessageLayer } = require('streamr-client-protocol')
const { startTracker, startNetworkNode } = require('streamr-network')

const [, , role, port, tracker, stream] = process.argv
const HOST = '127.0.0.1'
const PUBLISHER = `publisher-${port}`

function say(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`)
}

function publisher(node) {
  const { StreamMessage } = MessageLayer
  const timestamp = Date.now()
  let sequence = 0
  let previous = null
  return (content) => {
    node.publish(StreamMessage.create(
      [stream, 0, timestamp, sequence, PUBLISHER, 'chain'], previous,
      StreamMessage.CONTENT_TYPES.MESSAGE, StreamMessage.ENCRYPTION_TYPES.NONE, content,
      StreamMessage.SIGNATURE_TYPES.NONE, null,
    ))
    previous = [timestamp, sequence]
    sequence += 1
  }
}

async function main() {
  if (role === 'tracker') {
    await startTracker(HOST, Number(port), 'released-tracker')
  } else {
    const node = await startNetworkNode(HOST, Number(port), `node-${port}`)
    node.addMessageListener((message) => say({ got: message.getSerializedContent() }))
    node.addBootstrapTracker(tracker)
    node.subscribe(stream, 0)
    readline.createInterface({ input: process.stdin }).on('line', publisher(node))
  }
  say({ ready: `ws://${HOST}:${port}` })
}

main()
