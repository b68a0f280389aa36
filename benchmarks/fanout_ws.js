// A bare server of npm's `ws`: what comes to /pub is sent to everybody at /sub, as it is; the first
// message of a subscriber is its own answer.
//
//     node benchmarks/fanout_ws.js PORT
'use strict'
const { WebSocketServer } = require('ws')

const server = new WebSocketServer({
    host: '127.0.0.1', port: Number(process.argv[2]), backlog: 1024, perMessageDeflate: false
})
const subscribers = new Set()
server.on('connection', (socket, request) => {
    const publishes = request.url === '/pub'
    socket.on('message', (data) => {
        if (publishes) {
            for (const subscriber of subscribers) subscriber.send(data, { binary: false })
        } else {
            subscribers.add(socket)
            socket.send(data, { binary: false })
        }
    })
    socket.on('close', () => subscribers.delete(socket))
})
