// tessera-tables.so: parquet and arrow files as rows of values, by libarrow and libparquet.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/api.h>
#include <arrow/util/float16.h>
#include <arrow/util/io_util.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/properties.h>

#include "tessera/data/readers/table_api.h"

namespace {

// Rows that are decoded at a time: at most so many, and fewer where the columns' sizes say that rows are
// long.
constexpr int64_t kBatchRows = 64;
constexpr int64_t kBatchBytes = int64_t{16} << 20;
constexpr int64_t kBufferBytes = int64_t{1} << 20;
// A file may take this much memory and twice its own size. Pages and batches that unpack to more are refused
// before they are unpacked.
constexpr int64_t kMemoryBytes = int64_t{512} << 20;

void require(const arrow::Status& status) {
  if (!status.ok()) throw parquet::ParquetStatusException(status);
}

template <class T>
T value_of(arrow::Result<T>&& result) {
  require(result.status());
  return std::move(result).ValueUnsafe();
}

// Thrown where a row is refused by the one who takes its values.
struct RowRefused : std::exception {};

// Returns what a call gives for the exception that is being handled, and puts its reason into `text`.
int32_t failure_of(std::string& text) {
  try {
    throw;
  } catch (const RowRefused&) {
    return kTesseraTableRowRefused;
  } catch (const parquet::ParquetStatusException& failure) {
    text = failure.status().message();
    if (failure.status().IsOutOfMemory())
      text = "its rows decompress to more memory than is allowed for a file of this size (" + text +
             "); write it with smaller row groups and pages";
    const int number = arrow::internal::ErrnoFromStatus(failure.status());
    // Damaged bytes may name offsets that no file has: EINVAL is then the fault of the bytes.
    return number > 0 && number != EINVAL ? -number : kTesseraTableDamaged;
  } catch (const std::exception& failure) {
    text = failure.what();
    return kTesseraTableDamaged;
  }
}

bool is_bytes(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::FIXED_SIZE_BINARY: return true;
    default: return false;
  }
}

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

// Hands a row over, a value at a time.
class Row {
 public:
  explicit Row(const TesseraTableRow& to) : to_(to) {}

  void begin_object() const { require(to_.begin_object(to_.row)); }
  void end() const { require(to_.end(to_.row)); }
  void key(std::string_view text) const { require(to_.key(to_.row, text.data(), text.size())); }

  void value(const arrow::Array& array, int64_t row) const {
    if (is_nothing(array, row)) return require(to_.null(to_.row));
    switch (array.type_id()) {
      case arrow::Type::BOOL: return require(to_.boolean(to_.row, as<arrow::BooleanArray>(array).Value(row)));
      case arrow::Type::INT8: return require(to_.int64(to_.row, as<arrow::Int8Array>(array).Value(row)));
      case arrow::Type::INT16: return require(to_.int64(to_.row, as<arrow::Int16Array>(array).Value(row)));
      case arrow::Type::INT32: return require(to_.int64(to_.row, as<arrow::Int32Array>(array).Value(row)));
      case arrow::Type::INT64: return require(to_.int64(to_.row, as<arrow::Int64Array>(array).Value(row)));
      case arrow::Type::UINT8: return require(to_.uint64(to_.row, as<arrow::UInt8Array>(array).Value(row)));
      case arrow::Type::UINT16: return require(to_.uint64(to_.row, as<arrow::UInt16Array>(array).Value(row)));
      case arrow::Type::UINT32: return require(to_.uint64(to_.row, as<arrow::UInt32Array>(array).Value(row)));
      case arrow::Type::UINT64: return require(to_.uint64(to_.row, as<arrow::UInt64Array>(array).Value(row)));
      case arrow::Type::FLOAT: return number(as<arrow::FloatArray>(array).Value(row));
      case arrow::Type::DOUBLE: return number(as<arrow::DoubleArray>(array).Value(row));
      case arrow::Type::HALF_FLOAT: {
        const uint16_t bits = as<arrow::HalfFloatArray>(array).Value(row);
        return number(arrow::util::Float16::FromBits(bits).ToFloat());
      }
      case arrow::Type::STRING: return string(as<arrow::StringArray>(array).GetView(row));
      case arrow::Type::LARGE_STRING: return string(as<arrow::LargeStringArray>(array).GetView(row));
      case arrow::Type::STRING_VIEW: return string(as<arrow::StringViewArray>(array).GetView(row));
      case arrow::Type::LIST: return list(as<arrow::ListArray>(array), row);
      case arrow::Type::LARGE_LIST: return list(as<arrow::LargeListArray>(array), row);
      case arrow::Type::FIXED_SIZE_LIST: return list(as<arrow::FixedSizeListArray>(array), row);
      case arrow::Type::STRUCT: return members(as<arrow::StructArray>(array), row);
      case arrow::Type::MAP: return pairs(as<arrow::MapArray>(array), row);
      case arrow::Type::DICTIONARY: {
        const auto& words = as<arrow::DictionaryArray>(array);
        return value(*words.dictionary(), words.GetValueIndex(row));
      }
      case arrow::Type::EXTENSION: return value(*as<arrow::ExtensionArray>(array).storage(), row);
      // Dates, times, decimals and the like become texts, as libarrow prints them.
      default: return string(value_of(array.GetScalar(row))->ToString());
    }
  }

 private:
  static void require(bool is_taken) {
    if (!is_taken) throw RowRefused();
  }

  static bool is_nothing(const arrow::Array& array, int64_t row) {
    return array.IsNull(row) || is_bytes(*array.type());
  }

  void string(std::string_view text) const { require(to_.string(to_.row, text.data(), text.size())); }

  void number(double value) const {
    require(std::isfinite(value) ? to_.float64(to_.row, value) : to_.null(to_.row));
  }

  template <class List>
  void list(const List& list, int64_t row) const {
    require(to_.begin_list(to_.row));
    const int64_t begin = list.value_offset(row), length = list.value_length(row);
    for (int64_t i = 0; i < length; ++i) value(*list.values(), begin + i);
    end();
  }

  // Hands a struct over without its null members: a struct column has the members of all rows together, and
  // those that a row did not have are null in it.
  void members(const arrow::StructArray& fields, int64_t row) const {
    begin_object();
    for (int i = 0; i < fields.num_fields(); ++i) {
      if (is_nothing(*fields.field(i), row)) continue;
      key(fields.type()->field(i)->name());
      value(*fields.field(i), row);
    }
    end();
  }

  // Hands a map over. Pairs whose keys are text become an object, as the `datasets` library gives them;
  // others become a list of pairs.
  void pairs(const arrow::MapArray& map, int64_t row) const {
    const bool is_object = map.keys()->type_id() == arrow::Type::STRING;
    require(is_object ? to_.begin_object(to_.row) : to_.begin_list(to_.row));
    for (int64_t i = map.value_offset(row); i < map.value_offset(row + 1); ++i) {
      if (is_object) {
        key(as<arrow::StringArray>(*map.keys()).GetView(i));
      } else {
        require(to_.begin_list(to_.row));
        value(*map.keys(), i);
      }
      value(*map.items(), i);
      if (!is_object) end();
    }
    end();
  }

  const TesseraTableRow& to_;
};

class Table {
 public:
  explicit Table(const char* path) {
    file_ = value_of(arrow::io::ReadableFile::Open(path, arrow::system_memory_pool()));
    pool_ = std::make_unique<arrow::CappedMemoryPool>(arrow::system_memory_pool(),
                                                      kMemoryBytes + 2 * value_of(file_->GetSize()));
    char magic[6] = {};
    value_of(file_->ReadAt(0, sizeof magic, magic));
    if (std::memcmp(magic, "PAR1", 4) == 0) {
      open_parquet();
    } else if (std::memcmp(magic, "ARROW1", 6) == 0) {
      open_file();
    } else {
      has_prefix_ = std::memcmp(magic, "\xFF\xFF\xFF\xFF", 4) == 0;
      require(file_->Seek(0));
      stream_ = value_of(arrow::ipc::RecordBatchStreamReader::Open(file_, options()));
    }
    if (!parquet_) note_bytes(stream_ ? *stream_->schema() : *random_->schema());
  }

  const std::string& left_out() const { return left_out_; }

  bool next(const Row& row) {
    while (!batch_ || row_ == batch_->num_rows()) {
      if (!next_batch()) return false;
      row_ = 0;
      is_checked_ = false;
    }
    // This finds offsets that lead out of a damaged file's buffers, and text that is not UTF-8.
    if (!is_checked_) require(batch_->ValidateFull());
    is_checked_ = true;
    const int64_t at = row_++;
    row.begin_object();
    for (int i = 0; i < batch_->num_columns(); ++i) {
      if (is_bytes(*batch_->column(i)->type())) continue;
      row.key(batch_->column_name(i));
      row.value(*batch_->column(i), at);
    }
    row.end();
    return true;
  }

  bool skip(int64_t rows) {
    while (!batch_ || rows > batch_->num_rows() - row_) {
      if (batch_) rows -= batch_->num_rows() - row_;
      if (!next_batch()) return false;
      row_ = 0;
      is_checked_ = false;
    }
    row_ += rows;
    return true;
  }

 private:
  // Notes the columns whose type is bytes, which become no part of a row.
  void note_bytes(const arrow::Schema& schema) {
    for (const auto& field : schema.fields()) {
      if (!is_bytes(*field->type())) continue;
      left_out_ += (left_out_.empty() ? "" : ", ") + field->name();
    }
  }

  arrow::ipc::IpcReadOptions options() const {
    arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = pool_.get();
    options.use_threads = false;
    return options;
  }

  void open_parquet() {
    parquet::ReaderProperties properties(pool_.get());
    // Reads a page at a time, and not a whole column of a row group.
    properties.enable_buffered_stream();
    properties.set_buffer_size(kBufferBytes);
    parquet::arrow::FileReaderBuilder builder;
    require(builder.Open(file_, properties));
    const auto metadata = builder.raw_reader()->metadata();
    parquet::ArrowReaderProperties arrow_properties(false);
    arrow_properties.set_batch_size(rows_of_a_batch(*metadata));
    arrow_properties.set_pre_buffer(false);
    builder.memory_pool(pool_.get())->properties(arrow_properties);
    require(builder.Build(&parquet_));
    std::shared_ptr<arrow::Schema> schema;
    require(parquet_->GetSchema(&schema));
    note_bytes(*schema);
    std::vector<int> groups(static_cast<size_t>(metadata->num_row_groups())), columns;
    std::iota(groups.begin(), groups.end(), 0);
    for (int i = 0; i < metadata->num_columns(); ++i) {
      const std::string name = metadata->schema()->Column(i)->path()->ToDotVector().front();
      const auto field = schema->GetFieldByName(name);
      if (!field || !is_bytes(*field->type())) columns.push_back(i);
    }
    stream_ = value_of(parquet_->GetRecordBatchReader(groups, columns));
  }

  // Returns how many rows are decoded at a time, by the longest rows that the sizes in the file's footer tell
  // of.
  static int64_t rows_of_a_batch(const parquet::FileMetaData& metadata) {
    int64_t rows = kBatchRows;
    for (int i = 0; i < metadata.num_row_groups(); ++i) {
      const auto group = metadata.RowGroup(i);
      if (group->num_rows() <= 0) continue;
      const int64_t row_bytes = group->total_byte_size() / group->num_rows();
      rows = std::min(rows, std::max<int64_t>(kBatchBytes / std::max<int64_t>(row_bytes, 1), 1));
    }
    return rows;
  }

  void open_file() { random_ = value_of(arrow::ipc::RecordBatchFileReader::Open(file_, options())); }

  // Requires the mark at the end of a stream: libarrow takes a stream that is cut off between two batches for
  // a shorter one.
  void require_end_mark() {
    const int64_t size = value_of(file_->GetSize()), end = value_of(file_->Tell());
    uint32_t mark[2] = {};
    if (end == size && size >= static_cast<int64_t>(sizeof mark))
      value_of(file_->ReadAt(size - static_cast<int64_t>(sizeof mark), sizeof mark, mark));
    // The older form of the mark is its second word alone.
    if (end == size && mark[1] == 0 && (mark[0] == 0xFFFFFFFF || !has_prefix_)) return;
    throw std::runtime_error("the stream has no end mark at byte " + std::to_string(end) + " of " +
                             std::to_string(size) + ": the file was not written or copied completely");
  }

  bool next_batch() {
    if (stream_) {
      require(stream_->ReadNext(&batch_));
      if (batch_ == nullptr && !parquet_) require_end_mark();
      return batch_ != nullptr;
    }
    if (next_batch_ == random_->num_record_batches()) return false;
    batch_ = value_of(random_->ReadRecordBatch(next_batch_++));
    return true;
  }

  std::unique_ptr<arrow::CappedMemoryPool> pool_;  // outlives all that allocates from it
  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> parquet_;
  std::shared_ptr<arrow::RecordBatchReader> stream_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> random_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::string left_out_;
  int next_batch_ = 0;
  int64_t row_ = 0;
  bool is_checked_ = false;
  bool has_prefix_ = false;  // messages of a stream begin with 0xFFFFFFFF
};

struct Handle {
  std::unique_ptr<Table> table;
  std::string error;
};

void* open_table(const char* path, int32_t* failure, char* error, size_t error_size) {
  try {
    return new Handle{std::make_unique<Table>(path), ""};
  } catch (...) {
    std::string text;
    *failure = failure_of(text);
    std::snprintf(error, error_size, "%s", text.c_str());
    return nullptr;
  }
}

// Runs an action, which returns whether there was a row. Returns what a call gives.
template <class Action>
int32_t run(Handle& handle, const char** error, Action&& action) {
  try {
    return action(*handle.table) ? 1 : 0;
  } catch (...) {
    const int32_t failure = failure_of(handle.error);
    *error = handle.error.c_str();
    return failure;
  }
}

int32_t next_row(void* handle, const TesseraTableRow* row, const char** error) {
  return run(*static_cast<Handle*>(handle), error, [&](Table& table) { return table.next(Row(*row)); });
}

int32_t skip_rows(void* handle, int64_t rows, const char** error) {
  return run(*static_cast<Handle*>(handle), error, [&](Table& table) { return table.skip(rows); });
}

const char* left_out(void* opaque) { return static_cast<Handle*>(opaque)->table->left_out().c_str(); }

void close_table(void* opaque) { delete static_cast<Handle*>(opaque); }

constexpr TesseraTableApi kApi = {
    kTesseraTableApiVersion, open_table, left_out, next_row, skip_rows, close_table};

}  // namespace

const TesseraTableApi* tessera_table_api() { return &kApi; }
