// The interface of the library for parquet and arrow files (tessera-tables.so). It is apart from the program,
// which loads it when such a file is read, so that libarrow is not needed otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

// Version of this interface. Raise it when a function changes.
constexpr int32_t kTesseraTableApiVersion = 4;

// Text that a function gives stays valid until the next call with the same table. No function throws. A
// failure is a negative number with the reason as text: kTesseraTableDamaged where the file's bytes are at
// fault, kTesseraTableRowTooLong where one row is longer than a record may be (reading goes on behind it),
// else the negated errno of a read that failed.
constexpr int32_t kTesseraTableDamaged = -0x10000;
constexpr int32_t kTesseraTableRowTooLong = -0x10001;

struct TesseraTableApi {
  int32_t version;
  // Opens a parquet file, or an arrow file or stream, by its first bytes. Returns null when that fails;
  // `failure` then is the failure's number, and `error` (of `error_size` bytes) the reason, ended by a zero.
  void* (*open)(const char* path, int32_t* failure, char* error, size_t error_size);
  // Returns the columns that are left out because JSON has nothing for their bytes, joined by ", ".
  const char* (*left_out)(void* table);
  // Gives the next row as a JSON object in `text`. Returns 1, or 0 at the end, or a failure with the reason
  // in `text`.
  int32_t (*next)(void* table, const char** text, size_t* size);
  // Skips `rows` rows, without making text of them. Returns 1, or 0 if there are fewer, or a failure with the
  // reason in `text`.
  int32_t (*skip)(void* table, int64_t rows, const char** text);
  void (*close)(void* table);
};

extern "C" const TesseraTableApi* tessera_table_api();
