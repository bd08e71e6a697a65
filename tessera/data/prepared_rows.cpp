#include "tessera/data/prepared_rows.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tessera/config/load_recipe.h"
#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::data {
namespace {

// Raise it when the same records make other rows, or when the file changes.
constexpr int64_t kVersion = 4;
constexpr int64_t kSecondsPerDay = 86400;
constexpr char kMagic[8] = {'T', 'E', 'S', 'S', 'R', 'O', 'W', 'S'};

constexpr int64_t DatasetStats::*kCounts[] = {
    &DatasetStats::records,       &DatasetStats::blank_lines,        &DatasetStats::rows,
    &DatasetStats::tokens,        &DatasetStats::label_tokens,       &DatasetStats::end_labels,
    &DatasetStats::longest,       &DatasetStats::untrained_ends,     &DatasetStats::repeated_ends,
    &DatasetStats::dropped_long,  &DatasetStats::truncated,          &DatasetStats::cut_tokens,
    &DatasetStats::dropped_short, &DatasetStats::dropped_unlabelled, &DatasetStats::control_texts,
};
constexpr size_t kNumCounts = std::size(kCounts);

// The file: this, then a length and a number of label runs for each row, the runs, the tokens, and the hash
// of all before it.
struct Header {
  char magic[8];
  int64_t version, num_rows, num_runs, num_tokens;
  int64_t counts[kNumCounts];
};
struct RowSize {
  int32_t length, num_runs;
};

uint64_t hash_of(std::string_view bytes) {
  ContentHash hash;
  hash.add(bytes);
  return hash.value();
}

template <class T>
void append(std::string& bytes, const T* values, size_t count) {
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

template <class T>
std::vector<T> take(std::string_view& bytes, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  bytes.remove_prefix(values.size() * sizeof(T));
  return values;
}

// Empty where the bytes are not those that save() wrote.
std::optional<DatasetStats> parse(std::string_view bytes, int64_t vocab_size, RowStore& store) {
  Header header;
  uint64_t hash = 0;
  if (bytes.size() < sizeof header + sizeof hash) return std::nullopt;
  std::memcpy(&hash, bytes.data() + bytes.size() - sizeof hash, sizeof hash);
  bytes.remove_suffix(sizeof hash);
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto size = static_cast<int64_t>(bytes.size());
  const bool is_ours = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.version == kVersion;
  for (const int64_t count : {header.num_rows, header.num_runs, header.num_tokens}) {
    if (!is_ours || count < 0 || count > size) return std::nullopt;
  }
  const int64_t expected =
      static_cast<int64_t>(sizeof header + header.num_rows * sizeof(RowSize) +
                           header.num_runs * sizeof(LabelRun) + header.num_tokens * sizeof(int32_t));
  if (size != expected || hash_of(bytes) != hash) return std::nullopt;

  bytes.remove_prefix(sizeof header);
  const auto rows = take<RowSize>(bytes, header.num_rows);
  const auto runs = take<LabelRun>(bytes, header.num_runs);
  const auto tokens = take<int32_t>(bytes, header.num_tokens);
  const auto is_id = [&](int32_t id) { return id >= 0 && id < vocab_size; };
  if (!std::all_of(tokens.begin(), tokens.end(), is_id)) return std::nullopt;
  RowStore read;
  size_t token = 0, run = 0;
  std::vector<int32_t> labels;
  for (const RowSize& row : rows) {
    const auto length = static_cast<size_t>(row.length), num_runs = static_cast<size_t>(row.num_runs);
    if (row.length < 1 || length > tokens.size() - token || row.num_runs < 0 ||
        num_runs > runs.size() - run) {
      return std::nullopt;
    }
    labels.assign(length, static_cast<int32_t>(kIgnoreLabel));
    for (size_t i = 0; i < num_runs; ++i, ++run) {
      if (runs[run].begin < 0 || runs[run].end > row.length || runs[run].begin >= runs[run].end)
        return std::nullopt;
      std::copy(tokens.begin() + static_cast<ptrdiff_t>(token) + runs[run].begin,
                tokens.begin() + static_cast<ptrdiff_t>(token) + runs[run].end,
                labels.begin() + runs[run].begin);
    }
    read.append(std::span(tokens).subspan(token, length), labels);
    token += length;
  }
  if (token != tokens.size() || run != runs.size()) return std::nullopt;
  for (int64_t row = 0; row < read.size(); ++row) store.append(read.row(row));
  DatasetStats stats;
  for (size_t i = 0; i < kNumCounts; ++i) stats.*kCounts[i] = header.counts[i];
  return stats;
}

void hash_file(ContentHash& hash, const std::string& path) {
  constexpr int64_t kBlock = int64_t{4} << 20;
  const io::File file = io::File::open(path);
  std::string block;
  for (int64_t offset = 0; offset < file.size(); offset += kBlock) {
    block.resize(static_cast<size_t>(std::min(kBlock, file.size() - offset)));
    file.read_at(offset, block.data(), static_cast<int64_t>(block.size()));
    hash.add(block);
  }
}

std::string template_of(const config::DatasetConfig& dataset, const PromptContext& context) {
  if (!uses_chat_template(dataset)) return "";
  if (dataset.chat_template.empty() && dataset.chat_template_jinja.empty())
    return context.chat_template != nullptr ? context.chat_template->source() : "";
  return text::select_chat_template(dataset.chat_template, dataset.chat_template_jinja,
                                    context.config.source_folder, *context.tokenizer)
      ->source();
}

}  // namespace

std::string prepared_key(const config::DatasetConfig& dataset, const std::vector<DatasetFile>& files,
                         const PromptContext& context, const std::string& tokenizer_fingerprint) {
  const config::DataConfig& config = context.config;
  config::Recipe shaping;
  shaping.datasets = {dataset};
  shaping.datasets[0].path = "files";
  shaping.datasets[0].data_files.clear();
  shaping.datasets[0].name.clear();
  shaping.datasets[0].revision.clear();
  shaping.sequence_len = config.sequence_len;
  shaping.excess_length_strategy = config.excess_length_strategy;
  shaping.min_sample_len = config.min_sample_len;
  shaping.train_on_inputs = config.train_on_inputs;
  shaping.on_bad_line = config.on_bad_line;
  shaping.eot_tokens = config.eot_tokens;
  shaping.chat_template_kwargs = config.chat_template_kwargs;
  shaping.rl = config.rl;
  // Two streams: what differs has to agree in both to be taken for the same.
  ContentHash made_of, contents;
  made_of.add(TESSERA_VERSION);
  made_of.add(std::to_string(kVersion) + ' ' + std::to_string(context.vocab_size));
  const std::string chat_template = template_of(dataset, context);
  for (const std::string& text : {config::dump_recipe(shaping), chat_template, tokenizer_fingerprint})
    made_of.add(text);
  if (context.now && chat_template.find("strftime_now") != std::string::npos)
    made_of.add("day " + std::to_string(*context.now / kSecondsPerDay));
  for (const DatasetFile& file : files) {
    made_of.add(std::to_string(static_cast<int>(file.format)));
    contents.add("file");
    hash_file(contents, file.path);
  }
  char name[40];
  std::snprintf(name, sizeof name, "%016lx%016lx", static_cast<unsigned long>(made_of.value()),
                static_cast<unsigned long>(contents.value()));
  return name;
}

std::string PreparedRows::path_of(const std::string& key) const {
  return io::join_path(folder_, key + ".rows");
}

std::optional<DatasetStats> PreparedRows::load(const std::string& key, int64_t vocab_size,
                                               RowStore& store) const {
  const std::string path = path_of(key);
  if (!io::exists(path)) return std::nullopt;
  try {
    const io::File file = io::File::open(path);
    std::string bytes(static_cast<size_t>(file.size()), '\0');
    file.read_at(0, bytes.data(), file.size());
    if (auto stats = parse(bytes, vocab_size, store)) return stats;
    log::warn(path + ": these prepared rows are damaged; they are made again");
    io::remove_file(path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Storage) throw;
    log::warn(std::string("prepared rows cannot be used: ") + error.what());
  }
  return std::nullopt;
}

void PreparedRows::save(const std::string& key, const RowStore& store, int64_t first_row,
                        const DatasetStats& stats) const {
  const std::string path = path_of(key);
  if (io::exists(path)) return;
  Header header = {{}, kVersion, store.size() - first_row, 0, 0, {}};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::string sizes, runs, tokens;
  for (int64_t row = first_row; row < store.size(); ++row) {
    const auto ids = store.tokens(row);
    const auto labels = store.label_runs(row);
    const RowSize size = {static_cast<int32_t>(ids.size()), static_cast<int32_t>(labels.size())};
    append(sizes, &size, 1);
    append(runs, labels.data(), labels.size());
    append(tokens, ids.data(), ids.size());
    header.num_runs += size.num_runs;
    header.num_tokens += size.length;
  }
  for (size_t i = 0; i < kNumCounts; ++i) header.counts[i] = stats.*kCounts[i];
  std::string bytes;
  bytes.reserve(sizeof header + sizes.size() + runs.size() + tokens.size() + sizeof(uint64_t));
  append(bytes, &header, 1);
  bytes.append(sizes).append(runs).append(tokens);
  const uint64_t hash = hash_of(bytes);
  append(bytes, &hash, 1);
  try {
    io::make_directories(folder_);
    io::write_file_atomic(path, bytes);
  } catch (const Error& error) {
    log::warn(std::string("prepared rows cannot be kept, training goes on: ") + error.what());
  }
}

}  // namespace tessera::data
