// Initial values of parameters before any training; the modules that own the parameters give them.
#pragma once

#include <string_view>

namespace tessera::nn {

struct InitialValue {
  enum class Kind { Zeros, Ones, Constant, Normal, Gaussian, Uniform, LogUniform };
  Kind kind = Kind::Zeros;
  // Constant: the value. Normal: the standard deviation as a multiple of the one in the model's
  // configuration. Gaussian: the standard deviation. Uniform: values lie in [-scale, scale).
  // LogUniform: values are logarithms of numbers that are uniform in [least, scale).
  double scale = 1.0, least = 0.0;

  static InitialValue zeros() { return {Kind::Zeros}; }
  static InitialValue ones() { return {Kind::Ones}; }
  static InitialValue constant(double value) { return {Kind::Constant, value}; }
  static InitialValue normal(double multiple = 1.0) { return {Kind::Normal, multiple}; }
  static InitialValue gaussian(double standard_deviation) { return {Kind::Gaussian, standard_deviation}; }
  static InitialValue uniform(double bound) { return {Kind::Uniform, bound}; }
  static InitialValue log_uniform(double least, double most) { return {Kind::LogUniform, most, least}; }
};

// A module with parameters of its own derives from this beside torch::nn::Module.
class HasInitialValues {
 public:
  virtual ~HasInitialValues() = default;
  // Returns the initial value of the module's own parameter `name` (such as "weight"); parameters of its
  // children are not asked for here.
  virtual InitialValue initial_value(std::string_view name) const = 0;
};

}  // namespace tessera::nn
