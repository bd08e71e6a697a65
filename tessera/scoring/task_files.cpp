#include "tessera/scoring/task_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "tessera/config/resolve_paths.h"
#include "tessera/config/yaml_reader.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/run_inputs.h"
#include "tessera/scoring/read_task.h"
#include "tessera/scoring/yaml_values.h"

namespace tessera::scoring {
namespace {

namespace fs = std::filesystem;
using config::Entry;
using config::Node;

constexpr int kMaxIncludes = 16;  // files that include one another
constexpr int kMaxGroups = 16;    // groups in groups
constexpr char kBuiltinFolder[] = "built-in task ";

// A file's folder, and the text of files in it; the built-in files are a folder of their own.
class TaskFolder {
 public:
  explicit TaskFolder(std::string path) : path_(std::move(path)) {}
  static TaskFolder builtin() { return TaskFolder(kBuiltinFolder); }
  bool is_builtin() const { return path_ == kBuiltinFolder; }

  // Reads a file, with those that it includes.
  Node read(const std::string& name, int depth = 0) const {
    const std::string file = is_builtin() ? path_ + name : path_ == "." ? name : io::join_path(path_, name);
    const config::Place place{std::make_shared<const std::string>(file), 0, 0};
    Node map = config::parse_yaml(is_builtin() ? source_of(name) : config::read_config_file(file), place,
                                  config::KeepTags::Yes);
    if (!map.is_map()) throw config::config_error("TASK-FILE", "a task file is a map of keys", place);
    return merged(std::move(map), depth);
  }

  // Adds the keys of the files that the map includes, in the place of keys that it lacks. A file that is not
  // there may be a built-in one.
  Node merged(Node map, int depth = 0) const {
    const Entry* include = map.find("include");
    if (include == nullptr) return map;
    if (depth == kMaxIncludes)
      throw config::config_error("TASK-INCLUDE", "task files include one another", include->value.place);
    std::vector<std::string> names = texts_of(*include);
    map.erase("include");
    // The last of several files that has a key gives it.
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      const fs::path path(*name);
      const std::string file = is_builtin() ? "" : io::join_path(path_, *name);
      const bool takes_builtin = is_builtin() || (!io::exists(file) && path.parent_path().empty() &&
                                                  is_builtin_file(path.stem().string()));
      Node base = takes_builtin ? builtin().read(path.stem().string(), depth + 1)
                                : TaskFolder(io::parent_path(file)).read(path.filename().string(), depth + 1);
      for (Entry& entry : base.entries) {
        if (map.find(entry.key) == nullptr) map.entries.push_back(std::move(entry));
      }
    }
    return map;
  }

  // Returns the names of the task files in the folder.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    if (is_builtin()) {
      for (const TaskFile& file : builtin_task_files()) names.emplace_back(file.name);
      return names;
    }
    names = io::list_files(path_, ".yaml");
    const auto more = io::list_files(path_, ".yml");
    names.insert(names.end(), more.begin(), more.end());
    return names;
  }

 private:
  static bool is_builtin_file(const std::string& name) {
    return std::ranges::find(builtin_task_files(), name, &TaskFile::name) != builtin_task_files().end();
  }

  std::string source_of(const std::string& name) const {
    const auto files = builtin_task_files();
    const auto found = std::ranges::find(files, name, &TaskFile::name);
    if (found == files.end()) {
      throw Error(ErrorKind::Config, "TASK-NAME", "there is no built-in task '" + name + "'");
    }
    return std::string(found->source);
  }

  std::string path_;
};

bool is_group(const Node& map) { return map.find("group") != nullptr && map.find("dataset_path") == nullptr; }

std::string name_of(const Node& map) {
  const Entry* name = map.find(is_group(map) ? "group" : "task");
  return name != nullptr && name->value.is_scalar() ? name->value.text : "";
}

// The tasks and groups of a folder by name. Files that cannot be read are left out: they are told of when
// they are named themselves.
using Index = std::map<std::string, Node>;

void add_to_index(const TaskFolder& folder, Node map, Index& index) {
  // The built-in tasks of a group can be named alone.
  if (is_group(map) && folder.is_builtin()) {
    for (const Node& item : map.find("task") != nullptr ? map.find("task")->value.items : std::vector<Node>())
      if (item.is_map()) add_to_index(folder, folder.merged(item), index);
  }
  // A task in a group may be no more than the name of another one, with keys to change.
  if (!is_group(map) && map.find("dataset_path") == nullptr) return;
  if (const std::string name = name_of(map); !name.empty()) index.try_emplace(name, std::move(map));
}

Index index_of(const TaskFolder& folder) {
  Index index;
  for (const std::string& name : folder.names()) {
    try {
      add_to_index(folder, folder.read(name), index);
    } catch (const Error&) {
      if (folder.is_builtin()) throw;
    }
  }
  return index;
}

const Index& builtin_index() {
  static const Index kIndex = index_of(TaskFolder::builtin());
  return kIndex;
}

std::vector<std::string> names_with_tag(const Index& index, const std::string& tag) {
  std::vector<std::string> names;
  for (const auto& [name, map] : index) {
    const Entry* tags = map.find("tag");
    if (is_group(map) || tags == nullptr || tags->value.is_null()) continue;
    if (const auto texts = texts_of(*tags); std::ranges::find(texts, tag) != texts.end())
      names.push_back(name);
  }
  return names;
}

// Returns the built-in tasks and groups that have a file of their own, which leaves out the subjects of MMLU.
std::vector<std::string> names_of_files() {
  std::vector<std::string> names = TaskFolder::builtin().names();
  std::erase_if(names, [](const std::string& name) { return !builtin_index().contains(name); });
  return names;
}

class Selector {
 public:
  // Adds what a name stands for, seen from a folder, and returns the names of the tasks and groups.
  std::vector<std::string> add_name(const std::string& name, const Index& index, const TaskFolder& folder,
                                    int depth) {
    for (const Index* known : {&index, &builtin_index()}) {
      const bool is_own = known == &index;
      const TaskFolder& from = is_own ? folder : builtin_;
      if (const auto found = known->find(name); found != known->end())
        return {add(found->second, *known, from, depth)};
      std::vector<std::string> tagged = names_with_tag(*known, name);
      for (const std::string& one : tagged) add(known->at(one), *known, from, depth);
      if (!tagged.empty()) return tagged;
    }
    std::vector<std::string> names = builtin_task_names();
    const std::string near = nearest_name(name, names);
    throw Error(ErrorKind::Config, "TASK-NAME", "there is no task of this name")
        .got("'" + name + "'")
        .need("the path of a task file, or one of " + join(names_of_files(), ", "))
        .hint(near.empty() ? "" : "did you mean '" + near + "'?");
  }

  // `around` is the name of the group that a group stands in, which its own name then begins with, as the
  // harness names it.
  std::string add(const Node& map, const Index& index, const TaskFolder& folder, int depth,
                  const std::string& around = "") {
    const std::string name = is_group(map) && !around.empty() ? around + "::" + name_of(map) : name_of(map);
    const SourcePlace place{map.place.file ? *map.place.file : "", map.place.line, 0};
    const auto [known, is_new] = known_.try_emplace(name, place);
    if (!is_new && (known->second.file != place.file || known->second.line != place.line)) {
      throw Error(ErrorKind::Config, "TASK-NAME", "two tasks have the name '" + name + "'")
          .at(place)
          .got(known->second.file + ":" + std::to_string(known->second.line) + " and this one")
          .hint("the key task gives a task another name");
    }
    if (!is_group(map)) {
      if (!is_new) return name;
      selection_.tasks.push_back(read_task(map));
      return selection_.tasks.back().name;
    }
    if (depth == kMaxGroups)
      throw config::config_error("TASK-GROUP", "groups hold one another", map.place).got(name);
    if (!is_new) return name;
    const size_t number = selection_.groups.size();
    selection_.groups.push_back(read_group(map));
    selection_.groups.back().name = name;
    std::vector<std::string> members;
    const Entry* tasks = map.find("task");
    if (tasks == nullptr || tasks->value.is_null())
      throw config::config_error("TASK-GROUP", "a group has no key 'task'", map.place).got(name);
    std::vector<Node> items = tasks->value.items;
    if (!tasks->value.is_sequence()) items = {tasks->value};
    for (const Node& item : items) {
      const auto added = item.is_map()
                             ? std::vector<std::string>{add_inline(item, index, folder, depth + 1, name)}
                             : add_name(item.text, index, folder, depth + 1);
      members.insert(members.end(), added.begin(), added.end());
    }
    selection_.groups[number].members = std::move(members);
    return name;
  }

  TaskSelection take() { return std::move(selection_); }

 private:
  // Adds a task or group that stands inside a group: a whole one, or the name of a task and keys to change.
  std::string add_inline(const Node& item, const Index& index, const TaskFolder& folder, int depth,
                         const std::string& around) {
    Node map = folder.merged(item);
    if (!is_group(map)) {
      const std::string name = name_of(map);
      if (const auto found = index.find(name); found != index.end()) {
        for (const Entry& entry : found->second.entries) {
          if (map.find(entry.key) == nullptr) map.entries.push_back(entry);
        }
      } else if (!name.empty()) {
        map.find("task")->value.text = around + "::" + name;
      }
    }
    return add(map, index, folder, depth, around);
  }

  const TaskFolder builtin_ = TaskFolder::builtin();
  std::map<std::string, SourcePlace> known_;  // where each task or group stands
  TaskSelection selection_;
};

}  // namespace

TaskSelection select_tasks(const std::vector<std::string>& names) {
  Selector selector;
  for (const std::string& name : names) {
    if (!config::is_task_file(name)) {
      selector.add_name(name, builtin_index(), TaskFolder::builtin(), 0);
      continue;
    }
    const TaskFolder folder(io::parent_path(name));
    const Node map = folder.read(fs::path(name).filename().string());
    selector.add(map, is_group(map) ? index_of(folder) : Index(), folder, 0);
  }
  return selector.take();
}

std::vector<std::string> builtin_task_names() {
  std::vector<std::string> names;
  for (const auto& [name, map] : builtin_index()) names.push_back(name);
  return names;
}

}  // namespace tessera::scoring
