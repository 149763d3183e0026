"""elasticsearch-py of any version does everyday work: python client.py URL INDEX, and says what it saw."""

import json
import sys

from elasticsearch import ApiError, Elasticsearch, helpers

url, index = sys.argv[1:]
other = f"{index}-py"
query = {"multi_match": {"query": "laptop gets hot", "fields": ["title", "text"]}}
seen: dict[str, object] = {}
with Elasticsearch(url) as client:
    client.options(ignore_status=404).indices.delete(index=other)
    try:
        seen["info"] = client.info()["version"]["number"]
    except ApiError as error:  # a bare node does not tell
        seen["info"] = error.status_code
    client.index(index=other, id="1", document={"title": "x"}, refresh=True)
    seen["got"] = client.get(index=other, id="1")["_source"]
    lines = [line for i in range(250) for line in ({"index": {"_id": str(i)}}, {"title": f"y {i}"})]
    seen["errors"] = client.bulk(index=other, operations=lines, refresh=True)["errors"]
    actions = [{"_index": other, "_id": f"h{i}", "title": f"z {i}"} for i in range(300)]
    seen["helped"] = helpers.bulk(client, actions, refresh=True)[0]
    seen["first"] = client.search(index=index, query=query)["hits"]["hits"][0]["_id"]
    searches = [{"index": index}, {"query": query}, {"index": other}, {"query": {"match_all": {}}}]
    several = client.msearch(searches=searches)["responses"]
    seen["several"] = [several[0]["hits"]["hits"][0]["_id"], several[1]["hits"]["total"]["value"]]
    page = client.search(index=other, query={"match_all": {}}, size=100, scroll="1m")
    seen["page"] = len(client.scroll(scroll_id=page["_scroll_id"], scroll="1m")["hits"]["hits"])
    client.clear_scroll(scroll_id=page["_scroll_id"])
    seen["scrolled"] = len(list(helpers.scan(client, index=other)))
    made = client.open_point_in_time(index=index, keep_alive="1m")
    seen["pit"] = client.search(pit={"id": made["id"]}, query=query)["hits"]["total"]["value"]
    client.close_point_in_time(id=made["id"])
    seen["count"] = client.count(index=other)["count"]
    client.indices.delete(index=other)
    seen["exists"] = bool(client.indices.exists(index=other))
json.dump(seen, sys.stdout)
