#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/shared_library.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/data/readers/table_api.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

using nlohmann::ordered_json;

// A row counts so many bytes for each value, and the bytes of its texts: about its length as JSON.
constexpr size_t kValueBytes = 8;

const TesseraTableApi* load_library(std::string& reason) {
  SharedLibrary library = SharedLibrary::own("tessera-tables.so");
  decltype(&tessera_table_api) api = nullptr;
  library.find(api, "tessera_table_api");
  reason = library.why_not();
  if (reason.empty() && api()->version != kTesseraTableApiVersion)
    reason = library.path() + " is of another version";
  return reason.empty() ? api() : nullptr;
}

const TesseraTableApi& table_api(const std::string& path) {
  static std::string reason;
  static const TesseraTableApi* const kApi = load_library(reason);
  if (kApi != nullptr) return *kApi;
  throw Error(ErrorKind::Config, "UNSUPPORTED", "parquet and arrow files cannot be read: " + reason)
      .in(path)
      .hint("build Tessera where `./dev setup` can fetch libarrow, or " + config::conversion_hint(path));
}

// Builds the value of a row from what the library hands over, or says why the row is refused.
class RowBuilder {
 public:
  TesseraTableRow functions() {
    return {.row = this,
            .begin_object = [](void* row) { return of(row).add(ordered_json::object()); },
            .begin_list = [](void* row) { return of(row).add(ordered_json::array()); },
            .end = [](void* row) { return of(row).end(); },
            .key =
                [](void* row, const char* text, size_t size) {
                  return of(row).key({text, size});
                },
            .string =
                [](void* row, const char* text, size_t size) {
                  return of(row).string({text, size});
                },
            .int64 = [](void* row, int64_t value) { return of(row).integer(value); },
            .uint64 = [](void* row, uint64_t value) { return of(row).add(value); },
            .float64 = [](void* row, double value) { return of(row).add(value); },
            .boolean = [](void* row, bool value) { return of(row).add(value); },
            .null = [](void* row) { return of(row).add(nullptr); }};
  }

  // Returns the reason why the row was refused.
  Error& refusal() { return *refusal_; }

  void take(RawRecord& record) {
    record.value = std::make_shared<const ordered_json>(std::move(root_));
    record.value_bytes = bytes_;
  }

 private:
  static RowBuilder& of(void* row) { return *static_cast<RowBuilder*>(row); }

  bool refuse(const char* name, const std::string& what) {
    refusal_ = Error(ErrorKind::Data, name, what);
    return false;
  }

  bool has_room(size_t bytes) {
    bytes_ += static_cast<int64_t>(bytes);
    if (bytes_ <= kMaxRecordBytes) return true;
    refuse("ELEMENT-TOO-LONG", "the row is too long");
    refusal_->need("at most " + format_bytes(kMaxRecordBytes));
    return false;
  }

  bool can_take(std::string_view text) {
    if (!has_room(text.size())) return false;
    if (text.find('\0') != std::string_view::npos) return refuse("ENCODING", "a NUL character");
    return find_invalid_utf8(text) < 0 || refuse("ENCODING", "invalid UTF-8");
  }

  bool key(std::string_view text) {
    key_ = text;
    return can_take(text);
  }

  bool string(std::string_view text) { return can_take(text) && add(text); }

  // The parser of JSON has another type for integers below zero, too.
  bool integer(int64_t value) { return value < 0 ? add(value) : add(static_cast<uint64_t>(value)); }

  bool add(ordered_json value) {
    if (!has_room(kValueBytes)) return false;
    ordered_json* added = &root_;
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back()->is_array()) {
      added = &open_.back()->emplace_back(std::move(value));
    } else {
      const auto [member, is_new] = open_.back()->emplace(std::move(key_), std::move(value));
      if (!is_new)
        return refuse("DUPLICATE-KEY", "the key \"" + member.key() + "\" stands twice in one object");
      added = &*member;
    }
    if (!added->is_structured()) return true;
    open_.push_back(added);
    return std::ssize(open_) <= kMaxRecordDepth ||
           refuse("JSON-DEPTH", "nested deeper than " + std::to_string(kMaxRecordDepth) + " levels");
  }

  bool end() {
    open_.pop_back();
    return true;
  }

  ordered_json root_;
  std::vector<ordered_json*> open_;  // objects and lists that have not ended; only the last one grows
  std::string key_;
  int64_t bytes_ = 0;
  std::optional<Error> refusal_;
};

class TableReader : public RecordReader {
 public:
  explicit TableReader(const std::string& path) : path_(path), api_(table_api(path)) {
    if (!io::exists(path)) throw Error(ErrorKind::Config, "NO-FILE", "there is no such file").in(path);
    io::File::open(path);  // refuses all but regular files
    std::array<char, 1024> reason = {};
    int32_t failure = 0;
    table_ = api_.open(path.c_str(), &failure, reason.data(), reason.size());
    if (table_ == nullptr) throw error_of(failure, "the file cannot be read", reason.data(), path);
    if (const std::string columns = api_.left_out(table_); !columns.empty())
      log::warn(path + ": columns of bytes are left out: " + columns);
  }
  ~TableReader() override {
    if (table_ != nullptr) api_.close(table_);
  }
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  bool next(RawRecord& record) override {
    RowBuilder row;
    const TesseraTableRow functions = row.functions();
    const char* reason = nullptr;
    const int32_t result = api_.next(table_, &functions, &reason);
    if (result == 0) return false;
    record = RawRecord{.line = 0, .column = 0, .element = ++row_};
    const std::string place = path_ + ": row " + std::to_string(row_);
    if (result == kTesseraTableRowRefused) throw row.refusal().in(place);
    if (result < 0) {
      can_continue_ = false;
      throw error_of(result, "the file cannot be read on", reason, place);
    }
    row.take(record);
    return true;
  }

  void skip(int64_t count, int64_t, int64_t) override {
    const char* reason = nullptr;
    const int32_t result = api_.skip(table_, count, &reason);
    if (result < 0) {
      throw error_of(result, "the file cannot be read on", reason,
                     path_ + ": before row " + std::to_string(row_ + 1 + count));
    }
    row_ += count;
  }

  bool can_continue() const override { return can_continue_; }

 private:
  static Error error_of(int32_t failure, const std::string& what, const char* reason,
                        const std::string& place) {
    if (failure != kTesseraTableDamaged) return io::storage_error(-failure, what, place);
    return Error(ErrorKind::Data, "TABLE", what + ": " + reason).in(place);
  }

  std::string path_;
  const TesseraTableApi& api_;
  void* table_ = nullptr;
  int64_t row_ = -1;
  bool can_continue_ = true;
};

}  // namespace

std::unique_ptr<RecordReader> open_table(const std::string& path) {
  return std::make_unique<TableReader>(path);
}

void require_table_library(const std::string& path) { table_api(path); }

}  // namespace tessera::data
