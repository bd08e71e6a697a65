#include "tessera/data/prepared_rows.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/config/load_recipe.h"
#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/version.h"
#include "tessera/data/file_identity.h"
#include "tessera/data/prompts/classification.h"
#include "tessera/data/prompts/masked_lm.h"
#include "tessera/data/prompts/seq2seq.h"
#include "tessera/io/file.h"
#include "tessera/io/leftovers.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::data {
namespace {

// Raise it when the same records make other rows.
constexpr int64_t kVersion = 7;
constexpr int64_t kSecondsPerDay = 86400;
// Name of the note that holds the number of chunks, once all have been made.
constexpr const char* kComplete = "complete";
constexpr auto kPause = std::chrono::milliseconds(20);

// Removes the temporaries that a killed process has left of a chunk. Requires its claim, under which nobody
// else writes the chunk.
void remove_leftovers(const std::string& chunk_path) {
  for (const std::string& temporary : io::temporaries_of(chunk_path)) io::remove_file(temporary);
}

std::string template_of(const config::DatasetConfig& dataset, const PromptContext& context) {
  if (!uses_chat_template(dataset)) return "";
  if (dataset.chat_template.empty() && dataset.chat_template_jinja.empty())
    return context.chat_template != nullptr ? context.chat_template->all_sources() : "";
  return text::select_chat_template(dataset.chat_template, dataset.chat_template_jinja,
                                    context.config.source_folder, *context.tokenizer)
      ->all_sources();
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
  shaping.datasets[0].weight = 1.0;
  shaping.datasets[0].weight_from_step.clear();
  shaping.sequence_len = config.sequence_len;
  shaping.excess_length_strategy = config.excess_length_strategy;
  shaping.min_sample_len = config.min_sample_len;
  shaping.train_on_inputs = config.train_on_inputs;
  shaping.answer_border = config.answer_border;
  shaping.on_bad_line = config.on_bad_line;
  shaping.eot_tokens = config.eot_tokens;
  shaping.chat_template_kwargs = config.chat_template_kwargs;
  shaping.rl = config.rl;
  // The name consists of two hashes: one of what shapes the rows, one of the files' contents.
  ContentHash made_of, contents;
  made_of.add(program_version());
  made_of.add(std::to_string(kVersion) + ' ' + std::to_string(context.vocab_size));
  const std::string chat_template = template_of(dataset, context);
  for (const std::string& text : {config::dump_recipe(shaping), chat_template, tokenizer_fingerprint})
    made_of.add(text);
  if (context.classification != nullptr) {
    const ClassificationRows& rows = *context.classification;
    made_of.add(std::string(problem_type_name(rows.classes.problem)) +
                (rows.reads_first ? " first " : " last ") + std::to_string(rows.pad_token_id.value_or(-1)));
    if (rows.of_pairs) made_of.add("pairs");
    if (rows.classes.of_tokens()) made_of.add(rows.labels_all_tokens ? "all tokens" : "first tokens");
    for (const std::string& label : rows.classes.labels) made_of.add(label);
  }
  if (context.seq2seq != nullptr)
    made_of.add("seq2seq " + std::to_string(context.seq2seq->decoder_start_token_id));
  if (context.masked != nullptr) {
    made_of.add(std::string("masked_lm ") + (context.masked->whole_words ? "words " : "tokens ") +
                std::to_string(context.masked->most_tokens.value_or(0)));
  }
  if (context.now && chat_template.find("strftime_now") != std::string::npos)
    made_of.add("day " + std::to_string(*context.now / kSecondsPerDay));
  for (const DatasetFile& file : files) {
    made_of.add(std::to_string(static_cast<int>(file.format)));
    contents.add(std::to_string(content_hash(file.path, config.dataset_prepared_path)));
  }
  char name[40];
  std::snprintf(name, sizeof name, "%016lx%016lx", static_cast<unsigned long>(made_of.value()),
                static_cast<unsigned long>(contents.value()));
  return name;
}

PreparedRows::PreparedRows(const std::string& folder, const std::string& key)
    : path_(io::join_path(folder, key)) {
  io::make_directories(path_);
  const std::string path = io::join_path(path_, "lock");
  lock_file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_file_ < 0) throw io::storage_error(errno, "cannot open", path);
}

PreparedRows::~PreparedRows() { ::close(lock_file_); }

std::string PreparedRows::chunk_path(int64_t chunk) const {
  char name[32];
  std::snprintf(name, sizeof name, "%06lld.rows", static_cast<long long>(chunk));
  return io::join_path(path_, name);
}

std::optional<std::vector<std::shared_ptr<const RowFile>>> PreparedRows::load() const {
  const std::string note = io::join_path(path_, kComplete);
  if (!io::exists(note)) return std::nullopt;
  const std::string text = io::read_file(note, 64);
  int64_t num_chunks = 0;
  const char* const end = text.data() + text.size();
  bool is_sound = std::from_chars(text.data(), end, num_chunks).ptr == end && num_chunks > 0;
  std::vector<std::shared_ptr<const RowFile>> files;
  for (int64_t chunk = 0; is_sound && chunk < num_chunks; ++chunk) {
    files.push_back(RowFile::open(chunk_path(chunk)));
    is_sound = files.back() != nullptr;
  }
  if (is_sound) return files;
  log::warn(path_ + ": these prepared rows are damaged and are prepared again");
  // Only the note goes: claim() finds and removes the damaged chunk.
  io::remove_file(note);
  return std::nullopt;
}

// Locks or unlocks a chunk, for which one byte of the lock file stands. Returns false if another process or
// object holds the lock. Such locks (F_OFD_SETLK) belong to the opened file, and so also keep threads apart;
// they end with the process.
bool PreparedRows::lock(int64_t chunk, bool takes) const {
  struct flock range = {};
  range.l_type = takes ? F_WRLCK : F_UNLCK;
  range.l_whence = SEEK_SET;
  range.l_start = chunk;
  range.l_len = 1;
  while (::fcntl(lock_file_, F_OFD_SETLK, &range) != 0) {
    if (errno == EACCES || errno == EAGAIN) return false;
    if (errno != EINTR) throw io::storage_error(errno, "cannot lock", io::join_path(path_, "lock"));
  }
  return true;
}

bool PreparedRows::is_made(int64_t chunk) const { return io::exists(chunk_path(chunk)); }

bool PreparedRows::claim(int64_t chunk) {
  if (is_made(chunk) && RowFile::open(chunk_path(chunk))) return false;
  if (!lock(chunk, true)) return false;
  // Another process may have made the chunk between the look at it and the lock. A damaged chunk that is
  // still there under the lock is nobody's work: it is removed and made again.
  if (!is_made(chunk) || !RowFile::open(chunk_path(chunk))) {
    io::remove_file(chunk_path(chunk));
    remove_leftovers(chunk_path(chunk));
    return true;
  }
  give_back(chunk);
  return false;
}

void PreparedRows::give_back(int64_t chunk) { lock(chunk, false); }

bool PreparedRows::wait_for(int64_t num_chunks) {
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    while (!is_made(chunk)) {
      // A chunk that can be locked is being made by nobody. Its maker may have ended just before, so it is
      // looked for once more.
      if (lock(chunk, true)) {
        give_back(chunk);
        if (!is_made(chunk)) return false;
      }
      std::this_thread::sleep_for(kPause);
    }
  }
  io::write_file_atomic(io::join_path(path_, kComplete), std::to_string(num_chunks));
  return true;
}

}  // namespace tessera::data
