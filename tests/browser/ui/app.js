// The path names the index; ?hits=N asks for so many hits a page. searchHost: where this page itself sends its searches.
const index = location.pathname.slice(1)
const client = SearchkitInstantsearchClient(
  searchHost
    ? new Searchkit({ connection: { host: searchHost }, search_settings: settings })
    : { url: '/api/search' }
)
const search = instantsearch({ indexName: index, searchClient: client, routing: true })
const w = instantsearch.widgets
search.addWidgets([
  w.searchBox({ container: '#searchbox', searchAsYouType: false }),
  w.stats({ container: '#stats' }),
  w.refinementList({ container: '#brand', attribute: 'brand' }),
  w.refinementList({ container: '#color', attribute: 'color' }),
  w.rangeInput({ container: '#price', attribute: 'price' }),
  w.sortBy({
    container: '#sort',
    items: [
      { label: 'best first', value: index },
      { label: 'cheapest first', value: `${index}_price_asc` }
    ]
  }),
  w.hits({
    container: '#hits',
    templates: {
      item: (h, { html, components }) => html`<div class="hit" data-id="${h.objectID}">
        <b>${components.Highlight({ hit: h, attribute: 'title' })}</b><br />
        <span>${components.Snippet({ hit: h, attribute: 'text' })}</span><br />
        <small>${h.brand} ${h.price}</small>
      </div>`
    }
  }),
  w.pagination({ container: '#pagination' }),
  w.configure({ hitsPerPage: Number(new URLSearchParams(location.search).get('hits') || 10) })
])
search.start()
