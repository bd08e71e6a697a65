#include <nlohmann/json.hpp>

#include "tessera/text/chat_template/chat_template.h"

#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const auto messages = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 6 * 7?"},
          {"role": "assistant", "content": "42", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}])");
  static const auto tools = nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}])");
  fuzz::take_or_refuse("chat template", [&] {
    text::RenderOptions options;
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    options.now = 0;
    options.add_generation_prompt = true;
    text::ChatTemplate::parse(fuzz::text_of(data, size), "fuzz.jinja").render(messages, tools, options);
  });
  return 0;
}
