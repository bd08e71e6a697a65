// The first byte of the input chooses the type of the dataset; the rest is its file of JSON lines.
#include <string>

#include "tessera/data/prepare.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace tessera;

const text::Tokenizer& tokenizer() {
  static const auto value = [] {
    std::string vocabulary;
    for (int i = 0; i < 94; ++i) {
      const std::string letter(1, static_cast<char>('!' + i));
      const std::string quoted = letter == "\"" || letter == "\\" ? "\\" + letter : letter;
      vocabulary += "\"" + quoted + "\": " + std::to_string(i) + ", ";
    }
    const fuzz::MemoryFile file(
        R"({"version": "1.0", "added_tokens": [{"id": 95, "content": "</s>", "special": true}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
            "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "merges": [], "vocab": {)" +
        vocabulary + "\"\u0120\": 94}}}");
    text::Tokenizer made = text::Tokenizer::from_file(file.path());
    made.set_special_token("eos_token", "</s>");
    return made;
  }();
  return value;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const char* const types[] = {"chat_template",
                                      "alpaca",
                                      "completion",
                                      "input_output",
                                      "",
                                      "sharegpt",
                                      "oasst",
                                      "context_qa",
                                      "creative_acr.load_answer",
                                      "stepwise_supervised"};
  static const auto chat_template = text::ChatTemplate::builtin("chatml");
  const fuzz::MemoryFile file(fuzz::text_of(data + 1, size - 1));
  config::DataConfig config;
  config::DatasetConfig dataset;
  dataset.path = file.path();
  dataset.ds_type = "json";
  dataset.type = types[data[0] % std::size(types)];
  config.datasets = {dataset};
  config.sequence_len = 64;
  fuzz::take_or_refuse("rows", [&] {
    data::PrepareOptions options;
    options.num_threads = 1;
    options.now = 0;
    data::prepare_data(config, tokenizer(), &chat_template, options);
  });
  return 0;
}
