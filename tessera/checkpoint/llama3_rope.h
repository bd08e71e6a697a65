// Finds the rule by which Llama 3.1 scales its rotary frequencies in the numbers that it gave.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera::checkpoint {

// The keys of rope_scaling in config.json. Frequencies whose wave is shorter than original_length /
// high_freq_factor stay, those with a wave longer than original_length / low_freq_factor are divided by
// `factor`, and those between by something between.
struct Llama3Rope {
  double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
  int64_t original_length = 8192;
};

// Returns the number by which the rule divides a frequency.
double llama3_divisor(const Llama3Rope& rule, double frequency);

// Returns the divisors of the head_dim / 2 frequencies theta^(-2i / head_dim), highest frequency first.
std::vector<float> llama3_divisors(const Llama3Rope& rule, double theta, int64_t head_dim);

// Returns a rule that gives these divisors for the frequencies theta^(-i / n), to within the roundings of
// float32; nothing if there is none. Rules that give the same divisors differ in nothing else; of these the
// usual one is preferred, with the lengths and factors of the published models.
std::optional<Llama3Rope> fit_llama3_rope(std::span<const float> divisors, double theta);

}  // namespace tessera::checkpoint
