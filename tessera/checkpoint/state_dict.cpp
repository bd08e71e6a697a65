#include "tessera/checkpoint/state_dict.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include <ATen/ATen.h>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/comm/agreed_work.h"
#include "tessera/core/error.h"
#include "tessera/core/mismatch_list.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/model_files.h"
#include "tessera/nn/materialize.h"
#include "tessera/parallel/box_part.h"

namespace tessera::checkpoint {
namespace {

using parallel::ShardedModel;
using parallel::ShardedParameter;

std::vector<comm::Communicator*> groups_of(const ShardedModel& model) {
  std::vector<comm::Communicator*> groups;
  for (const ShardedParameter& parameter : model.parameters()) {
    for (const parallel::RankAxis& axis : parameter.axes) {
      if (std::ranges::find(groups, axis.group.get()) == groups.end()) groups.push_back(axis.group.get());
    }
  }
  return groups;
}

struct Described {
  std::vector<int64_t> shape;
  bool is_floating = true;
};

// Returns for each tensor of the module, parameters first, then buffers, the name under which `given` has it.
// Throws an error that lists all differences if the two do not fit.
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

// Calls `read`, which writes every tile and buffer. Gathered parameters are freed first, since they would
// keep the old values. Buffers on the meta device get memory.
void load(ShardedModel& model, const std::function<void()>& read) {
  model.reshard();
  model.overwrite([&] {
    for (const auto& [name, buffer] : model.buffers()) {
      at::Tensor handle = buffer;
      if (!handle.is_meta()) continue;
      nn::materialize(
          handle, at::empty(handle.sizes(), at::TensorOptions(model.device()).dtype(handle.scalar_type())));
    }
    read();
  });
}

// Returns the tensor `name` of a dict. Throws if it has no values that can be sent to other ranks.
at::Tensor readable(const std::string& name, const at::Tensor& tensor) {
  const auto error = [&](const std::string& got) {
    return Error(ErrorKind::Checkpoint, "STATE-DICT",
                 "tensor '" + name + "' has no values that can be loaded")
        .got(got)
        .need("a dense tensor");
  };
  if (!tensor.defined()) throw error("an undefined tensor");
  if (tensor.is_meta()) throw error("one on the meta device");
  if (tensor.layout() != at::kStrided) throw error("one of another layout");
  if (!find_dtype(tensor.scalar_type())) throw error(c10::toString(tensor.scalar_type()));
  return tensor.detach();  // throws for a hollow tensor, in an error that names its parameter
}

// Calls `take` with every whole tensor, in the order of StateDict, on the ranks of the first replica.
void gather(const ShardedModel& model,
            const std::function<void(const std::string& name, const at::Tensor& whole)>& take) {
  model.check_has_values();
  // The other replicas hold the same values and gather nothing.
  if (model.groups().replicate->rank() != 0) return;
  for (const ShardedParameter& parameter : model.parameters()) {
    take(parameter.name, model.full_tensor(parameter));
  }
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
  const comm::AgreedWork work(groups_of(model), "gather the module");
  StateDict state;
  gather(model, [&](const std::string& name, const at::Tensor& whole) {
    if (work.is_first()) state.emplace_back(name, whole);
  });
  return state;
}

void load_full_state_dict(ShardedModel& model, const StateDict& state) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> names;
  const std::vector<comm::Communicator*> groups = groups_of(model);
  comm::AgreedWork work(groups, "load the module");
  work.run_on_first([&] {
    std::map<std::string, Described> given;
    for (const auto& [name, tensor] : state) {
      tensors[name] = readable(name, tensor);
      given[name] = {tensor.sizes().vec(), tensor.is_floating_point()};
    }
    names = match(model, given);
  });
  work.finish();
  size_t next = 0;
  const auto receive = [&](const at::Tensor& like, at::IntArrayRef shape) {
    at::Tensor whole = work.is_first()
                           ? tensors.at(names[next++]).to(like.device(), like.scalar_type()).contiguous()
                           : at::empty(shape, like.options().requires_grad(false));
    for (comm::Communicator* group : groups) group->broadcast(whole, 0);
    return whole;
  };
  load(model, [&] {
    for (const ShardedParameter& parameter : model.parameters()) {
      const at::Tensor whole = receive(parameter.tile, parameter.layout.shape());
      parameter.tile.detach().copy_(parallel::box_part(whole, parameter.box));
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
  comm::AgreedWork work(groups_of(model), "save the module");
  std::optional<io::SafetensorsWriter> writer;
  work.run_on_first([&] {
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
    work.run_on_first([&] {
      const at::Tensor values = whole.to(kHost);
      const auto bytes = host_span<const char>(values);
      writer->write(name, 0, bytes.data(), static_cast<int64_t>(bytes.size()));
    });
  });
  work.run_on_first([&] { writer->commit(); });
  work.finish();
}

void load_state_dict(ShardedModel& model, const std::string& path) {
  const at::NoGradGuard no_grad;
  std::optional<io::ModelFiles> files;
  std::vector<std::string> names;
  comm::AgreedWork work(groups_of(model), "load the module");
  work.run([&] {
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
  work.finish();
  load(model, [&] {
    work.run([&] {
      size_t next = 0;
      for (const ShardedParameter& parameter : model.parameters()) {
        read_box(*files, names[next++], parameter.box, parameter.tile.detach());
      }
      for (const auto& [name, buffer] : model.buffers()) {
        read_box(*files, names[next++], whole_box(buffer.sizes().vec()), buffer.detach());
      }
    });
    work.finish();
  });
}

}  // namespace tessera::checkpoint
