#include <array>

#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/shared_library.h"
#include "tessera/core/strings.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/data/readers/table_api.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

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
    const char* text = nullptr;
    size_t size = 0;
    const int32_t result = api_.next(table_, &text, &size);
    if (result == 0) return false;
    record = RawRecord{};
    record.line = 0;
    record.column = 0;
    record.element = ++row_;
    const std::string place = path_ + ": row " + std::to_string(row_);
    if (result == kTesseraTableRowTooLong) {
      throw Error(ErrorKind::Data, "ELEMENT-TOO-LONG", text)
          .in(place)
          .need("at most " + format_bytes(kMaxRecordBytes) + " as JSON");
    }
    if (result < 0) {
      can_continue_ = false;
      throw error_of(result, "the file cannot be read on", text, place);
    }
    record.text.assign(text, size);
    return true;
  }

  void skip(int64_t count, int64_t, int64_t) override {
    const char* text = nullptr;
    const int32_t result = api_.skip(table_, count, &text);
    if (result < 0) {
      throw error_of(result, "the file cannot be read on", text,
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
