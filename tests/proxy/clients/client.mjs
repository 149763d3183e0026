// One official JavaScript client does everyday work: node client.mjs PACKAGE URL INDEX, and says what it saw.
import { createRequire } from 'node:module'

const [name, url, index] = process.argv.slice(2)
const { Client } = createRequire(import.meta.url)(name)
const client = new Client({ node: url })
const opensearch = name.startsWith('@opensearch')
// The client of OpenSearch takes a `body`, and puts the answer into one.
const ask = (given) => (opensearch ? given : { ...given, ...given.body, body: undefined })
const unpack = (answer) => (opensearch ? answer.body : answer)
const other = `${index}-js`
const text = { multi_match: { query: 'laptop gets hot', fields: ['title', 'text'] } }
const seen = {}

await client.indices.delete({ index: other }, { ignore: [404] })
seen.info = await client.info().then(
  (answer) => unpack(answer).version.number,
  (error) => error.statusCode // a bare node of Elasticsearch does not tell
)
const document = opensearch ? { body: { title: 'x' } } : { document: { title: 'x' } }
await client.index({ index: other, id: '1', refresh: true, ...document })
seen.got = unpack(await client.get({ index: other, id: '1' }))._source
const lines = Array.from({ length: 250 }, (_, i) => [{ index: { _index: other, _id: String(i) } }, { title: `y ${i}` }])
const bulk = opensearch ? { body: lines.flat() } : { operations: lines.flat() }
seen.errors = unpack(await client.bulk({ refresh: true, ...bulk })).errors
const many = Array.from({ length: 300 }, (_, i) => ({ title: `z ${i}` }))
const helped = await client.helpers.bulk({
  datasource: many,
  onDocument: (d) => ({ index: { _index: other, _id: `h${many.indexOf(d)}` } }),
  refreshOnCompletion: other
})
seen.helped = helped.successful
seen.first = unpack(await client.search(ask({ index, body: { query: text } }))).hits.hits[0]._id
const two = [{ index }, { query: text }, { index: other }, { query: { match_all: {} }, track_total_hits: true }]
const several = unpack(await client.msearch(opensearch ? { body: two } : { searches: two })).responses
seen.several = [several[0].hits.hits[0]._id, several[1].hits.total.value]
let scrolled = 0
for await (const page of client.helpers.scrollSearch(
  ask({ index: other, size: 100, body: { query: { match_all: {} } } })
)) {
  scrolled += page.documents.length
}
seen.scrolled = scrolled
seen.found = (await client.helpers.search(ask({ index, body: { query: text } }))).length
if (opensearch) {
  const pit = unpack(await client.createPit({ index, keep_alive: '1m' }))
  const page = unpack(await client.search({ body: { query: text, pit: { id: pit.pit_id } } }))
  seen.pit = page.hits.total.value
  await client.deletePit({ body: { pit_id: [pit.pit_id] } })
} else {
  const pit = await client.openPointInTime({ index, keep_alive: '1m' })
  seen.pit = (await client.search({ query: text, pit: { id: pit.id } })).hits.total.value
  await client.closePointInTime({ id: pit.id })
}
seen.count = unpack(await client.count({ index: other })).count
await client.indices.delete({ index: other })
seen.exists = unpack(await client.indices.exists({ index: other }))
console.log(JSON.stringify(seen))
