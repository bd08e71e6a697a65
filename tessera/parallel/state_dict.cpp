#include "tessera/parallel/state_dict.h"

#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/mismatch_list.h"
#include "tessera/core/strings.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/io/model_files.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/read_rows.h"

namespace tessera::parallel {
namespace {

bool is_first(const ShardGroups& groups) {
  return groups.shard->rank() == 0 && groups.replicate->rank() == 0;
}

// Runs what may fail on some ranks and not on others; then throws on all, if it threw on any.
void run_agreed(const ShardGroups& groups, const std::function<void()>& work) {
  std::exception_ptr own;
  std::string told;
  auto kind = ErrorKind::Checkpoint;
  try {
    work();
  } catch (const Error& error) {
    own = std::current_exception();
    kind = error.kind();
    told = error.what();
  } catch (const std::exception& error) {
    own = std::current_exception();
    told = error.what();
  }
  std::string message = own == nullptr ? "" : static_cast<char>('a' + static_cast<int>(kind)) + told;
  for (comm::Communicator* group : {groups.shard.get(), groups.replicate.get()}) {
    for (const std::string& other : group->all_gather_string(message)) {
      if (message.empty()) message = other;
    }
  }
  if (own != nullptr) std::rethrow_exception(own);
  if (message.empty()) return;
  throw Error(static_cast<ErrorKind>(message[0] - 'a'), "STATE-DICT", "another rank: " + message.substr(1));
}

struct Described {
  std::vector<int64_t> shape;
  bool is_floating = true;
};

// Where each tensor of the module lies in `given`: its name there, in the order of parameters and buffers.
// Throws where the two do not fit.
std::vector<std::string> match(const ShardedModel& model, const std::map<std::string, Described>& given) {
  MismatchList mismatches(
      {"missing", "of another shape", "of another kind", "that the module does not have"});
  std::vector<std::string> found;
  std::map<std::string, bool> known;
  const auto look_up = [&](const std::vector<std::string>& names, const std::vector<int64_t>& shape,
                           bool is_floating) {
    auto at = given.end();
    for (const std::string& name : names) {
      known[name] = true;
      if (at == given.end()) at = given.find(name);
    }
    if (at == given.end()) return mismatches.add("missing", names.front());
    found.push_back(at->first);
    if (at->second.shape != shape) {
      mismatches.add("of another shape", at->first + " (got " + format_shape(at->second.shape) + ", need " +
                                             format_shape(shape) + ")");
    } else if (at->second.is_floating != is_floating) {
      mismatches.add("of another kind", at->first + (is_floating ? " (got integers)" : " (need integers)"));
    }
  };
  for (const ShardedParameter& parameter : model.parameters()) {
    std::vector<std::string> names = {parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    look_up(names, parameter.layout.shape(), is_floating(parameter.layout.dtype()));
  }
  for (const auto& [name, buffer] : model.buffers()) {
    look_up({name}, buffer.sizes().vec(), buffer.is_floating_point());
  }
  for (const auto& [name, described] : given) {
    if (known.count(name) == 0) mismatches.add("that the module does not have", name);
  }
  if (mismatches.empty()) return found;
  throw Error(ErrorKind::Checkpoint, "STATE-DICT", "the tensors do not fit the module: " + mismatches.text())
      .hint("names are those of named_parameters() and named_buffers()");
}

// Has `read` write every tile and buffer. A gathered copy would go stale.
void load(ShardedModel& model, const std::function<void()>& read) {
  model.reshard();
  model.overwrite([&] {
    for (const auto& [name, buffer] : model.buffers()) {
      at::Tensor handle = buffer;
      if (!handle.is_meta()) continue;
      nn::materialize(handle, at::empty(handle.sizes(), at::TensorOptions().dtype(handle.scalar_type())));
    }
    read();
  });
}

// The tensor of one name in a dict, if its values can be sent.
at::Tensor readable(const std::string& name, const at::Tensor& tensor) {
  const auto error = [&](const std::string& got) {
    return Error(ErrorKind::Checkpoint, "STATE-DICT",
                 "tensor '" + name + "' has no values that can be loaded")
        .got(got)
        .need("a dense tensor on the CPU");
  };
  if (!tensor.defined()) throw error("an undefined tensor");
  if (!tensor.is_cpu()) throw error("one on the device " + tensor.device().str());
  if (tensor.layout() != at::kStrided) throw error("one of another layout");
  if (!find_dtype(tensor.scalar_type())) throw error(c10::toString(tensor.scalar_type()));
  return tensor.detach();  // a hollow one names itself
}

// Rows of a stored tensor from `first_row` on, as many as the contiguous `destination` has.
void read_into(const io::ModelFiles& files, const std::string& name, int64_t first_row,
               const at::Tensor& destination) {
  if (destination.numel() == 0) return;
  const io::TensorInfo& stored = *files.require(name).tensor;
  const at::ScalarType type = to_scalar_type(stored.dtype);
  const int64_t num_rows = destination.dim() == 0 ? 1 : destination.size(0);
  if (type != destination.scalar_type() && destination.is_floating_point()) {
    return nn::read_rows(files, name, first_row, num_rows, destination);
  }
  const at::Tensor value =
      type == destination.scalar_type() ? destination : at::empty(destination.sizes(), type);
  const auto num_bytes = static_cast<int64_t>(value.nbytes());
  files.read(name, first_row * (num_bytes / num_rows), num_bytes, value.mutable_data_ptr());
  if (!value.is_same(destination)) destination.copy_(value);
}

// The tile, or the rows of `whole` that lie in it.
void take_rows(const ShardedParameter& parameter, const at::Tensor& whole) {
  const at::Tensor tile = parameter.tile.detach();
  if (tile.dim() == 0) {
    tile.copy_(whole);
  } else if (tile.numel() > 0) {
    tile.copy_(whole.narrow(0, parameter.box.offset[0], parameter.box.size[0]));
  }
}

// Calls `take` with every whole tensor on the first rank, in order.
void gather(const ShardedModel& model,
            const std::function<void(const std::string& name, const at::Tensor& whole)>& take) {
  model.check_has_values();
  const ShardGroups& groups = model.groups();
  // The other replicas hold the same.
  if (groups.replicate->rank() != 0) return;
  for (const ShardedParameter& parameter : model.parameters()) {
    const at::Tensor whole = model.full_tensor(parameter);
    if (is_first(groups)) take(parameter.name, whole);
  }
  if (!is_first(groups)) return;
  for (const auto& [name, buffer] : model.buffers()) take(name, buffer.detach().clone().contiguous());
}

io::ModelFiles open_files(const std::string& path) {
  const std::filesystem::path given(path);
  if (std::filesystem::is_directory(given)) return io::ModelFiles::open(path);
  const std::string folder = given.parent_path().string();
  return io::ModelFiles::open(folder.empty() ? "." : folder, given.filename().string());
}

}  // namespace

StateDict full_state_dict(const ShardedModel& model) {
  StateDict state;
  gather(model, [&](const std::string& name, const at::Tensor& whole) { state.emplace_back(name, whole); });
  return state;
}

void load_full_state_dict(ShardedModel& model, const StateDict& state) {
  const at::NoGradGuard no_grad;
  const ShardGroups& groups = model.groups();
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> names;
  run_agreed(groups, [&] {
    if (!is_first(groups)) return;
    std::map<std::string, Described> given;
    for (const auto& [name, tensor] : state) {
      tensors[name] = readable(name, tensor);
      given[name] = {tensor.sizes().vec(), tensor.is_floating_point()};
    }
    names = match(model, given);
  });
  size_t next = 0;
  const auto receive = [&](const at::Tensor& like, at::IntArrayRef shape) {
    at::Tensor whole = is_first(groups) ? tensors.at(names[next++]).to(like.scalar_type()).contiguous()
                                        : at::empty(shape, like.options().requires_grad(false));
    groups.replicate->broadcast(whole, 0);
    groups.shard->broadcast(whole, 0);
    return whole;
  };
  load(model, [&] {
    for (const ShardedParameter& parameter : model.parameters()) {
      take_rows(parameter, receive(parameter.tile, parameter.layout.shape()));
    }
    for (const auto& [name, buffer] : model.buffers()) buffer.detach().copy_(receive(buffer, buffer.sizes()));
  });
}

void save_state_dict(const ShardedModel& model, const std::string& path) {
  model.check_has_values();
  for (const auto& [name, buffer] : model.buffers()) {
    if (find_dtype(buffer.scalar_type())) continue;
    throw Error(ErrorKind::Config, "SHARD-DTYPE", "buffer '" + name + "' is of a type that no file stores")
        .got(c10::toString(buffer.scalar_type()))
        .need("floating, integer or bool");
  }
  const ShardGroups& groups = model.groups();
  std::optional<io::SafetensorsWriter> writer;
  std::exception_ptr failed;
  // An error ends the writing but not the gathering, in which all ranks take part.
  const auto write = [&](const std::function<void()>& work) {
    if (failed != nullptr || !is_first(groups)) return;
    try {
      work();
    } catch (...) {
      failed = std::current_exception();
    }
  };
  write([&] {
    std::vector<io::TensorSpec> specs;
    for (const ShardedParameter& parameter : model.parameters()) {
      specs.push_back({parameter.name, parameter.layout.dtype(), parameter.layout.shape()});
    }
    for (const auto& [name, buffer] : model.buffers()) {
      specs.push_back({name, to_dtype(buffer.scalar_type()), buffer.sizes().vec()});
    }
    writer.emplace(path, specs, std::map<std::string, std::string>{{"format", "pt"}});
  });
  gather(model, [&](const std::string& name, const at::Tensor& whole) {
    write([&] { writer->write(name, 0, whole.const_data_ptr(), static_cast<int64_t>(whole.nbytes())); });
  });
  write([&] { writer->commit(); });
  run_agreed(groups, [&] {
    if (failed != nullptr) std::rethrow_exception(failed);
  });
}

void load_state_dict(ShardedModel& model, const std::string& path) {
  const at::NoGradGuard no_grad;
  std::optional<io::ModelFiles> files;
  std::vector<std::string> names;
  run_agreed(model.groups(), [&] {
    files.emplace(open_files(path));
    std::map<std::string, Described> given;
    for (const io::TensorInfo* tensor : files->tensors()) {
      given[tensor->name] = {tensor->shape, is_floating(tensor->dtype)};
    }
    try {
      names = match(model, given);
    } catch (Error& error) {
      throw error.at(path);
    }
  });
  const auto read = [&] {
    size_t next = 0;
    for (const ShardedParameter& parameter : model.parameters()) {
      const int64_t first_row = parameter.box.offset.empty() ? 0 : parameter.box.offset[0];
      read_into(*files, names[next++], first_row, parameter.tile.detach());
    }
    for (const auto& [name, buffer] : model.buffers()) {
      const at::Tensor value = at::empty(buffer.sizes(), at::TensorOptions().dtype(buffer.scalar_type()));
      read_into(*files, names[next++], 0, value);
      buffer.detach().copy_(value);
    }
  };
  load(model, [&] { run_agreed(model.groups(), read); });
}

}  // namespace tessera::parallel
