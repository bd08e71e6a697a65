#include "tessera/text/bad_words.h"

namespace tessera::text {

std::vector<std::vector<int64_t>> tokens_of_bad_word(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::vector<int64_t>> words;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return words;
  const std::string word = text.substr(first);
  const auto begins = tokenizer.encode(word), follows = tokenizer.encode(" " + word);
  words.emplace_back(begins.begin(), begins.end());
  if (!begins.empty() && follows.size() == begins.size() && follows.front() != begins.front())
    words.emplace_back(follows.begin(), follows.end());
  return words;
}

}  // namespace tessera::text
