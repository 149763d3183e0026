import co.elastic.clients.elasticsearch.ElasticsearchClient;
import co.elastic.clients.elasticsearch._helpers.bulk.BulkIngester;
import co.elastic.clients.elasticsearch._types.Refresh;
import co.elastic.clients.elasticsearch._types.Time;
import co.elastic.clients.elasticsearch._types.query_dsl.Query;
import co.elastic.clients.json.jackson.JacksonJsonpMapper;
import co.elastic.clients.transport.rest_client.RestClientTransport;
import java.util.List;
import java.util.Map;
import org.apache.http.HttpHost;
import org.elasticsearch.client.RestClient;

/** elasticsearch-java does everyday work: Client URL INDEX, and says what it saw. */
public class Client {
    static final Time MINUTE = Time.of(t -> t.time("1m"));

    public static void main(String[] given) throws Exception {
        String index = given[1], other = index + "-java";
        Query text = Query.of(q -> q.multiMatch(m -> m.query("laptop gets hot").fields("title", "text")));
        Query all = Query.of(q -> q.matchAll(m -> m));
        try (var rest = RestClient.builder(HttpHost.create(given[0])).build();
                var transport = new RestClientTransport(rest, new JacksonJsonpMapper())) {
            var client = new ElasticsearchClient(transport);
            client.indices().delete(d -> d.index(other).ignoreUnavailable(true));
            client.index(i -> i.index(other).id("1").document(Map.of("title", "x")).refresh(Refresh.True));
            var got = client.get(g -> g.index(other).id("1"), Map.class).source();
            var bulk = client.bulk(b -> {
                for (int i = 0; i < 250; i++) {
                    String id = "" + i;
                    b.operations(o -> o.index(x -> x.index(other).id(id).document(Map.of("title", "y " + id))));
                }
                return b.refresh(Refresh.True);
            });
            try (var ingester = BulkIngester.<Void>of(b -> b.client(client).maxOperations(100))) {
                for (int i = 0; i < 300; i++) {
                    String id = "h" + i;
                    ingester.add(o -> o.index(x -> x.index(other).id(id).document(Map.of("title", "z"))));
                }
            }
            client.indices().refresh(r -> r.index(other));
            var found = client.search(s -> s.index(index).query(text), Map.class).hits().hits();
            var several = client.msearch(m -> m
                    .searches(s -> s.header(h -> h.index(index)).body(b -> b.query(text)))
                    .searches(s -> s.header(h -> h.index(other)).body(b -> b.query(all))), Map.class).responses();
            var page = client.search(s -> s.index(other).query(all).size(300).scroll(MINUTE), Map.class);
            int scrolled = page.hits().hits().size();
            String scroll = page.scrollId();
            scrolled += client.scroll(s -> s.scrollId(scroll).scroll(MINUTE), Map.class).hits().hits().size();
            client.clearScroll(c -> c.scrollId(scroll));
            String pit = client.openPointInTime(p -> p.index(index).keepAlive(MINUTE)).id();
            long inPit = client.search(s -> s.pit(p -> p.id(pit)).query(text), Map.class).hits().total().value();
            client.closePointInTime(c -> c.id(pit));
            long count = client.count(c -> c.index(other)).count();
            client.indices().delete(d -> d.index(other));
            boolean exists = client.indices().exists(e -> e.index(other)).value();
            System.out.printf(
                    "{\"got\": \"%s\", \"errors\": %b, \"helped\": %d, \"first\": \"%s\", \"several\": [\"%s\", %d],"
                            + " \"scrolled\": %d, \"pit\": %d, \"count\": %d, \"exists\": %b}%n",
                    got, bulk.errors(), count - 250, found.get(0).id(), several.get(0).result().hits().hits().get(0).id(),
                    several.get(1).result().hits().total().value(), scrolled, inPit, count, exists);
        }
    }
}
