// A released node of npm's `streamr-network` 13, of 2020: it passes on to all neighbours that have
// subscribed what another one sends, each message once. It stores nothing and verifies nothing.
//
//     node benchmarks/fanout_network.js PORT
'use strict'
const { startNetworkNode } = require('streamr-network')

startNetworkNode('127.0.0.1', Number(process.argv[2]), 'server').then((node) => node.subscribe('w3', 0))
