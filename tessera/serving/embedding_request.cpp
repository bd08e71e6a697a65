#include "tessera/serving/embedding_request.h"

#include <bit>
#include <charconv>
#include <string_view>

#include "tessera/core/base64.h"
#include "tessera/serving/answer_fields.h"
#include "tessera/serving/reply_format.h"
#include "tessera/serving/requests.h"

namespace tessera::serving {
namespace {

static_assert(std::endian::native == std::endian::little, "vectors are written as they lie in memory");

void check_length(int64_t tokens, size_t text, const EngineFacts& facts) {
  const std::string which = "input " + std::to_string(text);
  if (tokens == 0) throw ApiError::bad(which + " has no tokens", "input");
  if (tokens <= facts.context) return;
  throw ApiError::bad(which + " has " + std::to_string(tokens) + " tokens, but the model's context is " +
                          std::to_string(facts.context) + " tokens",
                      "input", "context_length_exceeded");
}

bool is_base64(Fields& fields) {
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    throw fields.problem("encoding_format", "\"float\" or \"base64\" is needed");
  return format == "base64";
}

void refuse_fields(Fields& fields, const EngineFacts& facts) {
  fields.refuse_unless(
      "dimensions", facts.embedding_size,
      "vectors of this model have " + std::to_string(facts.embedding_size) + " numbers and are not cut");
  fields.refuse_unless("truncate_prompt_tokens", Json(), "a text is not cut");
  fields.refuse_unless("messages", Json(), "conversations are not supported here; give texts as input");
  fields.refuse_unless("embed_dtype", "float32", "only float32 is supported");
  fields.refuse_unless("endianness", "little", "only little is supported");
  fields.ignore({"user", "priority", "request_id", "cache_salt", "metadata"});
}

std::string as_array(const std::vector<float>& values) {
  std::string text = "[";
  for (const float value : values) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    if (text.size() > 1) text += ',';
    text.append(digits, end);
  }
  return text + ']';
}

std::string as_bytes(const std::vector<float>& values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return '"' + base64(bytes) + '"';
}

}  // namespace

EmbeddingFields read_embedding(const Json& body, const ServedModel& model, const EngineFacts& facts) {
  if (!facts.no_embeddings.empty())
    throw ApiError::bad("this model makes no embeddings: " + facts.no_embeddings, "model");
  Fields fields(body);
  fields.ignore({"model"});  // Service has read it
  EmbeddingFields read;
  for (TokenPrompt& prompt : read_prompts(fields, "input", /*echoes=*/false, model, facts)) {
    check_length(std::ssize(prompt.ids), read.texts.size(), facts);
    read.num_tokens += std::ssize(prompt.ids);
    read.texts.push_back(std::move(prompt.ids));
  }
  read.is_base64 = is_base64(fields);
  read.normalizes = fields.boolean("normalize", true);
  refuse_fields(fields, facts);
  read.unknown = fields.unknown();
  return read;
}

std::string embedding_reply(const EmbeddingFields& fields, std::span<const std::vector<float>> vectors,
                            const std::string& model) {
  // Millions of numbers are written as text at once; a tree of JSON values would take several times as much
  // memory.
  std::string text = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < vectors.size(); ++i) {
    text += std::string(i == 0 ? "" : ",") + "{\"object\":\"embedding\",\"index\":" + std::to_string(i) +
            ",\"embedding\":" + (fields.is_base64 ? as_bytes(vectors[i]) : as_array(vectors[i])) + "}";
  }
  const std::string count = std::to_string(fields.num_tokens);
  return text + "],\"model\":" + text_of(model) + ",\"usage\":{\"prompt_tokens\":" + count +
         ",\"total_tokens\":" + count + "}}";
}

}  // namespace tessera::serving
