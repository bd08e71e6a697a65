#include "tessera/models/common/document_sides.h"

#include <algorithm>
#include <span>
#include <string>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"

namespace tessera::models {
namespace {

Error wrong_sides(const std::string& what) {
  return Error(ErrorKind::Data, "SEQ2SEQ", what)
      .need("documents of source tokens (type 0) followed by target tokens (type 1)")
      .hint("train an encoder-decoder with task: seq2seq");
}

// Returns the sides of the document [begin, end) of the line, of which `types` tells the sides of all tokens.
SidesOfDocument read_sides(std::span<const int64_t> types, int64_t begin, int64_t end) {
  const auto first = types.begin() + begin, last = types.begin() + end;
  const auto border = std::find_if(first, last, [](int64_t type) { return type != 0; });
  if (first != last && (border == first || border == last))
    throw wrong_sides(border == first ? "a document without a source" : "a document without a target");
  if (std::find(border, last, 0) != last) throw wrong_sides("a source behind its target");
  return {begin, border - types.begin(), border - types.begin(), end};
}

}  // namespace

std::shared_ptr<const nn::DocumentSides> document_sides(const std::vector<SidesOfDocument>& documents,
                                                        at::Device device) {
  std::vector<int64_t> source_rows, target_rows;
  const auto sides = std::make_shared<nn::DocumentSides>();
  sides->source.starts = sides->target.starts = {0};
  for (const SidesOfDocument& document : documents) {
    for (int64_t row = document.begin; row < document.source_end; ++row) source_rows.push_back(row);
    for (int64_t row = document.target_begin; row < document.end; ++row) target_rows.push_back(row);
    sides->source.starts.push_back(std::ssize(source_rows));
    sides->target.starts.push_back(std::ssize(target_rows));
  }
  sides->source.rows = copy_to(at::tensor(source_rows, on_host(at::kLong)), device);
  sides->target.rows = copy_to(at::tensor(target_rows, on_host(at::kLong)), device);
  return sides;
}

std::shared_ptr<const nn::DocumentSides> document_sides(const nn::TokenBatch& batch, at::Device device) {
  if (batch.part)
    throw Error(ErrorKind::Config, "SEQ2SEQ", "a rank cannot have a part of an encoder-decoder's documents");
  const at::Tensor added = batch.is_added.defined() ? batch.is_added.contiguous() : at::Tensor(),
                   dense = batch.type_ids.defined() ? batch.type_ids.contiguous() : at::Tensor();
  std::vector<SidesOfDocument> documents;
  for (size_t i = 0; i + 1 < batch.document_starts.size(); ++i) {
    const int64_t begin = batch.document_starts[i], end = batch.document_starts[i + 1];
    if (begin < end && added.defined() && host_span<const bool>(added)[static_cast<size_t>(begin)]) {
      documents.push_back({begin, end, begin, end});
      continue;
    }
    if (!dense.defined()) throw wrong_sides("the tokens do not tell sources from targets");
    documents.push_back(read_sides(host_span<const int64_t>(dense), begin, end));
  }
  return document_sides(documents, device);
}

}  // namespace tessera::models
