// The part of a Generator that deals with pages of the cache: who has them, and who shares them.
#include <algorithm>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/generation/generate.h"

namespace tessera::generation {
namespace {

constexpr int64_t kPage = nn::KvCache::kPageTokens;

}  // namespace

// [Note: pages of requests] In a cache with a bound, a request starts when there are pages for its text and
// one more for each request that runs, itself included, which then have some steps before them. Nobody knows
// how long the answers will be. Before each decoding step, the youngest requests are put back until there are
// pages for all others: their sequences leave the cache, and they wait in front of all that have not started.
// They keep their tokens, and their texts are fed again. The oldest request that has started therefore always
// goes on, and ends: add() has refused any that is larger than the whole cache. If nothing runs, the next
// request always fits.
//
// A request that has not finished is in waiting_, in running_, in reading_, or in the local batch of the call
// that is giving it a token. The pages that those in reading_ are yet to take count as taken. A waiting
// request that begins like one of them waits for the pages of that one, if it would read them in parts
// itself, and younger requests may start before it.

int64_t Generator::num_tokens_besides() const {
  return model_.num_virtual_tokens() + (model_.config().is_encoder_decoder ? 1 : 0);
}

int64_t Generator::num_unread(const RunningRequest& request) const {
  const bool waits = request.sequence == RunningRequest::kNowhere;
  return size_to_read(request) - (waits ? std::ssize(known_pages(request)) * kPage : request.num_fed);
}

// [Note: shared pages] Products over several tokens round differently for other numbers of tokens. So a
// request that finds pages may get other last digits than one that reads all of its prompt, as it may in
// another group of prompts. Where results must have the same bits (max_prefill_tokens 1), all prompts are
// read alone and in parts of one size from their beginnings on: the pages of a whole part hold the same bits
// for every prompt that begins with them. Then pages are shared in such parts alone, and never those of
// answers, whose tokens were fed one by one.

std::span<const nn::PageKey> Generator::sharable_pages(const RunningRequest& request) const {
  if (!shares(request)) return {};
  // The last token must be fed, for the logits after it.
  const int64_t tokens = (size_to_read(request) - 1) / share_unit_ * share_unit_;
  return std::span(request.keys).first(static_cast<size_t>(tokens / kPage));
}

std::span<const nn::PageKey> Generator::known_pages(const RunningRequest& request) const {
  const auto keys = sharable_pages(request);
  if (keys.empty()) return keys;
  const int64_t unit = share_unit_ / kPage;
  return keys.first(static_cast<size_t>(cache_.count_known(keys) / unit * unit));
}

bool Generator::will_share(std::span<const RunningRequest> requests, const RunningRequest& next) const {
  const size_t first = known_pages(next).size();
  if (first == sharable_pages(next).size()) return false;
  return std::ranges::any_of(requests, [&](const RunningRequest& other) {
    return shares(other) && first < other.keys.size() && other.keys[first] == next.keys[first];
  });
}

void Generator::give_keys(RunningRequest& request) {
  if (!shares(request)) return;
  request.add_keys();
  const int64_t end = replays_ ? std::min(request.num_fed, request.prompt_size() / share_unit_ * share_unit_)
                               : request.num_fed;
  for (int64_t& next = request.num_given_keys; (next + 1) * kPage <= end; ++next)
    cache_.set_key(request.sequence, next, request.keys[static_cast<size_t>(next)]);
}

int64_t Generator::pages_to_read(std::span<const RunningRequest> requests) const {
  int64_t pages = 0;
  for (const RunningRequest& request : requests) {
    const int64_t before = request.num_fed == 0 ? num_tokens_besides() : 0;
    pages += cache_.missing_pages(request.sequence,
                                  cache_.length(request.sequence) + before + num_unread(request));
  }
  return pages;
}

std::deque<RunningRequest>::const_iterator Generator::next_waiting() const {
  if (reading_.empty()) return waiting_.begin();
  return std::ranges::find_if(
      waiting_, [&](const RunningRequest& each) { return !is_long(each) || !will_share(reading_, each); });
}

bool Generator::has_room(const Group& group) const {
  const auto found = next_waiting();
  if (found == waiting_.end() || num_running() + std::ssize(group.members) >= options_.max_batch)
    return false;
  const int64_t most = cache_.options().max_pages;
  if (most == 0) return true;
  const int64_t left = most - cache_.used_pages() - pages_to_read(reading_) - pages_to_read(group.members);
  const RunningRequest& next = *found;
  const int64_t before = num_tokens_besides();
  const auto known = known_pages(next);
  const int64_t pages = cache_.most_pages(before + next.prompt_size(), before + next.text_size()) -
                        std::ssize(known) + cache_.count_idle(known);
  const int64_t others = num_running() + std::ssize(group.members);
  return pages + (others > 0 ? others + 1 : 0) <= left;
}

RunningRequest Generator::take_waiting() {
  const auto next = waiting_.begin() + (next_waiting() - waiting_.cbegin());
  RunningRequest request = std::move(*next);
  waiting_.erase(next);
  const auto known = known_pages(request);
  request.sequence = cache_.add();
  if (!known.empty()) cache_.share(request.sequence, known);
  request.num_given_keys = std::ssize(known);
  request.num_fed = request.num_given_keys * kPage;
  if (!std::exchange(request.has_started, true) && shares(request)) {
    request.result.cached_tokens = request.num_fed;
    counts_.looked_up_tokens += request.prompt_size();
    counts_.found_tokens += request.num_fed;
  }
  return request;
}

int64_t Generator::pages_of_step() const {
  int64_t pages = pages_to_read(reading_);
  for (const RunningRequest& running : running_)
    pages += cache_.missing_pages(running.sequence, cache_.length(running.sequence) + 1);
  return pages;
}

void Generator::make_room_for_step() {
  const int64_t most = cache_.options().max_pages;
  if (most == 0) return;
  const auto take_youngest = [&](std::vector<RunningRequest>& from) {
    const auto youngest = std::ranges::max_element(from, {}, &RunningRequest::request);
    put_back(std::move(*youngest));
    from.erase(youngest);
  };
  const auto age = [](const std::vector<RunningRequest>& of) {
    int64_t youngest = -1;
    for (const RunningRequest& each : of) youngest = std::max(youngest, each.request);
    return youngest;
  };
  while (pages_of_step() > most - cache_.used_pages()) {
    TESSERA_ASSERT(num_running() > 0, "a request that runs alone fits in the cache");
    take_youngest(age(reading_) > age(running_) ? reading_ : running_);
  }
}

void Generator::put_back(RunningRequest request) {
  cache_.free(request.sequence);
  request.sequence = RunningRequest::kNowhere;
  request.num_fed = 0;
  request.of_prompt.clear();
  if (shares(request)) request.add_keys();
  waiting_.push_front(std::move(request));
  ++counts_.preemptions;
}

std::string why_no_shared_pages(const models::CausalLM& model) {
  if (model.keeps_states())
    return "layers of the model keep a state of all tokens so far in place of keys and values";
  if (model.cache_options().window > 0)
    return "all layers of the model look back over a window alone, and their cache drops what is before it";
  if (model.config().is_encoder_decoder) return "the model reads its source as a whole";
  if (model.num_virtual_tokens() > 0) return "the adapter puts virtual tokens before each prompt";
  return "";
}

int64_t Generator::share_unit(const models::CausalLM& model, const GeneratorOptions& options) {
  if (!options.shares_pages || options.max_cache_tokens == 0 || !why_no_shared_pages(model).empty()) return 0;
  if (options.max_prefill_tokens > 1) return kPage;
  return options.max_part_tokens % kPage == 0 ? options.max_part_tokens : 0;
}

}  // namespace tessera::generation
