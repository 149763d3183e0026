import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.opensearch.Version;
import org.opensearch.cluster.service.ClusterService;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.PluginInfo;

/**
 * An OpenSearch node built from jars on the class path, of line 2.x or 3.x.
 *
 * <p>Usage: {@code java -cp "lib/*" OsNode.java HOME setting=value ... PluginClass ...}; a value with commas is a list.
 * Building the node here, instead of through the distribution's own main class, leaves out the security manager (2.x),
 * the Java agent (3.x) and the bootstrap checks, none of which can be had from jars alone.
 */
public class OsNode {

  /** 2.x takes plugin classes, 3.x plugin descriptions; the raw type compiles against both. */
  private static final class LocalNode extends Node {
    @SuppressWarnings({"unchecked", "rawtypes"})
    LocalNode(Environment environment, Collection plugins) {
      super(environment, plugins, true);
    }

    @Override
    protected void configureNodeAndClusterIdStateListener(ClusterService clusterService) {
      // would write the node's name into log patterns that do not exist here
    }
  }

  public static void main(String[] arguments) throws Exception {
    Path home = Path.of(arguments[0]).toAbsolutePath();
    for (String folder : List.of("config", "modules", "plugins")) {
      Files.createDirectories(home.resolve(folder));
    }
    Settings.Builder settings = Settings.builder().put("path.home", home.toString());
    List<Object> plugins = new ArrayList<>();
    for (String argument : List.of(arguments).subList(1, arguments.length)) {
      int equals = argument.indexOf('=');
      if (equals < 0) {
        plugins.add(plugin(argument));
      } else {
        set(settings, argument.substring(0, equals), argument.substring(equals + 1));
      }
    }
    Environment environment =
        InternalSettingsPreparer.prepareEnvironment(
            settings.build(), Map.of(), home.resolve("config"), () -> home.getFileName().toString());
    Node node = new LocalNode(environment, plugins);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
    node.start();
    Thread.currentThread().join();
  }

  private static Object plugin(String name) throws ClassNotFoundException {
    if (Version.CURRENT.major < 3) {
      return Class.forName(name);
    }
    return new PluginInfo(name, "from the class path", "NA", Version.CURRENT, "21", name, null, List.of(), false);
  }

  private static void set(Settings.Builder settings, String key, String value) {
    if (value.contains(",")) {
      settings.putList(key, value.split(","));
    } else {
      settings.put(key, value);
    }
  }

  private static void close(Node node) {
    try {
      node.close();
    } catch (Exception problem) {
      problem.printStackTrace();
    }
  }
}
