// What is searched, shown and counted.
const settings = {
  search_attributes: [{ field: 'title', weight: 3 }, 'text', 'brand'],
  result_attributes: ['title', 'text', 'brand', 'price', 'color'],
  highlight_attributes: ['title'],
  snippet_attributes: ['text:200'],
  facet_attributes: [
    { attribute: 'brand', field: 'brand.keyword', type: 'string' },
    { attribute: 'color', field: 'color', type: 'string' },
    { attribute: 'price', field: 'price', type: 'numeric' }
  ],
  sorting: { default: { field: '_score', order: 'desc' }, _price_asc: { field: 'price', order: 'asc' } }
}
if (typeof module !== 'undefined') module.exports = settings
