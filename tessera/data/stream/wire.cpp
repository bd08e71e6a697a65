#include "tessera/data/stream/wire.h"

#include <cstring>
#include <utility>

namespace tessera::data {
namespace {

constexpr const char* kCutOff = "a message of another rank is cut off";

enum class Outcome : uint64_t { Done, Failed };

}  // namespace

void WireWriter::number(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

void WireWriter::text(std::string_view text) {
  number(text.size());
  bytes_ += text;
}

void WireWriter::ids(std::span<const int32_t> ids) {
  text({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
}

void WireWriter::error(const Error& error) {
  number(static_cast<uint64_t>(error.kind()));
  // The code is "E-<KIND>-<NAME>". What is sent are the parts from which Error's constructor makes it again.
  const std::string_view code = error.code();
  text(code.substr(code.find('-', 2) + 1));
  text(error.message());
}

uint64_t WireReader::number() {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    TESSERA_ASSERT(at_ < bytes_.size() && shift < 64, kCutOff);
    const auto byte = static_cast<uint8_t>(bytes_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::string_view WireReader::text() {
  const uint64_t size = number();
  TESSERA_ASSERT(size <= bytes_.size() - at_, kCutOff);
  return bytes_.substr(std::exchange(at_, at_ + size), size);
}

std::vector<int32_t> WireReader::ids() {
  const std::string_view raw = text();
  std::vector<int32_t> ids(raw.size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), raw.data(), ids.size() * sizeof(int32_t));
  return ids;
}

Error WireReader::error() {
  const auto kind = static_cast<ErrorKind>(number());
  const std::string_view name = text();
  return {kind, name, std::string(text())};
}

WireWriter begin_message() {
  WireWriter out;
  out.number(static_cast<uint64_t>(Outcome::Done));
  return out;
}

std::string failure_message(const std::exception_ptr& failure, size_t rank) {
  WireWriter out;
  out.number(static_cast<uint64_t>(Outcome::Failed));
  const auto of_rank = [&](ErrorKind kind, const char* text) {
    return Error(kind, "OTHER-RANK",
                 "rank " + std::to_string(rank) + " could not make its share of the rows: " + text);
  };
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    out.error(error.kind() == ErrorKind::Data ? error : of_rank(error.kind(), error.what()));
  } catch (const std::exception& error) {
    out.error(of_rank(ErrorKind::Internal, error.what()));
  }
  return out.take();
}

WireReader open_message(std::string_view message) {
  WireReader in(message);
  if (static_cast<Outcome>(in.number()) == Outcome::Failed) throw in.error();
  return in;
}

}  // namespace tessera::data
