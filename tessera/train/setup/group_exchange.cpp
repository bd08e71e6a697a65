#include "tessera/train/setup/group_exchange.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

#include <ATen/ATen.h>

#include "tessera/device/host_memory.h"

namespace tessera::train {
namespace {

constexpr const char* kSizes = "sizes of streamed rows";
constexpr const char* kRows = "streamed rows";

template <class Options>
Options with_hint(const char* hint) {
  Options options;
  options.hint = hint;
  return options;
}

std::vector<int64_t> to_counts(const at::Tensor& sizes) {
  const auto counts = host_span<const int64_t>(sizes);
  return {counts.begin(), counts.end()};
}

// Joins the texts, one behind the other.
at::Tensor to_bytes(const std::vector<std::string>& texts) {
  int64_t size = 0;
  for (const std::string& text : texts) size += std::ssize(text);
  const at::Tensor bytes = at::empty({size}, on_host(at::kByte));
  auto next = host_span<char>(bytes).begin();
  for (const std::string& text : texts) next = std::ranges::copy(text, next).out;
  return bytes;
}

// Cuts bytes into texts of these lengths.
std::vector<std::string> to_texts(const at::Tensor& bytes, const std::vector<int64_t>& counts) {
  const auto all = host_span<const char>(bytes);
  std::vector<std::string> texts;
  size_t begin = 0;
  for (const int64_t count : counts) {
    const auto part = all.subspan(begin, static_cast<size_t>(count));
    texts.emplace_back(part.begin(), part.end());
    begin += part.size();
  }
  return texts;
}

}  // namespace

std::vector<std::string> GroupExchange::all_gather(const std::string& bytes) {
  const at::Tensor own_size = at::tensor({static_cast<int64_t>(bytes.size())}, on_host(at::kLong));
  const at::Tensor sizes = at::empty({group_->size()}, own_size.options());
  group_->all_gather_single(sizes, own_size, false, with_hint<comm::AllGatherOptions>(kSizes));
  const std::vector<int64_t> counts = to_counts(sizes);

  const at::Tensor own = to_bytes({bytes});
  const at::Tensor all =
      at::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, own.options());
  group_->all_gather_v(all, own, counts, false, with_hint<comm::AllGatherOptions>(kRows));
  return to_texts(all, counts);
}

std::string GroupExchange::scatter(size_t root, const std::vector<std::string>& parts) {
  const bool is_root = root == rank();
  std::vector<int64_t> lengths(size(), 0);
  for (size_t i = 0; is_root && i < parts.size(); ++i) lengths[i] = std::ssize(parts[i]);
  const at::Tensor sizes = at::tensor(lengths, on_host(at::kLong));
  group_->broadcast(sizes, static_cast<int64_t>(root), false, with_hint<comm::BroadcastOptions>(kSizes));

  std::vector<int64_t> to_come(size(), 0);
  to_come[root] = to_counts(sizes)[rank()];
  const at::Tensor own = to_bytes(is_root ? parts : std::vector<std::string>{});
  const at::Tensor part = at::empty({to_come[root]}, own.options());
  group_->all_to_all_v(part, own, to_come, lengths, false, with_hint<comm::AllToAllOptions>(kRows));
  return to_texts(part, {to_come[root]}).front();
}

}  // namespace tessera::train
