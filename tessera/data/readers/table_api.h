// What the library for parquet and arrow files (tessera-tables.so) offers. It is apart from the program,
// which loads it when such a file is read, so that libarrow is not needed otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

// Raise it when a function changes.
constexpr int32_t kTesseraTableApiVersion = 3;

// Text stays valid until the next call with the same table. No function throws. A failure is a negative
// number with the reason as text: kTesseraTableDamaged where the file's bytes are at fault, else the negated
// errno of a read that failed.
constexpr int32_t kTesseraTableDamaged = -0x10000;

struct TesseraTableApi {
  int32_t version;
  // Opens a parquet file, or an arrow file or stream, by its first bytes. Null when that fails; then
  // `failure` says so, and `error` (of `error_size` bytes) why, ended by a zero.
  void* (*open)(const char* path, int32_t* failure, char* error, size_t error_size);
  // Columns that are left out because JSON has nothing for their bytes, joined by ", ".
  const char* (*left_out)(void* table);
  // The next row as a JSON object. 1; 0 at the end; a failure with the reason as `text`.
  int32_t (*next)(void* table, const char** text, size_t* size);
  // Passes over so many rows, without making text of them. 1; 0 where there are fewer; a failure.
  int32_t (*skip)(void* table, int64_t rows, const char** text);
  void (*close)(void* table);
};

extern "C" const TesseraTableApi* tessera_table_api();
