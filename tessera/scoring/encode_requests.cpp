#include "tessera/scoring/encode_requests.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"

namespace tessera::scoring {
namespace {

std::vector<int64_t> widened(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

void keep_last(std::vector<int64_t>& ids, int64_t count) {
  if (std::ssize(ids) > count) ids.erase(ids.begin(), ids.end() - count);
}

}  // namespace

RequestEncoder::RequestEncoder(const text::Tokenizer& tokenizer, int64_t max_length)
    : tokenizer_(tokenizer), max_length_(max_length) {
  const auto prefix = tokenizer.bos_id() ? tokenizer.bos_id() : tokenizer.eos_id();
  if (!prefix) {
    throw Error(ErrorKind::Model, "NO-PREFIX-TOKEN", "the tokenizer has neither a BOS nor an EOS token")
        .hint(
            "texts without a context are scored behind one of them; set bos_token in tokenizer_config.json");
  }
  prefix_ = *prefix;
  prefix_text_ = tokenizer.decode(std::vector<int32_t>{*prefix});
}

std::vector<int64_t> RequestEncoder::encode(const std::string& text) const {
  const bool has_prefix = text.starts_with(prefix_text_);
  return widened(tokenizer_.encode(text, {.add_special_tokens = !has_prefix}));
}

TokenRequest RequestEncoder::pair(const std::string& context, const std::string& continuation) const {
  const std::string head(strip_spaces(context, false, true));
  TokenRequest request;
  std::vector<int64_t> before;
  if (head.empty()) {
    request.ids = widened(tokenizer_.encode(context + continuation));
    if (request.ids.empty() || request.ids.front() != prefix_)
      request.ids.insert(request.ids.begin(), prefix_);
    before = {prefix_};
  } else {
    request.ids = encode(context + continuation);
    before = encode(head);
  }
  request.num_scored = std::ssize(request.ids) - std::ssize(before);
  // If a merge crosses the seam, the first tokens of the whole may differ from those of the context, which
  // then count nonetheless.
  if (request.num_scored > 0) std::ranges::copy(before, request.ids.begin());
  if (request.num_scored < 1 || request.num_scored > max_length_ || before.empty()) {
    throw Error(ErrorKind::Data, "TASK-CONTINUATION", "a continuation cannot be scored")
        .got(std::to_string(request.num_scored) + " tokens in '" + continuation.substr(0, 100) + "'")
        .need("1 to " + std::to_string(max_length_));
  }
  keep_last(request.ids, max_length_ + 1);
  return request;
}

std::vector<TokenRequest> RequestEncoder::windows(const std::string& text) const {
  std::vector<int64_t> ids = encode(text);
  ids.insert(ids.begin(), prefix_);
  std::vector<TokenRequest> windows;
  // ids[0] is no token of the text; ids[scored + 1] is the first that is not scored yet.
  const int64_t total = std::ssize(ids) - 1;
  for (int64_t scored = 0; scored < total;) {
    const int64_t count = std::min(max_length_, total - scored), end = scored + count + 1;
    // A last window that is shorter has as much context as fits.
    const int64_t begin = std::max<int64_t>(0, end - max_length_ - 1);
    windows.push_back({{ids.begin() + begin, ids.begin() + end}, count});
    scored += count;
  }
  return windows;
}

std::vector<int64_t> RequestEncoder::prompt(const std::string& text, int64_t max_new_tokens) const {
  const int64_t room = max_length_ - max_new_tokens;
  if (room < 1) {
    throw Error(ErrorKind::Config, "TASK-LENGTH", "the answers of a task leave no room for the prompt")
        .got("max_gen_toks " + std::to_string(max_new_tokens) + " of " + std::to_string(max_length_))
        .hint("set max_gen_toks in generation_kwargs of the task file");
  }
  std::vector<int64_t> ids = encode(text);
  if (ids.empty()) ids = {prefix_};
  keep_last(ids, room);
  return ids;
}

}  // namespace tessera::scoring
