#include "tessera/checkpoint/whole_model.h"

#include <optional>
#include <unordered_map>
#include <utility>

namespace tessera::checkpoint {
namespace {

constexpr std::pair<const char*, const char*> kNames[] = {  // older, newer
    {"language_model.model.", "model.language_model."},
    {"language_model.lm_head.", "lm_head."}};

// The tensors of the text part, which the files may hold under older names.
class TextPart : public StoredTensors {
 public:
  explicit TextPart(std::shared_ptr<const StoredTensors> files)
      : StoredTensors(files->place(), specs_of(*files)), files_(std::move(files)) {
    for (const io::TensorSpec& tensor : files_->tensors()) stored_[text_name(tensor.name)] = tensor.name;
  }

  void read(const std::string& name, const parallel::Box& box, const at::Tensor& destination) const override {
    files_->read(stored_.at(name), box, destination);
  }
  std::optional<io::BlockForm> form(const std::string& name) const override {
    return files_->form(stored_.at(name));
  }
  void read_blocks(const std::string& name, const parallel::Box& box,
                   const at::Tensor& destination) const override {
    files_->read_blocks(stored_.at(name), box, destination);
  }
  void add_sample(ContentHash& hash) const override { files_->add_sample(hash); }

 private:
  static std::vector<io::TensorSpec> specs_of(const StoredTensors& files) {
    std::vector<io::TensorSpec> specs;
    for (io::TensorSpec tensor : files.tensors()) {
      if (!is_of_text_part(tensor.name)) continue;
      tensor.name = text_name(tensor.name);
      specs.push_back(std::move(tensor));
    }
    return specs;
  }

  std::shared_ptr<const StoredTensors> files_;
  std::unordered_map<std::string, std::string> stored_;
};

}  // namespace

bool is_in_text_body(const std::string& name) { return name.starts_with(std::string(kTextBody) + "."); }

bool is_of_text_part(const std::string& name) {
  for (const auto& [older, newer] : kNames) {
    if (name.starts_with(older) || name.starts_with(newer)) return true;
  }
  return false;
}

std::string text_name(const std::string& stored) {
  for (const auto& [older, newer] : kNames) {
    if (stored.starts_with(older)) return newer + stored.substr(std::char_traits<char>::length(older));
  }
  return stored;
}

std::string older_text_name(const std::string& name) {
  for (const auto& [older, newer] : kNames) {
    if (name.starts_with(newer)) return older + name.substr(std::char_traits<char>::length(newer));
  }
  return name;
}

WholeModel::WholeModel(std::shared_ptr<const StoredTensors> files) : files_(std::move(files)) {
  for (const io::TensorSpec& tensor : files_->tensors()) {
    if (!is_of_text_part(tensor.name)) others_.push_back(tensor);
    has_older_names_ = has_older_names_ || tensor.name.starts_with(kNames[0].first);
  }
}

std::shared_ptr<const StoredTensors> WholeModel::text_part() const {
  return std::make_shared<const TextPart>(files_);
}

int64_t WholeModel::other_bytes() const {
  int64_t bytes = 0;
  for (const io::TensorSpec& tensor : others_) bytes += tensor.num_bytes();
  return bytes;
}

StateDictAdapter WholeModel::with_stored_names(const StateDictAdapter& table) const {
  if (!has_older_names_) return table;
  std::vector<StoredParameter> parameters = table.parameters();
  for (StoredParameter& parameter : parameters) {
    for (StoredPart& part : parameter.parts) part.name = older_text_name(part.name);
  }
  return StateDictAdapter(std::move(parameters));
}

}  // namespace tessera::checkpoint
