#include "tessera/io/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "tessera/core/strings.h"
#include "tessera/io/json_file.h"

namespace tessera::io {
namespace {

constexpr int64_t kLengthBytes = 8;  // the header's length stands before the header
constexpr std::string_view kMetadataKey = "__metadata__";

// Element types that the format has and Tessera has not.
constexpr std::string_view kOtherDTypes[] = {"F4",          "F6_E2M3",     "F6_E3M2", "F8_E8M0",
                                             "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"};

std::string tensor_place(const std::string& path, std::string_view name) {
  return path + ": tensor '" + std::string(name) + "'";
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> dims;
  for (const int64_t dim : shape) dims.push_back(std::to_string(dim));
  return "[" + join(dims, ", ") + "]";
}

// Takes the parser's events and refuses each one that has no place in a header, so nothing is nested deeper
// than the format and nothing else is stored.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a bool"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse("the number " + text.substr(0, 40) + ", not an integer of 63 bits");
  }
  bool binary(binary_t&) override { return refuse("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::Shape && state_ != State::Offsets) return refuse("a number");
    if (value > static_cast<uint64_t>(INT64_MAX))
      return refuse("the number " + std::to_string(value) + " beyond 63 bits");
    if (state_ == State::Shape) {
      if (static_cast<int64_t>(tensor_.shape.size()) == kMaxSafetensorsRank) {
        return fail("the tensor has too many dims; need at most " + std::to_string(kMaxSafetensorsRank));
      }
      tensor_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (num_offsets_ == 2) return fail("'data_offsets' holds more than two numbers");
    (num_offsets_++ == 0 ? tensor_.begin : tensor_.end) = static_cast<int64_t>(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::Metadata) {
      header_.metadata[field_] = value;
      return true;
    }
    if (state_ != State::Tensor || field_ != "dtype") return refuse("a string");
    const std::optional<DType> dtype = parse_dtype(value);
    if (!dtype) {
      const bool known =
          std::find(std::begin(kOtherDTypes), std::end(kOtherDTypes), value) != std::end(kOtherDTypes);
      return fail((known ? "tessera does not support the element type '" : "unknown element type '") +
                  value.substr(0, 40) + "'");
    }
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::Start: state_ = State::Root; return true;
      case State::Entry:
        state_ = name_ == kMetadataKey ? State::Metadata : State::Tensor;
        field_.clear();
        seen_fields_ = 0;
        num_offsets_ = 0;
        tensor_ = TensorInfo{};
        return true;
      default: return refuse("an object");
    }
  }

  bool key(string_t& name) override {
    switch (state_) {
      case State::Root: return start_entry(name);
      case State::Metadata:
        if (header_.metadata.contains(name))
          return fail("the metadata key '" + name.substr(0, 200) + "' appears twice");
        field_ = name;
        return true;
      default: return start_field(name);
    }
  }

  bool end_object() override {
    if (state_ == State::Root) {
      state_ = State::End;
      return true;
    }
    if (state_ == State::Tensor) {
      if (seen_fields_ != 7) return fail("the entry lacks one of 'dtype', 'shape', 'data_offsets'");
      if (num_offsets_ != 2) return fail("'data_offsets' must hold two numbers");
      tensor_.name = name_;
      header_.tensors.push_back(std::move(tensor_));
    }
    state_ = State::Root;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::Tensor && field_ == "shape") {
      state_ = State::Shape;
    } else if (state_ == State::Tensor && field_ == "data_offsets") {
      state_ = State::Offsets;
    } else {
      return refuse("an array");
    }
    return true;
  }

  bool end_array() override {
    state_ = State::Tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception&) override {
    error_ = json_error(path_, ErrorKind::Model, kLengthBytes + static_cast<int64_t>(position) - 1,
                        "the safetensors header is malformed JSON");
    if (!last_token.empty()) error_->got("'" + last_token.substr(0, 80) + "'");
    return false;
  }

  const std::optional<Error>& error() const { return error_; }
  SafetensorsHeader take() { return std::move(header_); }

 private:
  enum class State { Start, Root, Entry, Metadata, Tensor, Shape, Offsets, End };

  bool start_entry(const std::string& name) {
    name_ = name;
    if (static_cast<int64_t>(name.size()) > kMaxSafetensorsName) {
      name_.resize(40);
      return fail("the tensor's name is too long; got " + std::to_string(name.size()) +
                  " bytes, need at most " + std::to_string(kMaxSafetensorsName));
    }
    if (!names_.insert(name).second) return fail("the name appears twice in the header");
    if (static_cast<int64_t>(names_.size()) > kMaxSafetensorsTensors + 1) {
      return fail("too many tensors; need at most " + std::to_string(kMaxSafetensorsTensors));
    }
    state_ = State::Entry;
    return true;
  }

  bool start_field(const std::string& name) {
    const int bit = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
    if (bit == 0) return fail("unknown key '" + name.substr(0, 80) + "' in the entry");
    if ((seen_fields_ & bit) != 0) return fail("the key '" + name + "' appears twice in the entry");
    seen_fields_ |= bit;
    field_ = name;
    return true;
  }

  bool refuse(const std::string& what) {
    switch (state_) {
      case State::Start: return fail("the header must be a JSON object; got " + what);
      case State::Entry: return fail("the entry must be an object; got " + what);
      case State::Metadata:
        return fail("the metadata value of '" + field_.substr(0, 200) + "' must be a string; got " + what);
      case State::Shape:
      case State::Offsets: return fail("'" + field_ + "' must hold integers from 0 on; got " + what);
      default:
        return fail("'" + field_ + "' must be " + (field_ == "dtype" ? "a string" : "an array") + "; got " +
                    what);
    }
  }

  bool fail(std::string what) {
    error_ = Error(ErrorKind::Model, "SAFETENSORS-HEADER", std::move(what));
    error_->in(state_ == State::Start ? path_ + ": byte " + std::to_string(kLengthBytes)
                                      : tensor_place(path_, name_));
    return false;
  }

  const std::string& path_;
  State state_ = State::Start;
  std::string name_, field_;  // the keys that lead to the value at hand
  int seen_fields_ = 0;       // bits: dtype 1, shape 2, data_offsets 4
  int num_offsets_ = 0;
  TensorInfo tensor_;
  std::unordered_set<std::string> names_;
  SafetensorsHeader header_;
  std::optional<Error> error_;
};

Error layout_error(const std::string& path, const std::string& name, std::string what) {
  return Error(ErrorKind::Model, "SAFETENSORS-LAYOUT", std::move(what)).in(tensor_place(path, name));
}

// Sorts by offset, makes the offsets absolute and checks that the tensors tile the data without gap or
// overlap.
void place_tensors(std::vector<TensorInfo>& tensors, int64_t data_begin, int64_t file_size,
                   const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  const int64_t data_size = file_size - data_begin;
  int64_t expected = 0;
  const std::string* previous = nullptr;
  for (TensorInfo& tensor : tensors) {
    const std::string offsets = "[" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) + "]";
    if (tensor.begin > tensor.end)
      throw layout_error(path, tensor.name, "its bytes end before they begin").got(offsets);
    if (tensor.end > data_size) {
      throw layout_error(path, tensor.name,
                         "its bytes lie beyond the end of the file: the file is truncated or wrong")
          .got(offsets)
          .need("at most " + std::to_string(data_size));
    }
    int64_t num_bytes = 0;
    if (!checked_tensor_bytes(tensor.dtype, tensor.shape, &num_bytes)) {
      throw layout_error(path, tensor.name, "the size of its shape overflows").got(shape_text(tensor.shape));
    }
    if (num_bytes != tensor.end - tensor.begin) {
      throw layout_error(path, tensor.name, "its bytes do not match its shape and type")
          .got(std::to_string(tensor.end - tensor.begin) + " bytes")
          .need(std::to_string(num_bytes) + " for " + std::string(dtype_name(tensor.dtype)) + " " +
                shape_text(tensor.shape));
    }
    if (tensor.begin != expected) {
      const std::string other = previous == nullptr ? "the first byte" : "tensor '" + *previous + "'";
      throw layout_error(
          path, tensor.name,
          tensor.begin < expected ? "its bytes overlap " + other : "there is a gap between it and " + other)
          .got("begin " + std::to_string(tensor.begin))
          .need(std::to_string(expected));
    }
    expected = tensor.end;
    previous = &tensor.name;
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  if (expected != data_size) {
    throw Error(ErrorKind::Model, "SAFETENSORS-LAYOUT", "the file contains bytes that belong to no tensor")
        .in(path + ": byte " + std::to_string(data_begin + expected))
        .got(std::to_string(data_size - expected) + " extra bytes")
        .need("none");
  }
}

}  // namespace

bool checked_tensor_bytes(DType dtype, const std::vector<int64_t>& shape, int64_t* num_bytes) {
  int64_t total = 1;  // dims of 0 counted as 1: no order of multiplying, nor a stride, may overflow
  bool is_empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(total, std::max<int64_t>(dim, 1), &total)) return false;
    is_empty = is_empty || dim == 0;
  }
  if (is_empty) total = 0;
  return !__builtin_mul_overflow(total, dtype_size(dtype), num_bytes);
}

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t file_size,
                                           const std::string& path) {
  check_json_bytes(text, path, ErrorKind::Model, kLengthBytes);
  HeaderReader reader(path);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
    throw reader.error() ? *reader.error()
                         : json_error(path, ErrorKind::Model, kLengthBytes, "malformed JSON");
  }
  SafetensorsHeader header = reader.take();
  place_tensors(header.tensors, kLengthBytes + static_cast<int64_t>(text.size()), file_size, path);
  return header;
}

}  // namespace tessera::io
