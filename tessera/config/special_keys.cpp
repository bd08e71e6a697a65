// Keys that need more than a line of a table: the functions that Rule::Special names.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "tessera/config/dataset_entries.h"
#include "tessera/config/translator.h"
#include "tessera/config/values.h"
#include "tessera/config/yaml_reader.h"
#include "tessera/core/strings.h"

namespace tessera::config {

void Translator::apply_special(const ForeignKey& key, const Origin& origin) {
  using Function = void (Translator::*)(const ForeignKey&, const Origin&);
  static constexpr std::pair<std::string_view, Function> kFunctions[] = {
      {"deepspeed", &Translator::set_deepspeed},
      {"deepspeed_scheduler", &Translator::set_deepspeed_scheduler},
      {"deepspeed_wandb", &Translator::set_deepspeed_wandb},
      {"schedule_steps", &Translator::set_schedule_steps},
      {"betas", &Translator::set_betas},
      {"optim_args", &Translator::set_optim_args},
      {"report_to", &Translator::set_trackers},
      {"run_name", &Translator::set_run_name},
      {"pushed_model", &Translator::set_pushed_model},
      {"model_type", &Translator::check_model_type},
      {"reward_model", &Translator::set_reward_model},
      {"plugins", &Translator::check_plugins},
      {"named_datasets", &Translator::set_named_datasets},
      {"of_dataset", &Translator::check_named_datasets},
      {"pretraining", &Translator::set_pretraining},
      {"named_template", &Translator::set_named_template},
      {"lora_target", &Translator::set_lora_target},
      {"lora_modules_to_save", &Translator::set_list},
      {"tokens", &Translator::set_list},
      {"additional_special_tokens", &Translator::set_list},
      {"max_steps", &Translator::set_max_steps},
      {"ring_ranks", &Translator::set_ring_ranks},
      {"ulysses_ranks", &Translator::set_ulysses_ranks},
      {"resume", &Translator::set_resume},
      {"batch_size", &Translator::set_batch_size},
      {"dequantized", &Translator::check_dequantized},
  };
  if (is_off(origin.entry.value, "") && key.target != "batch_size") return;
  const auto function = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                     [&](const auto& candidate) { return candidate.first == key.target; });
  if (function != std::end(kFunctions)) return (this->*function->second)(key, origin);
  TESSERA_ASSERT(key.target.find('.') != std::string_view::npos,
                 "no function for the key " + std::string(key.name));
  set_property(key, origin);
}

void Translator::set_deepspeed(const ForeignKey&, const Origin& origin) {
  const Node& value = origin.entry.value;
  if (value.is_scalar()) return read_deepspeed_file(origin);
  if (!value.is_map()) throw type_error(origin, "the path of a DeepSpeed JSON file, or a map");
  translate_map(value, section("deepspeed"), origin.path + '.', origin.out);
}

void Translator::read_deepspeed_file(const Origin& origin) {
  namespace fs = std::filesystem;
  const std::string& name = origin.entry.value.text;
  std::error_code ignored;
  std::string path = name;
  if (!fs::exists(path, ignored) && fs::path(name).is_relative()) {
    const Place& place = origin.entry.value.place;
    const fs::path own_folder = place.file && !place.is_override ? fs::path(*place.file).parent_path() : "";
    for (const fs::path& folder : {own_folder, fs::path(folder_)}) {
      if (path == name && fs::exists(folder / name, ignored)) path = (folder / name).string();
    }
  }
  if (!fs::exists(path, ignored)) {
    throw config_error("NOT-FOUND", "key '" + origin.path + "': no such file", origin.entry.value.place)
        .got(describe(origin.entry.value))
        .need("a DeepSpeed JSON file")
        .hint("instead of the usual zero1, zero2 and zero3 files you can write zero_stage: 1, 2 or 3");
  }
  Place file;
  file.file = std::make_shared<const std::string>(path);
  const Node document = parse_yaml(read_config_file(path), file);
  if (!document.is_map()) {
    throw config_error("TYPE", "a DeepSpeed configuration is a JSON object", document.place)
        .got(describe(document));
  }
  // Errors name the keys as that file spells them, without the recipe's prefix.
  translate_map(document, section("deepspeed"), "", origin.out);
}

void Translator::set_deepspeed_scheduler(const ForeignKey&, const Origin& origin) {
  if (!origin.entry.value.is_map()) throw type_error(origin, "a map");
  Node scheduler = origin.entry.value;
  const Entry* params = origin.entry.value.find("params");
  const auto is_given = [&](const char* key) {
    return params != nullptr && params->value.is_map() && params->value.find(key) != nullptr;
  };
  const Entry* type = origin.entry.value.find("type");
  const std::string kind = type != nullptr && type->value.is_scalar() ? lower(type->value.text) : "";
  const Entry* own = file_->find("lr_scheduler");
  const std::string own_kind = own != nullptr && own->value.is_scalar() ? own->value.text : "";
  constexpr std::pair<const char*, const char*> kOfTransformers[] = {
      {"warmuplr", "constant_with_warmup"}, {"warmupdecaylr", "linear"}, {"warmupcosinelr", "cosine"}};
  const std::string prefix = place_prefix(origin.entry.key_place) + "key '" + origin.path + "': ";
  bool is_own = false, has_default = false;
  for (const auto& [theirs, of_transformers] : kOfTransformers) {
    has_default |= kind == theirs;
    is_own |= kind == theirs && own_kind == of_transformers;
  }
  if (is_own) {
    scheduler.erase("type");
    problems_.warn(
        prefix + "the schedule is that of the recipe, lr_scheduler: " + own_kind +
        "; DeepSpeed's comes one update later, and its warm-up is logarithmic unless warmup_type is linear");
  }
  if (kind == "warmupdecaylr" && !is_given("warmup_max_lr"))
    problems_.warn(prefix + "its peak is learning_rate; DeepSpeed's default for warmup_max_lr is 0.001");
  translate_map(scheduler, section("deepspeed.scheduler"), origin.path + '.', origin.out);
  // Sets the default of DeepSpeed where neither its params nor the recipe say anything.
  const auto set_default = [&](const char* key, const char* value) {
    if (has_default && file_->find(key) == nullptr)
      set_native(key, make_scalar(value, origin.entry.value.place), origin);
  };
  if (!is_given("warmup_num_steps") && file_->find("warmup_ratio") == nullptr)
    set_default("warmup_steps", "1000");
  if (!is_given("warmup_type") && !is_own) set_default("lr_warmup_type", "log");
  if (!is_given("cos_min_ratio") && kind == "warmupcosinelr") set_default("cosine_min_lr_ratio", "0.0001");
}

// Reads {"wandb": {"enabled": true, "project": ..., "team": ...}}.
void Translator::set_deepspeed_wandb(const ForeignKey&, const Origin& origin) {
  const Node& map = origin.entry.value;
  if (!map.is_map()) throw type_error(origin, "a map");
  const Entry* enabled = map.find("enabled");
  if (enabled == nullptr || is_off(enabled->value, "auto")) return;
  set_native("use_wandb", enabled->value, origin);
  for (const auto& [theirs, ours] :
       {std::pair("project", "wandb_project"), std::pair("team", "wandb_entity")}) {
    if (const Entry* entry = map.find(theirs)) set_native(ours, entry->value, origin);
  }
}

// Sets max_steps to the steps of DeepSpeed's schedule, which is how long such a run goes.
void Translator::set_schedule_steps(const ForeignKey&, const Origin& origin) {
  set_native("max_steps", origin.entry.value, origin);
  const Entry* own = file_->find("max_steps");
  if (own == nullptr || own->value.is_null())
    problems_.warn("key '" + origin.path + "' ends the run: max_steps: " + origin.entry.value.text);
}

void Translator::set_betas(const ForeignKey&, const Origin& origin) {
  const Node betas = list_of(origin.entry.value);
  const size_t count = betas.is_sequence() ? betas.items.size() : 0;
  if (count != 2 && count != 3) throw type_error(origin, "a list of 2 or 3 numbers");
  set_native("adam_beta1", betas.items[0], origin);
  set_native("adam_beta2", betas.items[1], origin);
  if (count == 3) set_entry("optimizer_args", "adam_beta3", betas.items[2], origin);
}

void Translator::set_optim_args(const ForeignKey&, const Origin& origin) {
  const Node& value = origin.entry.value;
  const auto map = value.is_map() ? value : assignments_of(value, origin.entry.key_place);
  if (!map) throw type_error(origin, "a map, or a text key=value, key=value");
  translate_map(*map, section("optim_args"), origin.path + '.', origin.out);
}

void Translator::set_trackers(const ForeignKey&, const Origin& origin) {
  const Node names = list_of(origin.entry.value);
  if (!names.is_sequence()) throw type_error(origin, "a name, or a list of names");
  for (const Node& name : names.items) {
    if (!name.is_scalar()) throw type_error(origin, "a name, or a list of names");
    const std::string tracker = lower(name.text);
    if (tracker == "wandb" || tracker == "mlflow") {
      set_native("use_" + tracker, make_scalar("true", name.place), origin);
    } else if (tracker != "none" && tracker != "tensorboard") {
      note_ignored(origin);
    }
  }
}

void Translator::set_run_name(const ForeignKey&, const Origin& origin) {
  set_native("wandb_name", origin.entry.value, origin);
  set_native("mlflow_run_name", origin.entry.value, origin);
}

// Takes the name of a repository where Transformers would upload to it.
void Translator::set_pushed_model(const ForeignKey&, const Origin& origin) {
  const Entry* push = file_->find("push_to_hub");
  if (push == nullptr || is_off(push->value, "")) return note_ignored(origin);
  set_native("hub_model_id", origin.entry.value, origin);
}

// Checks the name of a model class. The folder's config.json decides what the model is; a class of another
// kind of model asks for something that is not supported.
void Translator::check_model_type(const ForeignKey&, const Origin& origin) {
  const Node& value = origin.entry.value;
  if (!value.is_scalar()) throw type_error(origin, "text");
  // A reward model is a model of this class.
  const Entry* reward = file_->find("reward_model");
  if (reward != nullptr && !is_off(reward->value, "") && value.text.ends_with("ForSequenceClassification"))
    return;
  if (value.text.ends_with("ForTokenClassification"))
    return set_native("task", make_scalar("token_classification", value.place), origin);
  if (value.text.ends_with("ForSequenceClassification"))
    return set_native("task", make_scalar("classification", value.place), origin);
  if (value.text.ends_with("ForSeq2SeqLM") || value.text.ends_with("T5ForConditionalGeneration"))
    return set_native("task", make_scalar("seq2seq", value.place), origin);
  if (value.text.ends_with("ForMaskedLM"))
    return set_native("task", make_scalar("masked_lm", value.place), origin);
  for (const std::string_view kind : {"Classification", "ImageTextToText", "ConditionalGeneration",
                                      "QuestionAnswering", "SpeechSeq2Seq", "Seq2SeqLM", "Vision2Seq"}) {
    if (value.text.find(kind) == std::string::npos) continue;
    throw config_error(
        "UNSUPPORTED",
        "key '" + origin.path +
            "': this kind of model is not supported yet; only causal and masked language models, "
            "encoder-decoders and classifiers of texts or tokens are",
        value.place)
        .got(describe(value));
  }
  if (!value.text.ends_with("ForCausalLM")) note_ignored(origin);
}

// Accepts plugins that choose kernels or report somewhere, which change no result, and refuses all others,
// since they would have to run.
void Translator::set_reward_model(const ForeignKey&, const Origin& origin) {
  set_native("task", make_scalar("reward_model", origin.entry.value.place), origin);
}

void Translator::check_plugins(const ForeignKey&, const Origin& origin) {
  const Node& value = origin.entry.value;
  const std::vector<Node> one = {value};
  for (const Node& plugin : value.is_sequence() ? value.items : one) {
    if (!plugin.is_scalar()) throw type_error(origin, "a list of names");
    const std::string name = plugin.text.substr(plugin.text.rfind('.') + 1);
    const auto is = [&](std::string_view other) { return name == std::string(other) + "Plugin"; };
    if (is("Liger") || is("CutCrossEntropy") || is("Kernels") || is("ExpertParallel")) continue;
    if (is("SwanLab") || is("LMEval")) {
      note_ignored(origin);
      continue;
    }
    throw config_error(
        "UNSUPPORTED",
        "key '" + origin.path +
            "': plugins (Python classes) cannot be loaded, and this one may change the training",
        plugin.place)
        .got(describe(plugin))
        .need("plugins that only replace kernels, such as LigerPlugin or CutCrossEntropyPlugin");
  }
}

void Translator::set_named_datasets(const ForeignKey& key, const Origin& origin) {
  // The path "datasets" (not the tool's key) makes errors about the entries name the keys of the recipe.
  const std::string list = key.name == "eval_dataset" ? "test_datasets" : "datasets";
  const auto beside = [&](const char* name) -> std::string {
    const Entry* entry = file_->find(name);
    return entry != nullptr && entry->value.is_scalar() ? entry->value.text : "";
  };
  NamedDatasets named;
  named.is_of_hub = key.name == "dataset_name";
  if (named.is_of_hub) {
    named.configuration = beside("dataset_config");
    named.split = beside("dataset_train_split");
  } else {
    const std::string folder = beside("dataset_dir"), rows = beside("max_samples");
    if (!folder.empty()) named.folder = folder;
    if (!rows.empty()) named.split = "train[:" + rows + "]";
  }
  set_native(list, named.entries(origin.entry.value, problems_), {origin.entry, list, origin.out});
}

// Accepts the keys that set_named_datasets() reads beside the names, if the names are there.
void Translator::check_named_datasets(const ForeignKey& key, const Origin& origin) {
  const char* const list = key.name == "max_samples" ? "dataset" : "dataset_name";
  if (!origin.entry.value.is_scalar()) throw type_error(origin, "text");
  if (const Entry* names = file_->find(list); names != nullptr && !names->value.is_null()) return;
  throw config_error("UNSUPPORTED",
                     "key '" + origin.path + "' needs '" + list + "' next to it, in the same file",
                     origin.entry.key_place)
      .hint("write it in the entry of datasets: " + std::string(key.values));
}

void Translator::set_pretraining(const ForeignKey&, const Origin& origin) {
  // The path "datasets" is given so that errors about the entries name the keys of the recipe, as in
  // set_named_datasets().
  const std::string list = "datasets";
  const Node& value = origin.entry.value;
  set_native(list, documents(value), {origin.entry, list, origin.out});
  set_native("streaming", make_scalar("true", value.place), origin);
}

// Maps LLaMA-Factory's templates to the built-in templates that write the same text.
void Translator::set_named_template(const ForeignKey&, const Origin& origin) {
  const Node& value = origin.entry.value;
  if (!value.is_scalar()) throw type_error(origin, "text");
  const auto ours = look_up(
      "chatml=chatml smollm=chatml yi=chatml qwen3_nothink=chatml llama3=llama3 qwen=qwen_25 phi=phi_35",
      lower(value.text));
  if (!ours) return note_ignored(origin);
  set_native("chat_template", make_scalar(*ours, value.place), origin);
}

void Translator::set_lora_target(const ForeignKey&, const Origin& origin) {
  const Node names = list_of(origin.entry.value);
  const bool is_all =
      names.items.size() == 1 && (names.items[0].text == "all" || names.items[0].text == "all-linear");
  if (is_all) {
    set_native("lora_target_linear", make_scalar("true", names.place), origin);
  } else {
    set_native("lora_target_modules", names, origin);
  }
}

void Translator::set_list(const ForeignKey& key, const Origin& origin) {
  set_native(key.target, list_of(origin.entry.value), origin);
}

void Translator::set_max_steps(const ForeignKey& key, const Origin& origin) {
  if (origin.entry.value.text != "-1") set_native(key.target, origin.entry.value, origin);
}

// Accelerate writes the ring and the Ulysses key both, one of which is 1 and has no effect.
void Translator::set_ring_ranks(const ForeignKey&, const Origin& origin) {
  if (origin.entry.value.text != "1") set_native("context_parallel_size", origin.entry.value, origin);
}

void Translator::set_ulysses_ranks(const ForeignKey& key, const Origin& origin) {
  const Node& value = origin.entry.value;
  if (value.text == "1") return;
  set_ring_ranks(key, origin);
  set_native("context_parallel_method", make_scalar("ulysses", value.place), origin);
}

void Translator::set_resume(const ForeignKey&, const Origin& origin) {
  const bool is_switch = canonical(origin.entry.value) == "true";
  set_native(is_switch ? "auto_resume_from_checkpoints" : "resume_from_checkpoint", origin.entry.value,
             origin);
}

// Keeps `batch_size`, the rows of a step and a rank; settle_keys() applies it when micro_batch_size is known.
void Translator::set_batch_size(const ForeignKey&, const Origin& origin) {
  set_native("batch_size", origin.entry.value, origin);
}

void Translator::check_dequantized(const ForeignKey&, const Origin& origin) {
  const Entry* arguments = file_->find("model_quantization_config_kwargs");
  const Entry* dequantize =
      arguments != nullptr && arguments->value.is_map() ? arguments->value.find("dequantize") : nullptr;
  if (dequantize != nullptr && dequantize->value.is_scalar() && canonical(dequantize->value) == "true")
    return;
  throw config_error("UNSUPPORTED",
                     "key '" + origin.path +
                         "': quantised weights are not supported yet; base weights stay in 16 "
                         "or 32 bits",
                     origin.entry.key_place)
      .got(describe(origin.entry.value))
      .hint("leave it out, or write model_quantization_config_kwargs: {dequantize: true}");
}

void Translator::set_property(const ForeignKey& key, const Origin& origin) {
  const size_t dot = key.target.find('.');
  set_entry(std::string(key.target.substr(0, dot)), std::string(key.target.substr(dot + 1)),
            origin.entry.value, origin);
}

void Translator::set_entry(const std::string& name, const std::string& property, const Node& given,
                           const Origin& origin) {
  Node value = given;
  if (name == "optimizer_args") quote_boolean(value);
  if (name == "model_config") make_json(value);
  Entry* map = origin.out.find(name);
  if (map == nullptr) {
    Node fresh;
    fresh.kind = Node::Kind::Map;
    fresh.place = value.place;
    origin.out.entries.push_back({name, origin.entry.key_place, fresh, ""});
    map = &origin.out.entries.back();
  }
  if (const Entry* other = map->value.find(property)) {
    if (!same_value(property, other->value, value)) throw conflict(*other, origin, value);
    return;
  }
  map->value.entries.push_back({property, origin.entry.key_place, value, ""});
}

}  // namespace tessera::config
