#include <string>

#include "tessera/serving/embedding_request.h"
#include "tessera/serving/requests.h"

#include "tests/fuzz/fuzz_target.h"

namespace {

// The text, the reasoning and the calls of an answer that comes in pieces of `size` bytes.
std::string told(const tessera::text::ToolFormat& format, const std::string& text, size_t size) {
  using namespace tessera::text;
  auto reading = std::make_shared<CallReading>();
  reading->format = &format;
  reading->tools["f"] = nlohmann::ordered_json::object();
  ToolCallStream stream(reading);
  std::string whole, reasoning, calls;
  const auto take = [&](const AnswerDelta& delta) {
    whole += delta.text;
    reasoning += delta.reasoning;
    for (const CallDelta& call : delta.calls) calls += "\n" + call.name + call.arguments;
  };
  for (size_t i = 0; i < text.size(); i += size) take(stream.add(text.substr(i, size)));
  take(stream.finish());
  return whole + "\n" + reasoning + calls;
}

}  // namespace

// An answer, whose text, reasoning and calls do not depend on its pieces. And the body of a request, which is
// read as one of both protocols and as one for embeddings, and either refused or made into answers, or texts,
// that fit into the context.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const text::Tokenizer tokenizer = text::Tokenizer::from_file(
      fuzz::MemoryFile(R"({"version": "1.0", "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
          "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]}})")
          .path());
  static const serving::ServedModel model{
      .name = "fuzz",
      .tokenizer = tokenizer,
      .chat_template = std::make_shared<const text::ChatTemplate>(text::ChatTemplate::builtin("chatml")),
      .no_template = "",
      .tool_format = text::tool_formats().data(),
      .stop_ids = {4},
      .max_answer_tokens = 8,
      .constraints = std::make_shared<text::ConstraintMaker>(tokenizer, 5)};
  const serving::EngineFacts facts{.vocabulary = 5, .context = 64, .cache_tokens = 128};
  const std::string text(fuzz::text_of(data, size));
  for (const text::ToolFormat& format : text::tool_formats()) {
    if (told(format, text, text.size() + 1) != told(format, text, 3)) std::abort();
  }
  for (const bool is_chat : {false, true}) {
    fuzz::take_or_refuse("request", [&] {
      try {
        const serving::Json body = serving::parse_body(text);
        const serving::AnswerRequest request =
            is_chat ? serving::read_chat(body, model, facts) : serving::read_completion(body, model, facts);
        for (size_t i = 0; i < request.plans.size(); ++i) {
          const auto prompt = std::ssize(request.plans[i].prompt);
          if (prompt < 1 || request.max_new_tokens[i] < 1 ||
              prompt + request.max_new_tokens[i] > facts.context + 1)
            std::abort();
        }
      } catch (const serving::ApiError& error) {
        if (error.status() >= 500 || error.body().size() > 4000) std::abort();
      }
    });
  }
  fuzz::take_or_refuse("embedding", [&] {
    try {
      for (const auto& ids : serving::read_embedding(serving::parse_body(text), model, facts).texts) {
        if (ids.empty() || std::ssize(ids) > facts.context) std::abort();
      }
    } catch (const serving::ApiError& error) {
      if (error.status() >= 500 || error.body().size() > 4000) std::abort();
    }
  });
  return 0;
}
