// Serves the page. SEARCH_HOST is the address of the cluster, or of a proxy: searches go there from here, by @searchkit/api,
// or with SEARCH_FROM=page from the page itself.
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import api from '@searchkit/api'
import settings from './settings.js'

const Client = api.default ?? api
const client = Client({ connection: { host: process.env.SEARCH_HOST }, search_settings: settings })
const here = dirname(fileURLToPath(import.meta.url))
const types = { js: 'text/javascript', css: 'text/css', html: 'text/html' }

async function answer(request, response) {
  const path = normalize(decodeURIComponent(new URL(request.url, 'http://localhost').pathname))
  if (path === '/favicon.ico') return response.writeHead(204).end()
  if (path === '/host.js') {
    const host = process.env.SEARCH_FROM === 'page' ? process.env.SEARCH_HOST : ''
    return response.writeHead(200, { 'content-type': types.js }).end(`const searchHost = '${host}'`)
  }
  if (path === '/api/search' && request.method === 'POST') {
    const parts = []
    for await (const part of request) parts.push(part)
    const found = await client.handleRequest(JSON.parse(Buffer.concat(parts).toString()))
    return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(found))
  }
  const file = path.startsWith('/lib/') ? `node_modules${path.slice(4)}` : /\.js$/.test(path) ? path : 'index.html'
  const content = await readFile(join(here, file))
  response.writeHead(200, { 'content-type': types[file.split('.').pop()] ?? 'text/plain' }).end(content)
}

const server = createServer((request, response) =>
  answer(request, response).catch((error) => response.writeHead(500).end(String(error)))
)
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
