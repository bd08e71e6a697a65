// The requests for embeddings that an engine works on.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "tessera/generation/embed_texts.h"
#include "tessera/serving/engine.h"

namespace tessera::generation {

// One thread uses it. The model must outlive it. Receivers are not told of the end when it is destroyed.
class EmbeddingQueue {
 public:
  // Called before each pass, with its texts and their adapter.
  using OnPass = std::function<void(const std::vector<std::vector<int64_t>>& texts, int64_t adapter)>;

  // Each pass takes texts up to `max_tokens` tokens together; a longer one is read alone.
  EmbeddingQueue(models::CausalLM& model, Pooling pooling, int64_t max_tokens, OnPass on_pass = nullptr)
      : model_(model), pooling_(pooling), max_tokens_(max_tokens), on_pass_(std::move(on_pass)) {}

  void add(int64_t number, serving::EmbeddingRequest request) {
    open_.push_back({number, std::move(request)});
  }
  // Makes the embeddings of the next texts, in the order of the requests, and gives them to their receivers.
  // If that fails, the requests whose texts these are end with the reason. Returns the number of requests
  // that have ended.
  int64_t step();
  // Ends a request; returns whether it was there.
  bool cancel(int64_t number);
  // Ends all requests as cancelled.
  void cancel_all();

  bool empty() const { return open_.empty(); }
  int64_t size() const { return std::ssize(open_); }
  // The number of tokens of all texts so far.
  int64_t num_tokens() const { return num_tokens_; }

 private:
  struct Open {
    int64_t number = 0;
    serving::EmbeddingRequest request;
    size_t next = 0;  // the first text without an embedding
  };
  // A text of the next pass.
  struct Next {
    Open* open;
    size_t text;
  };
  std::vector<Next> next_texts();
  void make(const std::vector<Next>& texts);

  models::CausalLM& model_;
  const Pooling pooling_;
  const int64_t max_tokens_;
  const OnPass on_pass_;
  std::list<Open> open_;  // the oldest first
  int64_t num_tokens_ = 0;
};

}  // namespace tessera::generation
