#include "tessera/checkpoint/state_dict_adapter.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/mismatch_list.h"
#include "tessera/core/strings.h"
#include "tessera/parallel/box_part.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;

std::vector<int64_t> swapped(std::vector<int64_t> dims, bool is_swapped) {
  if (is_swapped) std::swap(dims[0], dims[1]);
  return dims;
}

// Tells whether the boxes cover a tensor of this shape, each element once.
bool tile(const std::vector<int64_t>& shape, std::vector<Box> boxes) {
  const Box whole = whole_box(shape);
  int64_t numel = 0;
  for (const Box& box : boxes) {
    if (box.size.size() != shape.size() || intersect(box, whole) != box) return false;
    numel += box.numel();
  }
  // Sorted by their first rows, so that each is compared with those alone whose rows it shares.
  std::ranges::sort(boxes, {}, &Box::offset);
  for (size_t i = 0; i < boxes.size() && !shape.empty(); ++i) {
    const int64_t end = boxes[i].offset[0] + boxes[i].size[0];
    for (size_t other = i + 1; other < boxes.size() && boxes[other].offset[0] < end; ++other) {
      if (intersect(boxes[i], boxes[other]).numel() > 0) return false;
    }
  }
  return numel == whole.numel();
}

// Throws unless the box lies inside the parameter. The usual cause is a table that was made after the model's
// parameters were cut among ranks: it then has the shapes of one rank's parts.
void require_inside(const StoredParameter& parameter, const Box& box) {
  if (box.size.size() == parameter.shape.size() && intersect(box, whole_box(parameter.shape)) == box) return;
  throw Error(ErrorKind::Config, "STATE-DICT-TABLE",
              "a part of the parameter '" + parameter.name + "' lies outside of it")
      .got("the part " + format_shape(box.size) + " at " + format_shape(box.offset))
      .need("one of a parameter of shape " + format_shape(parameter.shape))
      .hint("make the table of the whole model, before its parameters are cut among ranks");
}

}  // namespace

Box StoredPart::in_parameter() const {
  if (shape.empty()) return {offset, std::vector<int64_t>(offset.size(), 1)};
  const auto begin = box.size.begin() + static_cast<std::ptrdiff_t>(leading_dims());
  return {offset, swapped({begin, box.size.end()}, is_transposed)};
}

StoredPart stored_as_is(std::string name, std::vector<int64_t> shape, std::vector<std::string> aliases) {
  Box box = whole_box(shape);
  std::vector<int64_t> offset = box.offset;
  return {std::move(name), std::move(shape), std::move(box), std::move(offset), false, std::move(aliases)};
}

StoredPart stored_number(std::string name) { return {std::move(name), {}, {}, {0}}; }

StoredPart stored_transposed(std::string name, const std::vector<int64_t>& shape) {
  TESSERA_ASSERT(shape.size() == 2, "only a matrix is stored as its transpose");
  StoredPart part = stored_as_is(std::move(name), swapped(shape, true));
  part.is_transposed = true;
  return part;
}

StateDictAdapter::StateDictAdapter(std::vector<StoredParameter> parameters)
    : parameters_(std::move(parameters)) {
  std::map<std::string, size_t> stored_index;
  std::vector<std::vector<Box>> stored_boxes;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const StoredParameter& parameter = parameters_[i];
    TESSERA_ASSERT(index_.emplace(parameter.name, i).second, parameter.name + " stands in the table twice");
    std::vector<Box> boxes;
    for (const StoredPart& part : parameter.parts) {
      TESSERA_ASSERT(!part.is_transposed || part.offset.size() == 2,
                     "only a matrix is stored as its transpose");
      boxes.push_back(part.in_parameter());
      const auto [found, is_new] = stored_index.emplace(part.name, stored_.size());
      if (is_new) {
        stored_.push_back({part.name, part.aliases, part.shape, {}});
        stored_boxes.emplace_back();
      }
      StoredTensor& stored = stored_[found->second];
      TESSERA_ASSERT(stored.shape == part.shape, "the parts of " + part.name + " disagree about its shape");
      stored_boxes[found->second].push_back(part.box);
      if (stored.parameters.empty() || stored.parameters.back() != parameter.name) {
        stored.parameters.push_back(parameter.name);
      }
    }
    TESSERA_ASSERT(tile(parameter.shape, boxes), "the parts of " + parameter.name + " do not make it");
  }
  for (size_t i = 0; i < stored_.size(); ++i) {
    TESSERA_ASSERT(tile(stored_[i].shape, stored_boxes[i]),
                   "the parts of " + stored_[i].name + " do not make the stored tensor");
  }
}

const StoredParameter* StateDictAdapter::find(std::string_view parameter) const {
  const auto found = index_.find(std::string(parameter));
  return found == index_.end() ? nullptr : &parameters_[found->second];
}

at::Tensor StateDictAdapter::Overlap::view(const at::Tensor& tile) const {
  at::Tensor elements = parallel::box_part(tile, local);
  if (part->is_transposed) elements = elements.transpose(0, 1);
  if (part->shape.empty()) return elements.view(at::IntArrayRef{});
  for (size_t i = 0; i < part->leading_dims(); ++i) elements = elements.unsqueeze(0);
  return elements;
}

std::vector<std::vector<StateDictAdapter::Overlap>> StateDictAdapter::overlaps(std::string_view parameter,
                                                                               const Box& box) const {
  const StoredParameter* entry = find(parameter);
  TESSERA_ASSERT(entry != nullptr, "the table has no parameter " + std::string(parameter));
  require_inside(*entry, box);
  std::vector<std::vector<Overlap>> found;
  std::map<std::string, size_t> index;  // by stored tensor
  for (const StoredPart& part : entry->parts) {
    const Box common = intersect(part.in_parameter(), box);
    if (common.numel() == 0) continue;
    Overlap overlap{&part, part.box, common};
    const size_t leading = part.leading_dims();
    for (size_t d = 0; d < common.size.size(); ++d) {
      overlap.local.offset[d] -= box.offset[d];
      if (part.shape.empty()) continue;
      const size_t stored_dim = leading + (part.is_transposed ? 1 - d : d);
      overlap.stored.size[stored_dim] = common.size[d];
      overlap.stored.offset[stored_dim] += common.offset[d] - part.offset[d];
    }
    const auto [place, is_new] = index.emplace(part.name, found.size());
    if (is_new) found.emplace_back();
    found[place->second].push_back(std::move(overlap));
  }
  return found;
}

bool TensorMismatches::empty() const {
  return missing.empty() && unknown.empty() && wrong_shape.empty() && wrong_type.empty();
}

std::string TensorMismatches::text() const {
  const std::pair<const char*, const std::vector<std::string>*> kinds[] = {
      {"missing", &missing},
      {"of another shape", &wrong_shape},
      {"of a type other than F64, F32, F16, BF16", &wrong_type},
      {"that the model does not have", &unknown}};
  std::vector<std::string> names;
  for (const auto& [kind, list] : kinds) names.emplace_back(kind);
  MismatchList mismatches(names);
  for (const auto& [kind, list] : kinds) {
    for (const std::string& name : *list) mismatches.add(kind, name);
  }
  return mismatches.text();
}

TensorMismatches compare_tensors(const StateDictAdapter& adapter, const StoredTensors& files,
                                 const std::function<bool(const std::string&)>& is_ignored) {
  TensorMismatches mismatches;
  std::set<std::string> known;
  for (const StateDictAdapter::StoredTensor& wanted : adapter.stored_tensors()) {
    known.insert(wanted.name);
    known.insert(wanted.aliases.begin(), wanted.aliases.end());
    const io::TensorSpec* found = files.find(wanted.name);
    for (const std::string& alias : wanted.aliases) {
      if (found == nullptr) found = files.find(alias);
    }
    if (found == nullptr) {
      mismatches.missing.push_back(wanted.name);
    } else if (found->shape != wanted.shape) {
      mismatches.wrong_shape.push_back(found->name + " (got " + format_shape(found->shape) + ", need " +
                                       format_shape(wanted.shape) + ")");
    } else if (!is_weight_dtype(found->dtype)) {
      mismatches.wrong_type.push_back(found->name + " (" + std::string(dtype_name(found->dtype)) + ")");
    }
  }
  for (const io::TensorSpec& tensor : files.tensors()) {
    if (known.count(tensor.name) == 0 && !is_ignored(tensor.name)) mismatches.unknown.push_back(tensor.name);
  }
  return mismatches;
}

}  // namespace tessera::checkpoint
