// The verb `tessera bench tokenize`.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/median.h"
#include "tessera/core/process_stats.h"
#include "tessera/io/file.h"
#include "tessera/models/common/base_model.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

struct Options {
  std::string model, file;
  int64_t passes = 3;
  bool as_json = false;
};

struct Pass {
  int64_t num_ids = 0;
  uint64_t digest = 14695981039346656037ULL;  // FNV-1a hash, each id as one symbol
  double seconds = 0.0;
};

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (!line.empty()) lines.push_back(line);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return lines;
}

Pass encode_lines(const text::Tokenizer& tokenizer, const std::vector<std::string_view>& lines) {
  Pass pass;
  const Timer timer;
  for (const std::string_view line : lines) {
    for (const int32_t id : tokenizer.encode(line)) {
      pass.digest = (pass.digest ^ static_cast<uint64_t>(id)) * 1099511628211ULL;
      ++pass.num_ids;
    }
  }
  pass.seconds = timer.seconds();
  return pass;
}

int run_bench_tokenize(const Options& options) {
  const text::Tokenizer tokenizer = models::BaseModel::tokenizer(options.model);
  const std::string text = io::read_file(options.file, kMaxTextBytes);
  const std::vector<std::string_view> lines = lines_of(text);
  if (lines.empty()) throw Error(ErrorKind::Data, "EMPTY", "nothing to tokenise").at(options.file);
  size_t num_bytes = 0;
  for (const std::string_view line : lines) num_bytes += line.size();

  // The first pass is reported by itself: a data set is tokenised only once, and later passes find its words
  // in the tokenizer's cache.
  Pass pass = encode_lines(tokenizer, lines);
  const double first = 1e-6 * static_cast<double>(num_bytes) / pass.seconds;
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.passes; ++i) {
    pass = encode_lines(tokenizer, lines);
    seconds.push_back(pass.seconds);
  }
  const double middle = median(seconds);
  const auto [fastest, slowest] = std::minmax_element(seconds.begin(), seconds.end());
  const double mb_per_s = 1e-6 * static_cast<double>(num_bytes) / middle;
  if (options.as_json) {
    std::printf("%s\n", nlohmann::ordered_json({{"mb_per_s", mb_per_s},
                                                {"first_mb_per_s", first},
                                                {"seconds_median", middle},
                                                {"seconds_min", *fastest},
                                                {"seconds_max", *slowest},
                                                {"bytes", num_bytes},
                                                {"lines", lines.size()},
                                                {"num_ids", pass.num_ids},
                                                {"digest", pass.digest},
                                                {"peak_rss_bytes", peak_rss_bytes()}})
                            .dump()
                            .c_str());
  } else {
    std::printf("MB/s (one thread)   %.2f\n", mb_per_s);
    std::printf("the first pass      %.2f MB/s\n", first);
    std::printf("pass (median)       %.3f s   (min %.3f, max %.3f)\n", middle, *fastest, *slowest);
    std::printf("text                %zu lines, %zu bytes, %lld ids\n", lines.size(), num_bytes,
                static_cast<long long>(pass.num_ids));
  }
  return 0;
}

}  // namespace

void add_bench_tokenize(CLI::App& bench, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = bench.add_subcommand("tokenize", "Tokenise the lines of a text on one thread");
  line.add_model(*verb, "--model", options->model, "A folder with a tokenizer.json, or a GGUF file")
      ->required();
  verb->add_option("--file", options->file, "A UTF-8 text file; its lines are encoded one by one")
      ->required()
      ->check(CLI::ExistingFile);
  verb->add_option("--passes", options->passes,
                   "Passes over the text to measure, after a first one that is reported separately")
      ->check(CLI::Range(1, 1000));
  verb->add_flag("--json", options->as_json, "Print one JSON object as the last line");
  line.set_action(*verb, [options] { return run_bench_tokenize(*options); });
}

}  // namespace tessera::cli
