// Compressed bytes for tests.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <zlib.h>
#include <zstd.h>

namespace tessera::testing {

// Returns the text as one member of a gzip file.
inline std::string gzipped(std::string_view text) {
  z_stream state = {};
  constexpr int kGzipFormat = 16;
  if (deflateInit2(&state, 6, Z_DEFLATED, kGzipFormat + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("zlib");
  std::string out(deflateBound(&state, text.size()) + 32, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  if (deflate(&state, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("zlib");
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

// Returns the text as one frame of a Zstandard file, with a checksum.
inline std::string zstd_frame(std::string_view text) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t size = ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  if (ZSTD_isError(size) != 0) throw std::runtime_error("zstd");
  out.resize(size);
  return out;
}

}  // namespace tessera::testing
