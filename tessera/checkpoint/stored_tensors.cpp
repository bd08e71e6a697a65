#include "tessera/checkpoint/stored_tensors.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;

constexpr int64_t kStagingBytes = int64_t{16} << 20;
// Reading this many bytes more takes no longer than another call.
constexpr int64_t kLargestGapBytes = int64_t{16} << 10;
// A sample has this many bytes of every kSampledEvery bytes of a tensor, and of its end.
constexpr int64_t kSampledBytes = 1024, kSampledEvery = int64_t{1} << 20;

// Tells whether values of the stored type can be converted to the wanted one.
bool is_converted(DType stored, at::ScalarType wanted) {
  if (at::isFloatingType(wanted)) return is_weight_dtype(stored);
  return !is_floating(stored) && at::isIntegralType(wanted, /*includeBool=*/true);
}

// Reads boxes of one tensor. A box is read in one call if its elements, with the gaps between them, fit into
// the staging buffer and the gaps are short; otherwise it is cut along its first dim of more than one slice,
// and the pieces are read in the same way.
class BoxReader {
 public:
  BoxReader(const io::SafetensorsFile& file, const io::TensorInfo& tensor)
      : file_(file),
        tensor_(tensor),
        type_(to_scalar_type(tensor.dtype)),
        element_(dtype_size(tensor.dtype)),
        strides_(tensor.shape.size(), 1) {
    for (size_t d = strides_.size(); d-- > 1;) strides_[d - 1] = strides_[d] * tensor.shape[d];
  }

  void read(const Box& box, const at::Tensor& destination) {
    if (destination.numel() == 0) return;
    int64_t first = 0, span = 1;  // elements from the first of the box to its last
    for (size_t d = 0; d < strides_.size(); ++d) {
      first += box.offset[d] * strides_[d];
      span += (box.size[d] - 1) * strides_[d];
    }
    if (span == box.numel() && destination.scalar_type() == type_ && destination.is_contiguous() &&
        is_on_host(destination)) {
      file_.read(tensor_, first * element_, span * element_, destination.mutable_data_ptr());
      return;
    }
    // `cut` is the first dim of more than one slice; a slice spans `one` elements of the file, and the next
    // one begins `stride` elements later.
    size_t cut = 0;
    while (cut < box.size.size() && box.size[cut] == 1) ++cut;
    const int64_t stride = span == 1 ? 1 : strides_[cut];
    const int64_t one = span == 1 ? 1 : span - (box.size[cut] - 1) * stride;
    const int64_t most = kStagingBytes / element_;
    // The gaps between these slices are the widest of the box; those of later dims lie inside a slice.
    const bool reads_gaps = (stride - one) * element_ <= kLargestGapBytes;
    if (reads_gaps && span <= most) {
      if (!staging_.defined() || staging_.numel() < span) staging_ = at::empty({span}, on_host(type_));
      file_.read(tensor_, first * element_, span * element_, staging_.mutable_data_ptr());
      destination.copy_(staging_.as_strided(box.size, strides_, 0));
      return;
    }
    // Each piece has as many slices as fit into the staging buffer, or one if the gaps are too wide to be
    // read.
    const int64_t step = reads_gaps && one <= most ? 1 + (most - one) / stride : 1;
    for (int64_t done = 0; done < box.size[cut]; done += step) {
      Box piece = box;
      piece.offset[cut] += done;
      piece.size[cut] = std::min(step, box.size[cut] - done);
      read(piece, destination.narrow(static_cast<int64_t>(cut), done, piece.size[cut]));
    }
  }

 private:
  const io::SafetensorsFile& file_;
  const io::TensorInfo& tensor_;
  const at::ScalarType type_;
  const int64_t element_;
  std::vector<int64_t> strides_;
  at::Tensor staging_;
};

std::vector<io::TensorSpec> specs_of(const io::ModelFiles& files) {
  std::vector<io::TensorSpec> specs;
  for (const io::TensorInfo* tensor : files.tensors()) {
    specs.push_back({tensor->name, tensor->dtype, tensor->shape});
  }
  return specs;
}

class FolderTensors : public StoredTensors {
 public:
  explicit FolderTensors(std::shared_ptr<const io::ModelFiles> files)
      : StoredTensors(files->folder(), specs_of(*files)), files_(std::move(files)) {}

  void read(const std::string& name, const Box& box, const at::Tensor& destination) const override {
    read_box(*files_, name, box, destination);
  }

  void add_sample(ContentHash& hash) const override {
    std::string sample;
    for (const io::TensorInfo* tensor : files_->tensors()) {
      hash.add(tensor->name);
      hash.add(dtype_name(tensor->dtype));
      hash.add(std::span<const int64_t>(tensor->shape));
      const int64_t size = std::min(kSampledBytes, tensor->num_bytes());
      sample.resize(static_cast<size_t>(size));
      const int64_t last = tensor->num_bytes() - size;
      for (int64_t offset = 0; offset <= last; offset += kSampledEvery) {
        files_->read(tensor->name, offset, size, sample.data());
        hash.add(sample);
      }
      files_->read(tensor->name, last, size, sample.data());
      hash.add(sample);
    }
  }

 private:
  std::shared_ptr<const io::ModelFiles> files_;
};

}  // namespace

bool is_weight_dtype(DType dtype) {
  return dtype == DType::F64 || dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

Box whole_box(const std::vector<int64_t>& shape) { return {std::vector<int64_t>(shape.size(), 0), shape}; }

Box row_box(const std::vector<int64_t>& shape, int64_t first, int64_t count) {
  Box box = whole_box(shape);
  if (shape.empty()) return box;
  box.offset.front() = first;
  box.size.front() = count;
  return box;
}

void read_box(const io::ModelFiles& files, const std::string& name, const Box& box,
              const at::Tensor& destination) {
  const io::ModelFiles::Location found = files.require(name);
  read_box(*found.file, *found.tensor, box, destination);
}

void read_box(const io::SafetensorsFile& file, const io::TensorInfo& tensor, const Box& box,
              const at::Tensor& destination) {
  if (to_scalar_type(tensor.dtype) != destination.scalar_type() &&
      !is_converted(tensor.dtype, destination.scalar_type())) {
    throw Error(ErrorKind::Model, "DTYPE", "weights of this type cannot be read")
        .in(file.path() + ": tensor '" + tensor.name + "'")
        .got(dtype_name(tensor.dtype))
        .need(destination.is_floating_point() ? "F64, F32, F16 or BF16" : "an integer type");
  }
  TESSERA_ASSERT(box.size.size() == tensor.shape.size() && destination.sizes() == at::IntArrayRef(box.size),
                 "a destination of the box's size");
  TESSERA_ASSERT(parallel::intersect(box, whole_box(tensor.shape)) == box, "a box inside the tensor");
  const at::NoGradGuard no_grad;
  BoxReader(file, tensor).read(box, destination);
}

StoredTensors::StoredTensors(std::string place, std::vector<io::TensorSpec> tensors)
    : place_(std::move(place)), tensors_(std::move(tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

const io::TensorSpec* StoredTensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::optional<io::BlockForm> StoredTensors::form(const std::string&) const { return std::nullopt; }

void StoredTensors::read_blocks(const std::string& name, const Box&, const at::Tensor&) const {
  throw_internal(__FILE__, __LINE__, "a tensor with a form", name);
}

void StoredTensors::add_sample(ContentHash& hash) const {
  for (const io::TensorSpec& tensor : tensors_) {
    hash.add(tensor.name);
    hash.add(dtype_name(tensor.dtype));
    hash.add(std::span<const int64_t>(tensor.shape));
  }
}

DType main_dtype(const StoredTensors& tensors) {
  std::map<DType, int64_t> elements;
  for (const io::TensorSpec& tensor : tensors.tensors()) {
    if (is_weight_dtype(tensor.dtype)) elements[tensor.dtype] += whole_box(tensor.shape).numel();
  }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; });
  return most == elements.end() ? DType::F32 : most->first;
}

std::shared_ptr<const StoredTensors> stored_tensors(std::shared_ptr<const io::ModelFiles> files) {
  return std::make_shared<FolderTensors>(std::move(files));
}

}  // namespace tessera::checkpoint
