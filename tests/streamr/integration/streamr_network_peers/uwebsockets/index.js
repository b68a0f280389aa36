// Stands in for the native package uWebSockets.js 18, as far as streamr-network 18 to 22 needs it,
// on top of `ws`. What those rely on is kept: a socket's `end` says why it ends and `close` does
// not, both call the handler `close` at once, and a socket that has ended throws when it is used.
'use strict'
const http = require('http')

const WebSocket = require('ws')

const ABNORMAL = 1006

function bytesOf(data) {
  const bytes = Buffer.from(data)
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
}

class Socket {
  constructor(inner, handlers, data) {
    Object.assign(this, data)
    Object.defineProperty(this, 'native', { value: { inner, handlers, ended: false } })
    inner.on('message', (message) => {
      const isBinary = typeof message !== 'string'
      if (!this.native.ended) handlers.message(this, bytesOf(message), isBinary)
    })
    inner.on('pong', () => this.native.ended || handlers.pong(this))
    inner.on('error', () => {})
    inner.on('close', (code, reason) => this.ended(code, reason))
  }

  ended(code, reason) {
    if (this.native.ended) return
    this.native.ended = true
    this.native.handlers.close(this, code, bytesOf(reason))
  }

  get inner() {
    if (this.native.ended) throw new Error('Invalid access of closed uWS.WebSocket/SSLWebSocket.')
    return this.native.inner
  }

  send(message) {
    this.inner.send(message)
    return true
  }

  ping() {
    this.inner.ping()
    return true
  }

  getBufferedAmount() {
    return this.inner.bufferedAmount
  }

  end(code, reason) {
    this.inner.close(code, reason)
    this.ended(code, reason || '')
  }

  close() {
    this.inner.terminate()
    this.ended(ABNORMAL, '')
  }
}
Object.defineProperty(Socket, 'name', { value: 'uWS.WebSocket' })

class Request {
  constructor(request) {
    this.headers = request.headers
    this.query = request.url.split('?').slice(1).join('?')
  }

  getQuery(key) {
    return key === undefined ? this.query : new URLSearchParams(this.query).get(key) || ''
  }

  getHeader(name) {
    return this.headers[name] || ''
  }
}

class Upgrade {
  constructor(accept) {
    this.accept = accept
    this.headers = []
  }

  writeStatus() {
    return this
  }

  writeHeader(name, value) {
    this.headers.push(`${name}: ${value}`)
    return this
  }

  upgrade(data) {
    this.accept(this.headers, data)
  }
}

class Application {
  constructor() {
    this.handlers = new Map()
    this.http = http.createServer((request, response) => response.writeHead(404).end())
    this.http.on('upgrade', (request, socket, head) => {
      const handlers = this.handlers.get(request.url.split('?')[0])
      if (handlers === undefined) {
        socket.end('HTTP/1.1 404 Not Found\r\n\r\n')
      } else {
        this.upgrade(handlers, request, socket, head)
      }
    })
  }

  upgrade(handlers, request, socket, head) {
    const { maxPayloadLength: maxPayload } = handlers
    const server = new WebSocket.Server({ noServer: true, perMessageDeflate: false, maxPayload })
    handlers.upgrade(new Upgrade((headers, data) => {
      server.on('headers', (answered) => answered.push(...headers))
      server.handleUpgrade(request, socket, head, (inner) => {
        handlers.open(new Socket(inner, handlers, data))
      })
    }), new Request(request), null)
  }

  ws(path, handlers) {
    this.handlers.set(path, handlers)
    return this
  }

  listen(...args) {
    const done = args.pop()
    const [host, port] = args.length === 2 ? args : [undefined, args[0]]
    this.http.once('error', () => done(false))
    this.http.listen(port, host, () => done(this.http))
    return this
  }
}

module.exports = {
  App: () => new Application(),
  us_listen_socket_close: (listening) => listening.close(),
}
