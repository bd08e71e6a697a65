#include "tessera/checkpoint/manifest.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/json_file.h"

namespace tessera::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using parallel::AxisPlacement;
using parallel::Box;
using parallel::Layout;
using parallel::Placement;

constexpr const char* kFormat = "tessera-checkpoint";
constexpr int64_t kMaxPieces = int64_t{1} << 24;  // largest number of tiles of one tensor

// Returns the checksum of a manifest. nlohmann::json sorts keys, so their order in the file does not count.
std::string checksum_of(const json& content) {
  ContentHash hash;
  hash.add(content.dump());
  return hash.text();
}

ordered_json layout_json(const Layout& layout) {
  ordered_json axes = ordered_json::array();
  for (const AxisPlacement& axis : layout.axes()) {
    ordered_json entry = {{"axis", axis.axis}, {"size", axis.size}};
    if (axis.placement.kind == Placement::Kind::Shard) {
      entry["dim"] = axis.placement.dim;
      if (axis.placement.unit != 1) entry["unit"] = axis.placement.unit;
    }
    if (axis.placement.kind == Placement::Kind::Held) entry["held_by"] = axis.placement.holders;
    axes.push_back(std::move(entry));
  }
  return axes;
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

Layout layout_from(const json& tensor) {
  const auto dtype = parse_dtype(tensor.at("dtype").get<std::string>());
  require(dtype.has_value(), "an unknown type");
  const auto shape = tensor.at("shape").get<std::vector<int64_t>>();
  require(std::ranges::all_of(shape, [](int64_t size) { return size >= 0; }), "a negative size");
  std::vector<AxisPlacement> axes;
  for (const json& entry : tensor.at("axes")) {
    AxisPlacement axis{entry.at("axis"), entry.at("size"), Placement::replicate()};
    if (entry.contains("dim")) axis.placement = Placement::shard(entry["dim"], entry.value("unit", 1));
    require(axis.size >= 1 && axis.placement.unit >= 1 && axis.placement.dim >= 0 &&
                (axis.placement.kind != Placement::Kind::Shard ||
                 axis.placement.dim < static_cast<int64_t>(shape.size())),
            "an axis that cuts nothing");
    if (entry.contains("held_by")) {
      auto holders = entry["held_by"].get<std::vector<int64_t>>();
      require(!shape.empty() && !holders.empty() && holders.front() >= 0 && holders.back() < axis.size &&
                  std::ranges::adjacent_find(holders, std::ranges::greater_equal()) == holders.end(),
              "ranks that are not on the axis");
      axis.placement = Placement::held_by(std::move(holders));
    }
    axes.push_back(std::move(axis));
  }
  int64_t pieces = 1;
  for (const AxisPlacement& axis : axes) {
    require(axis.size <= kMaxPieces / pieces, "too many tiles");
    if (axis.placement.kind != Placement::Kind::Replicate) pieces *= axis.size;
  }
  return Layout(shape, *dtype, std::move(axes));
}

using BoxKey = std::pair<std::vector<int64_t>, std::vector<int64_t>>;

// Returns every box that some rank holds and that has elements: each is written once.
std::set<BoxKey> boxes_of(const Layout& layout) {
  std::set<BoxKey> boxes;
  // Counts through the coordinates like an odometer. Replicated axes stay at 0, since they change no box.
  std::vector<int64_t> coordinates(layout.axes().size(), 0);
  while (true) {
    const Box box = layout.local_box(coordinates);
    if (box.numel() > 0) boxes.emplace(box.offset, box.size);
    size_t a = 0;
    for (; a < coordinates.size(); ++a) {
      const bool is_cut = layout.axes()[a].placement.kind != Placement::Kind::Replicate;
      if (is_cut && ++coordinates[a] < layout.axes()[a].size) break;
      coordinates[a] = 0;
    }
    if (a == coordinates.size()) return boxes;
  }
}

void check_tiles(const CheckpointTensor& tensor, const Manifest& manifest) {
  std::set<BoxKey> wanted = boxes_of(tensor.layout);
  for (const StoredTile& tile : tensor.tiles) {
    require(wanted.erase({tile.box.offset, tile.box.size}) == 1,
            "tensor '" + tensor.name + "': a tile that its layout does not have");
    require(manifest.files.contains(tile.file), "tensor '" + tensor.name + "': a file that is not listed");
  }
  require(wanted.empty(), "tensor '" + tensor.name + "': a tile is missing");
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.front() != '.';
}

Manifest parse(const json& content) {
  Manifest manifest;
  manifest.step = content.at("step");
  require(manifest.step >= 0, "a negative step");
  manifest.run = content.at("run");
  manifest.state = content.at("state");
  require(manifest.state.is_object(), "a state that is no object");
  for (const auto& [name, bytes] : content.at("files").items()) {
    require(is_plain_name(name), "a file outside the folder");
    manifest.files[name] = bytes;
  }
  for (const auto& [name, entry] : content.at("others").items()) {
    require(is_plain_name(name), "a file outside the folder");
    require(entry.at("bytes").is_number_integer() && entry.at("hash").is_string(),
            "a file without its size and hash");
    manifest.others[name] = entry;
  }
  std::set<std::string> names;
  for (const json& entry : content.at("tensors")) {
    CheckpointTensor tensor = tensor_from_json(entry);
    require(names.insert(tensor.name).second, "tensor '" + tensor.name + "' is there twice");
    check_tiles(tensor, manifest);
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

}  // namespace

ordered_json to_json(const CheckpointTensor& tensor) {
  ordered_json tiles = ordered_json::array();
  for (const StoredTile& tile : tensor.tiles) {
    tiles.push_back(
        {{"file", tile.file}, {"offset", tile.box.offset}, {"size", tile.box.size}, {"hash", tile.hash}});
  }
  return {{"name", tensor.name},
          {"dtype", dtype_name(tensor.layout.dtype())},
          {"shape", tensor.layout.shape()},
          {"axes", layout_json(tensor.layout)},
          {"tiles", std::move(tiles)}};
}

CheckpointTensor tensor_from_json(const json& entry) {
  CheckpointTensor tensor{entry.at("name"), layout_from(entry), {}};
  for (const json& tile : entry.at("tiles")) {
    tensor.tiles.push_back({{tile.at("offset"), tile.at("size")}, tile.at("file"), tile.at("hash")});
  }
  return tensor;
}

std::string manifest_text(const Manifest& manifest) {
  ordered_json content = {{"format", kFormat},        {"version", kCheckpointVersion},
                          {"step", manifest.step},    {"run", manifest.run},
                          {"state", manifest.state},  {"files", manifest.files},
                          {"others", manifest.others}};
  ordered_json& tensors = content["tensors"] = ordered_json::array();
  for (const CheckpointTensor& tensor : manifest.tensors) tensors.push_back(to_json(tensor));
  content["checksum"] = checksum_of(json::parse(content.dump()));
  return content.dump() + "\n";
}

std::string manifest_path(const std::string& folder) { return io::join_path(folder, "manifest.json"); }
bool is_checkpoint(const std::string& folder) { return io::exists(manifest_path(folder)); }

Manifest read_manifest(const std::string& folder) {
  const std::string path = manifest_path(folder);
  const auto fault = [&](const char* name, const std::string& what) {
    return Error(ErrorKind::Checkpoint, name, what).in(path);
  };
  if (!io::exists(path)) throw fault("NO-MANIFEST", "the checkpoint has no manifest");
  json content = io::read_json_file(path, ErrorKind::Checkpoint);
  try {
    require(content.is_object() && content.value("format", "") == kFormat, "not a checkpoint's manifest");
    const int64_t version = content.at("version");
    if (version != kCheckpointVersion) {
      throw fault("VERSION", "the checkpoint has another format version")
          .got(std::to_string(version))
          .need(std::to_string(kCheckpointVersion));
    }
    const std::string checksum = content.at("checksum");
    content.erase("checksum");
    require(checksum == checksum_of(content), "its checksum differs: the file is damaged");
    return parse(content);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw fault("MANIFEST", std::string("the manifest is not sound: ") + error.what());
  }
}

}  // namespace tessera::checkpoint
