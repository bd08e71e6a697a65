#include "tessera/checkpoint/quantized/parts.h"

#include <algorithm>
#include <limits>

#include "tessera/checkpoint/quantized/grid.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/strings.h"

namespace tessera::checkpoint::quantized {

Error broken(const io::ModelFiles& files, const std::string& tensor, const std::string& what) {
  const io::ModelFiles::Location found = files.find(tensor);
  const std::string place = found ? found.file->path() : files.folder();
  return Error(ErrorKind::Model, "QUANTIZED", what).in(place + ": tensor '" + tensor + "'");
}

const io::TensorInfo* Parts::find(std::string_view suffix) const {
  const auto found = tensors_.find(suffix);
  return found == tensors_.end() ? nullptr : found->second;
}

const io::TensorInfo& Parts::require(std::string_view suffix, std::initializer_list<DType> types) const {
  const io::TensorInfo* found = find(suffix);
  if (found == nullptr) {
    throw broken(*files_, name_of(suffix), "the quantised weight '" + path_ + "' lacks this tensor")
        .hint("the folder is incomplete, or config.json names another format");
  }
  if (std::ranges::find(types, found->dtype) != types.end()) return *found;
  std::vector<std::string> names;
  for (const DType type : types) names.emplace_back(dtype_name(type));
  throw broken(*files_, found->name, "a part of a quantised weight has another type")
      .got(dtype_name(found->dtype))
      .need(join(names, " or "));
}

const io::TensorInfo& Parts::require_matrix(std::string_view suffix, std::initializer_list<DType> types,
                                            int64_t rows, int64_t columns) const {
  const io::TensorInfo& found = require(suffix, types);
  const std::vector<int64_t>& shape = found.shape;
  if (shape.size() == 2 && (rows < 0 || shape[0] == rows) && (columns < 0 || shape[1] == columns) &&
      shape[0] > 0 && shape[1] > 0) {
    return found;
  }
  const auto shown = [](int64_t size) { return size < 0 ? std::string("any") : std::to_string(size); };
  throw broken(*files_, found.name, "a part of a quantised weight has another shape")
      .got(format_shape(shape))
      .need("[" + shown(rows) + ", " + shown(columns) + "]");
}

void Parts::note_used(std::span<const std::string_view> suffixes, Found& found) const {
  for (const std::string_view suffix : suffixes) {
    if (has(suffix)) found.used.push_back(name_of(suffix));
  }
}

std::vector<Parts> modules_of(const io::ModelFiles& files, std::span<const std::string_view> suffixes) {
  std::map<std::string, Parts> modules;
  for (const io::TensorInfo* tensor : files.tensors()) {
    std::string_view longest;
    for (const std::string_view suffix : suffixes) {
      if (tensor->name.ends_with(suffix) && suffix.size() > longest.size()) longest = suffix;
    }
    if (longest.empty()) continue;
    const std::string path = tensor->name.substr(0, tensor->name.size() - longest.size());
    modules.try_emplace(path, files, path).first->second.add(longest, *tensor);
  }
  std::vector<Parts> all;
  for (auto& [path, parts] : modules) all.push_back(std::move(parts));
  return all;
}

void check_size(const Parts& parts, std::string_view suffix, int64_t rows, int64_t columns) {
  constexpr int64_t kMost = int64_t{1} << 44;  // elements of one weight
  if (rows > 0 && columns > 0 && columns <= std::numeric_limits<int32_t>::max() && rows <= kMost / columns)
    return;
  throw broken(parts.files(), parts.name_of(suffix), "no size of a weight")
      .got(format_shape(std::vector<int64_t>{rows, columns}));
}

CodedWeight make_weight(const Parts& parts, std::string_view codes_in, int64_t rows, int64_t columns,
                        io::BlockKind kind, int64_t group) {
  check_size(parts, codes_in, rows, columns);
  CodedWeight weight;
  weight.spec = {parts.path() + ".weight", DType::BF16, {rows, columns}};
  weight.codes_in = parts.name_of(codes_in);
  weight.form = fitting_form(kind, columns, group);
  return weight;
}

std::vector<float> read_floats(const io::ModelFiles& files, const io::TensorInfo& tensor) {
  const at::Tensor values = read_floats(files, tensor, whole_box(tensor.shape));
  const float* begin = values.const_data_ptr<float>();
  return {begin, begin + values.numel()};
}

}  // namespace tessera::checkpoint::quantized
