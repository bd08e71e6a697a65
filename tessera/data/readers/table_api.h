// The interface of the library for parquet and arrow files (tessera-tables.so). It is apart from the program,
// which loads it when such a file is read, so that libarrow is not needed otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

// Version of this interface. Raise it when a function changes.
constexpr int32_t kTesseraTableApiVersion = 5;

// Text that a function gives stays valid until the next call with the same table. No function throws. A
// failure is a negative number with the reason as text: kTesseraTableDamaged where the file's bytes are at
// fault, kTesseraTableRowRefused without a reason where a row was refused (reading goes on behind it), else
// the negated errno of a read that failed.
constexpr int32_t kTesseraTableDamaged = -0x10000;
constexpr int32_t kTesseraTableRowRefused = -0x10001;

// Takes the values of one row in the order of JSON: each member of an object is a key and then its value.
// Each function gets `row` first, and returns false where it refuses the row. Texts are borrowed for the call
// and may be any bytes.
struct TesseraTableRow {
  void* row;
  bool (*begin_object)(void* row);
  bool (*begin_list)(void* row);
  bool (*end)(void* row);  // ends the object or list that was begun last
  bool (*key)(void* row, const char* text, size_t size);
  bool (*string)(void* row, const char* text, size_t size);
  bool (*int64)(void* row, int64_t value);
  bool (*uint64)(void* row, uint64_t value);
  bool (*float64)(void* row, double value);  // is finite
  bool (*boolean)(void* row, bool value);
  bool (*null)(void* row);
};

struct TesseraTableApi {
  int32_t version;
  // Opens a parquet file, or an arrow file or stream, by its first bytes. Returns null when that fails;
  // `failure` then is the failure's number, and `error` (of `error_size` bytes) the reason, ended by a zero.
  void* (*open)(const char* path, int32_t* failure, char* error, size_t error_size);
  // Returns the columns that are left out because JSON has nothing for their bytes, joined by ", ".
  const char* (*left_out)(void* table);
  // Hands the next row over as one object. Returns 1, or 0 at the end, or a failure with the reason in
  // `error`.
  int32_t (*next)(void* table, const TesseraTableRow* row, const char** error);
  // Skips `rows` rows, without handing them over. Returns 1, or 0 if there are fewer, or a failure with the
  // reason in `error`.
  int32_t (*skip)(void* table, int64_t rows, const char** error);
  void (*close)(void* table);
};

extern "C" const TesseraTableApi* tessera_table_api();
