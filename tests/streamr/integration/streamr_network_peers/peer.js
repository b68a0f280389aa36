// A released tracker or node of npm's `streamr-network`, of one stream's only partition.
//
//     node peer.js RELEASE tracker PORT STREAM
//     node peer.js RELEASE node PORT STREAM TRACKER_URL      publishes each line that it reads
//
// RELEASE is 13, 19 or 22. Writes {"ready": URL} once it listens. A node writes {"got": CONTENT} for
// each message that it hears; a tracker {"node": ID, "neighbours": [ID]} for each status.
'use strict'
const path = require('path')
const readline = require('readline')

const [, , release, role, port, stream, tracker] = process.argv
const HOST = '127.0.0.1'
const PUBLISHER = `publisher-${port}`
const NAME = `streamr-network-${release}`

const { startTracker, startNetworkNode } = require(NAME)
const { MessageLayer } = require(require.resolve('streamr-client-protocol', {
  paths: [path.dirname(require.resolve(`${NAME}/package.json`))],
}))

function say(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`)
}

function messageOf(timestamp, sequence, previous, content) {
  const { StreamMessage, MessageIDStrict, MessageID, MessageRef } = MessageLayer
  const id = [stream, 0, timestamp, sequence, PUBLISHER, 'chain']
  if (release === '13') {
    return StreamMessage.create(
      id, previous, StreamMessage.CONTENT_TYPES.MESSAGE, StreamMessage.ENCRYPTION_TYPES.NONE,
      content, StreamMessage.SIGNATURE_TYPES.NONE, null,
    )
  }
  return new StreamMessage({
    messageId: new (MessageIDStrict || MessageID)(...id),
    prevMsgRef: previous && new MessageRef(...previous),
    content,
  })
}

function publisher(node) {
  const timestamp = Date.now()
  let sequence = 0
  let previous = null
  return (content) => {
    node.publish(messageOf(timestamp, sequence, previous, content))
    previous = [timestamp, sequence]
    sequence += 1
  }
}

function telling(running) {
  const process = running.processNodeStatus.bind(running)
  running.processNodeStatus = (message, more) => {
    process(message, more)
    const node = release === '22' ? more : message.getSource()
    const status = release === '22' ? message.status : message.getStatus()
    const { inboundNodes = [] } = status.streams[`${stream}::0`] || {}
    say({ node, neighbours: inboundNodes })
  }
}

async function start() {
  const [id, host] = [`${role}-${port}`, HOST]
  if (role === 'tracker') {
    telling(release === '22'
      ? await startTracker({ host, port: Number(port), id, attachHttpEndpoints: false })
      : await startTracker(host, Number(port), id))
    return
  }
  const node = release === '22'
    ? await startNetworkNode({ host, port: Number(port), id, trackers: [tracker] })
    : await startNetworkNode(host, Number(port), id)
  node.addMessageListener((message) => say({ got: message.getSerializedContent() }))
  if (release === '22') {
    node.start()
  } else {
    node.addBootstrapTracker(tracker)
  }
  node.subscribe(stream, 0)
  readline.createInterface({ input: process.stdin }).on('line', publisher(node))
}

start().then(() => say({ ready: `ws://${HOST}:${port}` }))
