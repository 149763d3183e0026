import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.LowerCaseFilter;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.Tokenizer;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.en.PorterStemFilter;
import org.apache.lucene.analysis.miscellaneous.RemoveDuplicatesTokenFilter;
import org.apache.lucene.analysis.pattern.PatternCaptureGroupTokenFilter;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.index.IndexSettings;
import org.elasticsearch.index.analysis.AnalyzerProvider;
import org.elasticsearch.index.analysis.AnalyzerScope;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.index.analysis.TokenizerFactory;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.Plugin;

/**
 * Registers what the bare Elasticsearch distribution lacks although its Lucene has it: the {@code english} analyzer, and
 * the analysis parts without which the security index, and so API keys and users, cannot be made. 7.17, 8.x and 9.x.
 */
public class LiteAnalysisPlugin extends Plugin implements AnalysisPlugin {

  /** Lucene moved this tokenizer between the versions in use: the first place is that of 8.x and later. */
  private static final List<String> EMAIL_TOKENIZERS =
      List.of(
          "org.apache.lucene.analysis.email.UAX29URLEmailTokenizer",
          "org.apache.lucene.analysis.standard.UAX29URLEmailTokenizer");

  @Override
  public Map<String, AnalysisProvider<AnalyzerProvider<? extends Analyzer>>> getAnalyzers() {
    return Map.of("english", (index, environment, name, settings) -> new English(name));
  }

  @Override
  public Map<String, AnalysisProvider<TokenizerFactory>> getTokenizers() {
    return Map.of(
        "uax_url_email",
        (index, environment, name, settings) ->
            TokenizerFactory.newFactory(name, LiteAnalysisPlugin::emailTokenizer));
  }

  @Override
  public Map<String, AnalysisProvider<TokenFilterFactory>> getTokenFilters() {
    Map<String, AnalysisProvider<TokenFilterFactory>> filters = new HashMap<>();
    filters.put("lowercase", (index, environment, name, settings) -> filter(name, LowerCaseFilter::new));
    filters.put("porter_stem", (index, environment, name, settings) -> filter(name, PorterStemFilter::new));
    filters.put("unique", (index, environment, name, settings) -> filter(name, RemoveDuplicatesTokenFilter::new));
    filters.put("pattern_capture", new PatternCapture());
    return filters;
  }

  private static TokenFilterFactory filter(String name, UnaryOperator<TokenStream> wrap) {
    return new TokenFilterFactory() {
      @Override
      public String name() {
        return name;
      }

      @Override
      public TokenStream create(TokenStream stream) {
        return wrap.apply(stream);
      }
    };
  }

  private static Tokenizer emailTokenizer() {
    for (String name : EMAIL_TOKENIZERS) {
      try {
        return (Tokenizer) Class.forName(name).getConstructor().newInstance();
      } catch (ClassNotFoundException elsewhere) {
        continue;
      } catch (ReflectiveOperationException problem) {
        throw new IllegalStateException(name, problem);
      }
    }
    throw new IllegalStateException("no tokenizer for e-mail addresses in this version of Lucene");
  }

  private static final class English implements AnalyzerProvider<Analyzer> {
    private final String name;
    private final Analyzer analyzer = new EnglishAnalyzer();

    English(String name) {
      this.name = name;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public AnalyzerScope scope() {
      return AnalyzerScope.GLOBAL;
    }

    @Override
    public Analyzer get() {
      return analyzer;
    }
  }

  /** Not a lambda: it makes no sense without settings, and the engine must be told so. */
  private static final class PatternCapture implements AnalysisProvider<TokenFilterFactory> {
    @Override
    public TokenFilterFactory get(IndexSettings index, Environment environment, String name, Settings settings) {
      Pattern[] patterns = settings.getAsList("patterns").stream().map(Pattern::compile).toArray(Pattern[]::new);
      boolean keepOriginal = settings.getAsBoolean("preserve_original", true);
      return filter(name, stream -> new PatternCaptureGroupTokenFilter(stream, keepOriginal, patterns));
    }

    @Override
    public boolean requiresAnalysisSettings() {
      return true;
    }
  }
}
