"""The only room that talks to Elasticsearch and OpenSearch, and the only one that imports their clients."""
