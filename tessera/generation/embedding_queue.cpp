#include "tessera/generation/embedding_queue.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"

namespace tessera::generation {

using serving::EndReason;

std::vector<EmbeddingQueue::Next> EmbeddingQueue::next_texts() {
  std::vector<Next> texts;
  int64_t tokens = 0;
  for (Open& open : open_) {
    // One pass is of one adapter.
    if (!texts.empty() && texts.front().open->request.adapter != open.request.adapter) return texts;
    for (size_t text = open.next; text < open.request.texts.size(); ++text) {
      tokens += std::ssize(open.request.texts[text]);
      if (!texts.empty() && tokens > max_tokens_) return texts;
      texts.push_back({&open, text});
    }
  }
  return texts;
}

void EmbeddingQueue::make(const std::vector<Next>& texts) {
  std::vector<std::vector<int64_t>> ids;
  for (const Next& each : texts) ids.push_back(each.open->request.texts[each.text]);
  const int64_t adapter = texts.front().open->request.adapter;
  if (on_pass_) on_pass_(ids, adapter);
  at::Tensor made = embed_texts(model_, ids, pooling_, adapter);
  made = made.to(made.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  if (!at::isfinite(made).all().item<bool>())
    throw Error(ErrorKind::Numerics, "EMBEDDING", "an embedding of the model is not finite");
  const at::Tensor lengths = made.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12);
  const auto on_host = [](const at::Tensor& x) {
    return x.to(at::TensorOptions(kHost).dtype(at::kFloat)).contiguous();
  };
  const at::Tensor plain = on_host(made), normed = on_host(made / lengths);
  for (size_t i = 0; i < texts.size(); ++i) {
    Open& open = *texts[i].open;
    const auto row = (open.request.normalizes ? normed : plain)[static_cast<int64_t>(i)];
    const auto values = host_span<const float>(row);
    open.request.receiver->embedding({values.begin(), values.end()});
    ++open.next;
    num_tokens_ += std::ssize(ids[i]);
  }
}

int64_t EmbeddingQueue::step() {
  const std::vector<Next> texts = next_texts();
  std::string problem;
  try {
    if (!texts.empty()) make(texts);
  } catch (const std::exception& error) {
    problem = first_line(error.what());
    log::warn("embeddings have failed: " + problem);
  }
  return static_cast<int64_t>(std::erase_if(open_, [&](const Open& open) {
    const bool has_failed =
        !problem.empty() && std::ranges::any_of(texts, [&](const Next& each) { return each.open == &open; });
    if (!has_failed && open.next < open.request.texts.size()) return false;
    open.request.receiver->end(has_failed ? EndReason::Failed : EndReason::Stop, has_failed ? problem : "");
    return true;
  }));
}

bool EmbeddingQueue::cancel(int64_t number) {
  return std::erase_if(open_, [number](const Open& open) {
           if (open.number == number) open.request.receiver->end(EndReason::Cancelled, "");
           return open.number == number;
         }) > 0;
}

void EmbeddingQueue::cancel_all() {
  for (const Open& open : open_) open.request.receiver->end(EndReason::Cancelled, "");
  open_.clear();
}

}  // namespace tessera::generation
